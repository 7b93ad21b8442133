"""Do the scales hold the values of other data? What they clip, by tensor and by slice of the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from calib.data.source import Record
from calib.errors import DataError
from calib.features import Features
from calib.quality.result import Clip, Coverage

_SHOWN = 20
_USUAL = 0.95
_ONE_SIDED = NormalDist().inv_cdf(0.95)
_NONE = "(none)"

Float64 = npt.NDArray[np.float64]


def coverage(
    features: Features,
    metadata: Sequence[Record],
    columns: Sequence[str],
    scales: str,
    thresholds: Mapping[str, float],
    calibration: Features | None = None,
    calibration_metadata: Sequence[Record] = (),
) -> Coverage:
    """Return what the scales clip of these samples; worst first.

    What is worst is told by the unit that can be wrong, the sample. A sample is unusual in a tensor if a larger share of
    its values is clipped than of 95 % of the calibration samples (max: if any is). Two numbers are multiplied:

    1. The share of unusual samples that the slice has at least (lower end of Wilson's one-sided 95 % interval), less
       what calibration has itself (5 % at most): of few samples few can be told to be unusual.
    2. The mean share of values that its samples lose, without the one that loses most, less the calibration's own: one
       freak sample does not make a slice the worst, and a slice of one sample never comes before others.

    Where both are equal the plain share of values decides. Without calibration samples, those outside the slice stand
    in for them. Slices of few samples are kept: `samples` says how few.

    Args:
        features: of n samples, with what `scales` clip.
        metadata: of the same n samples.
        columns: of the metadata by which slices are made; a sample without one is in the slice "(none)".
        scales: name in `features.clipped`.
        thresholds: 127 * scale by tensor.
        calibration: features of the calibration set, with what `scales` clip.
        calibration_metadata: of the calibration set's samples; none: no slice can be called uncovered.

    Raises:
        DataError: metadata that is not of these samples, a column that no sample has, or no counts for these scales.
    """
    if len(metadata) != len(features.ids):
        raise DataError(
            f"{len(metadata)} records of metadata for {len(features.ids)} samples; they must be the same samples"
        )
    if not features.ids:
        raise DataError(f"there are no samples on which to count what {scales} clips")
    used = [i for i, tensor in enumerate(features.tensors) if tensor in thresholds]
    here = _Side.of(features, scales, used)
    there = _Side.of(calibration, scales, used) if calibration is not None else None
    tensors = [features.tensors[i] for i in used]
    limits = np.asarray([thresholds[tensor] for tensor in tensors], np.float64)
    slices = _slices(metadata, columns)

    everything = _ranked(tensors, here, there, limits, _Slice("", "", np.ones(len(metadata), np.bool_)))
    each = [_ranked(tensors, here, there, limits, part) for part in slices]
    worst = sorted((item for items in each for item in items), key=_Ranked.key)
    heads = sorted((items[0] for items in each if items), key=_Ranked.key)
    known = {(column, _value(record, column)) for record in calibration_metadata for column in columns}
    missing = [part for part in slices if calibration_metadata and (part.column, part.value) not in known]
    return Coverage(
        scales=scales,
        samples=len(features.ids),
        overall=float(here.clipped.sum() / max(1, here.sizes.sum())),
        tensors=tuple(item.clip for item in everything),
        slices=tuple(item.clip for item in heads),
        worst=tuple(item.clip for item in worst[:_SHOWN]),
        uncovered=tuple(f"{part.column} = {part.value}" for part in missing),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Slice:
    column: str
    value: str
    rows: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """What is clipped of n samples in the t tensors that have scales; all (n, t)."""

    clipped: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    amax: npt.NDArray[np.float32]

    @classmethod
    def of(cls, features: Features, scales: str, used: Sequence[int]) -> _Side:
        """Take some columns, in which there must be counts."""
        if scales not in features.clipped:
            known = ", ".join(features.clipped) or "none"
            raise DataError(f"what {scales} clips was not counted; counted were {known}: make the features again")
        clipped = features.clipped[scales][:, used]
        if (clipped < 0).any():
            name = features.tensors[used[int(np.flatnonzero((clipped < 0).any(axis=0))[0])]]
            raise DataError(f"what {scales} clips of tensor '{name}' was not counted: make the features again")
        return cls(clipped, features.sizes[:, used], features.amax[:, used])

    def rows(self, rows: npt.NDArray[np.bool_]) -> _Side:
        """Return some of the samples."""
        return _Side(self.clipped[rows], self.sizes[rows], self.amax[rows])

    def shares(self) -> Float64:
        """Share of the values of each sample's tensor that is clipped."""
        return np.asarray(self.clipped / np.maximum(self.sizes, 1))

    def share(self) -> Float64:
        """Share of all samples' values, by tensor."""
        return np.asarray(self.clipped.sum(axis=0) / np.maximum(self.sizes.sum(axis=0), 1))


@dataclass(frozen=True, slots=True)
class _Ranked:
    clip: Clip
    score: float

    def key(self) -> tuple[float, float, str, str, str]:
        """Sort by it: worst first, and the same for the same data."""
        return -self.score, -self.clip.share, self.clip.column, self.clip.value, self.clip.tensor


def _ranked(tensors: Sequence[str], here: _Side, there: _Side | None, limits: Float64, part: _Slice) -> list[_Ranked]:
    """Return every tensor of a slice, worst first."""
    inside = here.rows(part.rows)
    rest = here.rows(~part.rows) if there is None else there
    shares, count = inside.shares(), int(part.rows.sum())
    if rest.sizes.shape[0]:
        usual = np.quantile(rest.shares(), _USUAL, axis=0, method="higher")
        own, beyond = rest.shares().mean(axis=0), (rest.shares() > usual).mean(axis=0)
    else:
        usual = own = beyond = np.zeros(len(tensors))
    unusual = (shares > usual).mean(axis=0)
    surely = np.maximum(_at_least(unusual, count) - beyond, 0)
    trimmed = (shares.sum(axis=0) - shares.max(axis=0)) / max(1, count - 1)
    scores = surely * np.maximum(trimmed - own, 0)
    share, hit = inside.share(), (inside.clipped > 0).mean(axis=0)
    overshoot = inside.amax.max(axis=0) / limits
    reference = None if there is None else there.share()
    found = [
        _Ranked(
            Clip(
                tensor=tensor,
                column=part.column,
                value=part.value,
                samples=count,
                share=float(share[i]),
                hit=float(hit[i]),
                unusual=float(unusual[i]),
                overshoot=float(overshoot[i]),
                calibration=None if reference is None else float(reference[i]),
            ),
            float(scores[i]),
        )
        for i, tensor in enumerate(tensors)
    ]
    return sorted(found, key=_Ranked.key)


def _at_least(rate: Float64, count: int) -> Float64:
    """Return the lower end of Wilson's one-sided 95 % interval of a rate seen in `count` samples (JASA 1927)."""
    z2 = _ONE_SIDED**2
    centre = rate + z2 / (2 * count)
    half = _ONE_SIDED * np.sqrt(rate * (1 - rate) / count + z2 / (4 * count**2))
    return np.asarray((centre - half) / (1 + z2 / count))


def _slices(metadata: Sequence[Record], columns: Sequence[str]) -> list[_Slice]:
    found = []
    for column in columns:
        if not any(column in record for record in metadata):
            known = ", ".join(sorted({key for record in metadata for key in record})) or "none"
            raise DataError(f"no sample has the metadata column '{column}'; known are {known}; name one of them")
        values = np.asarray([_value(record, column) for record in metadata], object)
        found += [_Slice(column, value, np.asarray(values == value, np.bool_)) for value in sorted(set(values))]
    return found


def _value(record: Record, column: str) -> str:
    return str(record.get(column, _NONE))
