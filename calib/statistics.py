"""What the passes over the data saw of each tensor and input, and its file, stats.npz."""

from __future__ import annotations

from collections.abc import Mapping
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

FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """One tensor; `linear` is None unless a second pass was made."""

    histogram: Histogram
    linear: LinearHistogram | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What a set made of a model.

    Attributes:
        tensors: distribution by tensor, of those that may be quantized.
        ranges: range by tensor, of all those whose range does not follow from another's.
        profile: shapes by model input.
    """

    tensors: Mapping[str, Statistics]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    profile: Mapping[str, Profile] = field(default_factory=dict)


def save(observed: Observed, path: Path, *, model_sha256: str, data_sha256: str) -> None:
    """Write stats.npz: the tensors' sparse histograms one after the other, and the linear ones where all have one."""
    statistics = observed.tensors
    histograms = [item.histogram for item in statistics.values()]
    arrays: dict[str, npt.NDArray[np.generic]] = {
        "version": np.asarray(FORMAT_VERSION),
        "model_sha256": np.asarray(model_sha256),
        "data_sha256": np.asarray(data_sha256),
        "tensors": np.asarray(list(statistics), np.str_),
        "amax": np.asarray([histogram.amax for histogram in histograms], np.float32),
        "sizes": np.asarray([histogram.bins.size for histogram in histograms], np.int64),
        "ranged": np.asarray(list(observed.ranges), np.str_),
        "ranges": np.asarray([(r.amax, r.smallest) for r in observed.ranges.values()], np.float32).reshape(-1, 2),
        "inputs": np.asarray(list(observed.profile), np.str_),
    }
    for i, shapes in enumerate(observed.profile.values()):
        arrays[f"shapes_{i}"] = np.asarray([shapes.min, shapes.opt, shapes.max], np.int64)
    for name in ("bins", "counts", "residuals"):
        parts = [getattr(histogram, name) for histogram in histograms]
        arrays[name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    linear = [item.linear.counts for item in statistics.values() if item.linear is not None]
    if linear and len(linear) == len(histograms):
        arrays["linear"] = np.stack(linear)
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
        ends = np.cumsum(arrays["sizes"])
        tensors = {}
        for i, tensor in enumerate(arrays["tensors"]):
            part = slice(int(ends[i] - arrays["sizes"][i]), int(ends[i]))
            amax = float(arrays["amax"][i])
            histogram = Histogram(amax, arrays["bins"][part], arrays["counts"][part], arrays["residuals"][part])
            linear = LinearHistogram(amax, arrays["linear"][i]) if "linear" in arrays else None
            tensors[str(tensor)] = Statistics(histogram, linear)
        ranged = zip(arrays["ranged"], arrays["ranges"], strict=True)
        ranges = {str(tensor): Range(float(amax), float(smallest)) for tensor, (amax, smallest) in ranged}
        profile = {
            str(name): Profile(*(tuple(int(size) for size in shape) for shape in arrays[f"shapes_{i}"]))
            for i, name in enumerate(arrays["inputs"])
        }
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}); make it again") from error
    return Observed(tensors, ranges, profile)
