"""Two calibration sets of one model: which scales differ, by more than chance, and which of the two clips less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from calib.calibrators import Calibrator
from calib.errors import DataError
from calib.features import Features
from calib.quality.result import Comparison, ScaleDifference
from calib.quality.sufficiency import sufficiency
from calib.scales import Scales
from calib.statistics import Observed

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One of the two sets.

    Attributes:
        name: of the set.
        observed: what the set made of the model, with shards.
        scales: that `calibrator` made of it.
    """

    name: str
    observed: Observed
    scales: Scales


def compare(first: Side, second: Side, calibrator: Calibrator, features: Features) -> Comparison:
    """Compare two sets by the scales that they give, and by what these clip of other samples.

    A ratio's noise is how far either scale may be from that of endless data (`quality.sufficiency`), the two added in
    quadrature; one tensor in 20 is beyond it by chance. Less clipping is not yet less error: larger scales clip less and
    round more.

    Args:
        first: one set.
        second: the other.
        calibrator: of both scales.
        features: of the samples that judge, with what "first" and "second" clip.

    Raises:
        DataError: a set has fewer than 2 blocks or none, the two share no tensor, or what they clip was not counted.
    """
    for name in ("first", "second"):
        if name not in features.clipped:
            raise DataError(f"what the {name} set's scales clip was not counted: make the features again")
    ones, others = first.scales.activations, second.scales.activations
    tensors = [tensor for tensor in ones if tensor in others]
    if not tensors:
        raise DataError(f"{first.name} and {second.name} have scales of no common tensor; are they of one model?")
    columns = [_column(features, tensor) for tensor in tensors]
    sizes = features.sizes[:, columns]
    clipped = [features.clipped[name][:, columns] for name in ("first", "second")]
    shares = [_share(counts, sizes) for counts in clipped]
    noise = [_deviations(side, calibrator) for side in (first, second)]
    differences = [
        ScaleDifference(
            tensor=tensor,
            first=float(ones[tensor]),
            second=float(others[tensor]),
            ratio=float(others[tensor]) / float(ones[tensor]),
            noise=float(np.hypot(noise[0].get(tensor, 0.0), noise[1].get(tensor, 0.0))),
            clipped_first=float(shares[0][i]),
            clipped_second=float(shares[1][i]),
        )
        for i, tensor in enumerate(tensors)
    ]
    total = max(1, int(sizes.sum()))
    return Comparison(
        calibrator=calibrator.name,
        first=first.name,
        second=second.name,
        differences=tuple(sorted(differences, key=lambda item: (-abs(np.log(item.ratio)), item.tensor))),
        beyond_noise=sum(abs(item.ratio - 1) > item.noise for item in differences),
        evaluation=len(features.ids),
        clipped_first=float(clipped[0].sum() / total),
        clipped_second=float(clipped[1].sum() / total),
        less_clipping=_less(clipped),
    )


def _deviations(side: Side, calibrator: Calibrator) -> dict[str, float]:
    if side.observed.shards is None:
        raise DataError(
            f"the statistics of {side.name} are not kept by block, so its noise is unknown; observe it again"
        )
    try:
        found = sufficiency(side.observed.shards, side.observed.tensors, calibrator)
    except DataError as error:
        raise DataError(f"{side.name}: {error}") from error
    return {curve.tensor: curve.deviation[-1] for curve in found.curves}


def _column(features: Features, tensor: str) -> int:
    if tensor not in features.tensors:
        raise DataError(f"what is clipped of tensor '{tensor}' was not counted: make the features again")
    return features.tensors.index(tensor)


def _share(clipped: Int64, sizes: Int64) -> npt.NDArray[np.float64]:
    return np.asarray(clipped.sum(axis=0) / np.maximum(sizes.sum(axis=0), 1))


def _less(clipped: Sequence[Int64]) -> Literal["first", "second", "equal"]:
    """Return who clips less; equal where the difference over the samples is within 1.96 standard errors of none."""
    difference = (clipped[0] - clipped[1]).sum(axis=1).astype(np.float64)
    error = float(difference.std(ddof=1) / np.sqrt(difference.size)) if difference.size > 1 else 0.0
    if abs(float(difference.mean())) <= 1.96 * error:
        return "equal"
    return "first" if difference.mean() < 0 else "second"
