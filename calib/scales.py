"""INT8 scales and the arithmetic that they stand for.

TensorRT's INT8 is symmetric: code = clamp(round half to even(x / scale), -128, 127), x' = code * scale, scale =
amax / 127 in float32. The zero-point is always 0 and therefore appears nowhere but in the written Q/DQ nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import files, profiles
from calib.errors import ConfigError, DataError
from calib.profiles import Profile
from calib.ranges import Range

FORMAT_VERSION = 3
PREPARATION_KEY = "calib.preparation"
"""Where `calib quantize` writes in a model how its calibration inputs were prepared, as JSON."""

MIN_SCALE = float(np.finfo(np.float32).tiny)
"""Smallest scale that is written: below it float32 is subnormal, which TensorRT reads as zero."""

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class WeightScale:
    """The scale of a constant weight, float32.

    values has shape (C,) for the C slices along `axis`, or () where axis is None: one scale for the whole tensor.
    """

    values: Float32
    axis: int | None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where scales come from; what they may be used for is checked against it.

    Attributes:
        calibrator: its name, or "tensorrt <header>" for an imported calibration cache.
        model_sha256: of the model as published; "" when unknown (an imported cache).
        data_sha256: of the calibration set; "" when unknown.
        versions: packages that had a part in the numbers.
        preparation: how the calibration inputs were made, as `calib.data.prepare` records it; empty when unknown.
    """

    calibrator: str
    model_sha256: str = ""
    data_sha256: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    preparation: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """Scale by tensor, and what else calibration learned that quantizing needs.

    Attributes:
        activations: scale by tensor.
        weights: scales by weight, per channel.
        origin: where they come from.
        ranges: range by float tensor, of those that FP16 must hold; empty when unknown (an imported cache).
        profile: least, usual and largest shape by model input; empty when unknown.
    """

    activations: Mapping[str, np.float32]
    weights: Mapping[str, WeightScale]
    origin: Origin
    ranges: Mapping[str, Range] = field(default_factory=dict)
    profile: Mapping[str, Profile] = field(default_factory=dict)

    def thresholds(self) -> dict[str, float]:
        """Return the largest |x| that INT8 keeps, by tensor: 127 times its scale."""
        return {tensor: float(scale) * 127 for tensor, scale in self.activations.items()}


def scale_of(amax: float) -> np.float32:
    """Return amax / 127 as TensorRT stores it: a float32, at least MIN_SCALE."""
    return np.float32(max(float(np.float32(amax) / np.float32(127)), MIN_SCALE))


def weight_scale(weight: npt.NDArray[np.generic], axis: int | None) -> WeightScale:
    """Return the abs-max scales of a constant weight.

    A slice of zeros has no amax; its scale is the largest of the others, or 1, because its codes are 0 whatever the scale,
    and TensorRT takes no 0.
    """
    other = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    values = np.asarray(np.abs(weight.astype(np.float32)).max(axis=other) / np.float32(127), np.float32)
    largest = np.float32(values.max(initial=0)) or np.float32(1)
    return WeightScale(np.where(values < np.float32(MIN_SCALE), largest, values), axis)


def quantize(x: npt.NDArray[np.generic], scale: np.float32 | WeightScale) -> npt.NDArray[np.int8]:
    """Return the INT8 codes of x, with its shape."""
    codes = np.rint(x.astype(np.float32) / _broadcast(scale, x.ndim))
    return np.asarray(np.clip(codes, -128, 127), np.int8)


def dequantize(codes: npt.NDArray[np.int8], scale: np.float32 | WeightScale) -> Float32:
    """Return codes * scale, float32."""
    return codes.astype(np.float32) * _broadcast(scale, codes.ndim)


def save(scales: Scales, path: Path) -> None:
    """Write scales.json: in graph order and without a date, so that the same scales give the same bytes."""
    content = {
        "calibrator": scales.origin.calibrator,
        "model_sha256": scales.origin.model_sha256,
        "data_sha256": scales.origin.data_sha256,
        "versions": dict(scales.origin.versions),
        "preparation": dict(scales.origin.preparation),
        "activations": {tensor: float(scale) for tensor, scale in scales.activations.items()},
        "weights": {tensor: _weight_entry(scale) for tensor, scale in scales.weights.items()},
        "ranges": {tensor: [_number(r.amax), _number(r.smallest)] for tensor, r in scales.ranges.items()},
        "profile": {name: asdict(shapes) for name, shapes in scales.profile.items()},
    }
    files.write_json(path, "calib-scales", FORMAT_VERSION, content)


def load(path: Path) -> Scales:
    """Read scales.json.

    Raises:
        DataError: not such a file, another version, or a scale that is not a positive finite number.
    """
    document = files.read_json(path, "calib-scales", FORMAT_VERSION)
    try:
        origin = Origin(
            str(document["calibrator"]),
            str(document["model_sha256"]),
            str(document["data_sha256"]),
            {str(k): str(v) for k, v in document["versions"].items()},
            dict(document["preparation"]),
        )
        activations = {str(tensor): _float32([scale])[0] for tensor, scale in document["activations"].items()}
        weights = {str(tensor): _read_weight(entry) for tensor, entry in document["weights"].items()}
        ranges = {str(tensor): Range(float(amax), float(least)) for tensor, (amax, least) in document["ranges"].items()}
        profile = {str(name): profiles.read(entry) for name, entry in document["profile"].items()}
    except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path} is not a valid scales file ({type(error).__name__}: {error}); calibrate again"
        ) from error
    _check_positive(path, activations, weights)
    return Scales(activations, weights, origin, ranges, profile)


def _number(value: float) -> float | str:
    return value if np.isfinite(value) else "inf"  # JSON has no infinity


def _weight_entry(scale: WeightScale) -> dict[str, Any]:
    return {"axis": scale.axis, "scales": [float(value) for value in scale.values.reshape(-1)]}


def _read_weight(entry: Mapping[str, Any]) -> WeightScale:
    values = _float32(entry["scales"])
    return WeightScale(values.reshape(()), None) if entry["axis"] is None else WeightScale(values, int(entry["axis"]))


def _float32(numbers: Any) -> Float32:
    with np.errstate(over="ignore"):  # too large a number becomes Inf, which is refused
        return np.asarray([float(number) for number in numbers], np.float64).astype(np.float32)


def _check_positive(path: Path, activations: Mapping[str, np.float32], weights: Mapping[str, WeightScale]) -> None:
    every = {tensor: np.asarray(scale) for tensor, scale in activations.items()}
    every |= {tensor: scale.values for tensor, scale in weights.items()}
    for tensor, values in every.items():
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise DataError(f"{path}: the scale of tensor '{tensor}' must be positive and finite")


def _broadcast(scale: np.float32 | WeightScale, rank: int) -> Float32:
    if isinstance(scale, WeightScale):
        return scale.values.reshape([-1 if axis == scale.axis else 1 for axis in range(rank)])
    return np.asarray(scale, np.float32)
