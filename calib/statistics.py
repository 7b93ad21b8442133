"""What the passes over the data saw of each tensor and input, and its file, stats.npz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import files
from calib.errors import DataError
from calib.histogram import Histogram, LinearHistogram
from calib.profiles import Profile
from calib.ranges import Range

FORMAT_VERSION = 3


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """One tensor; `linear` is None unless a second pass was made."""

    histogram: Histogram
    linear: LinearHistogram | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Shards:
    """Coarse histograms (`Histogram.coarse`) of each block of a set, from which any part of it can be judged.

    Attributes:
        samples: number of samples in each of the b blocks.
        by_tensor: b histograms by tensor.
    """

    samples: tuple[int, ...]
    by_tensor: Mapping[str, tuple[Histogram, ...]]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names of the tensors."""
        return tuple(self.by_tensor)

    def histograms(self, tensor: str) -> list[Histogram]:
        """Return a tensor's histograms, one a block."""
        return list(self.by_tensor[tensor])


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What a set made of a model.

    Attributes:
        tensors: distribution by tensor, of those that may be quantized.
        ranges: range by tensor, of all those whose range does not follow from another's.
        profile: shapes by model input.
        shards: the distributions by block of the set; None where nobody asked.
    """

    tensors: Mapping[str, Statistics]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    profile: Mapping[str, Profile] = field(default_factory=dict)
    shards: Shards | None = None


def save(observed: Observed, path: Path, *, model_sha256: str, data_sha256: str) -> None:
    """Write stats.npz: sparse histograms one after the other, the linear ones where all have one, and the shards."""
    statistics = observed.tensors
    histograms = [item.histogram for item in statistics.values()]
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "version": np.asarray(FORMAT_VERSION),
        "model_sha256": np.asarray(model_sha256),
        "data_sha256": np.asarray(data_sha256),
        "tensors": np.asarray(list(statistics), np.str_),
        **_packed(histograms),
        "ranged": np.asarray(list(observed.ranges), np.str_),
        "ranges": np.asarray([(r.amax, r.smallest) for r in observed.ranges.values()], np.float32).reshape(-1, 2),
        "inputs": np.asarray(list(observed.profile), np.str_),
    }
    for i, shapes in enumerate(observed.profile.values()):
        arrays[f"shapes_{i}"] = np.asarray([shapes.min, shapes.opt, shapes.max], np.int64)
    linear = [item.linear.counts for item in statistics.values() if item.linear is not None]
    if linear and len(linear) == len(histograms):
        arrays["linear"] = np.stack(linear)
    if observed.shards is not None:
        by_tensor = observed.shards.by_tensor
        arrays["shard_tensors"] = np.asarray(list(by_tensor), np.str_)
        arrays["shard_samples"] = np.asarray(observed.shards.samples, np.int64)
        arrays |= _packed([histogram for blocks in by_tensor.values() for histogram in blocks], "shard_")
    files.write_npz(path, arrays)


def load(path: Path, *, model_sha256: str, data_sha256: str) -> Observed:
    """Read stats.npz.

    Raises:
        DataError: not such a file, damaged, of another version, or of another model or calibration set.
    """
    arrays: dict[str, Any] = files.read_npz(path)
    try:
        if int(arrays["version"]) != FORMAT_VERSION:
            raise DataError(
                f"{path} has version {arrays['version']} and this calib reads {FORMAT_VERSION}; make it again"
            )
        for key, wanted in (("model_sha256", model_sha256), ("data_sha256", data_sha256)):
            if str(arrays[key]) != wanted:
                raise DataError(
                    f"{path} belongs to another {key.partition('_')[0]} ({str(arrays[key])[:12]}); calibrate again"
                )
        tensors = {
            str(tensor): Statistics(
                histogram, LinearHistogram(histogram.amax, arrays["linear"][i]) if "linear" in arrays else None
            )
            for i, (tensor, histogram) in enumerate(zip(arrays["tensors"], _unpacked(arrays), strict=True))
        }
        ranged = zip(arrays["ranged"], arrays["ranges"], strict=True)
        ranges = {str(tensor): Range(float(amax), float(smallest)) for tensor, (amax, smallest) in ranged}
        profile = {
            str(name): Profile(*(tuple(int(size) for size in shape) for shape in arrays[f"shapes_{i}"]))
            for i, name in enumerate(arrays["inputs"])
        }
        shards = _shards(arrays) if "shard_tensors" in arrays else None
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}); make it again") from error
    return Observed(tensors, ranges, profile, shards)


def _packed(histograms: Sequence[Histogram], prefix: str = "") -> dict[str, npt.NDArray[np.generic]]:
    """Put histograms one after the other."""
    arrays: dict[str, npt.NDArray[np.generic]] = {
        f"{prefix}amax": np.asarray([histogram.amax for histogram in histograms], np.float32),
        f"{prefix}sizes": np.asarray([histogram.bins.size for histogram in histograms], np.int64),
    }
    for name in ("bins", "counts", "residuals"):
        parts = [getattr(histogram, name) for histogram in histograms]
        arrays[prefix + name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return arrays


def _unpacked(arrays: Mapping[str, Any], prefix: str = "") -> list[Histogram]:
    amax, sizes = arrays[prefix + "amax"], arrays[prefix + "sizes"]
    ends = np.cumsum(sizes)
    parts = [slice(int(end - size), int(end)) for end, size in zip(ends, sizes, strict=True)]
    return [
        Histogram(float(largest), *(arrays[prefix + name][part] for name in ("bins", "counts", "residuals")))
        for largest, part in zip(amax, parts, strict=True)
    ]


def _shards(arrays: Mapping[str, Any]) -> Shards:
    samples, every = tuple(int(n) for n in arrays["shard_samples"]), _unpacked(arrays, "shard_")
    by_tensor = {
        str(tensor): tuple(every[i * len(samples) : (i + 1) * len(samples)])
        for i, tensor in enumerate(arrays["shard_tensors"])
    }
    return Shards(samples, by_tensor)
