"""What FP16 can hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]

MAX = float(np.finfo(np.float16).max)
TINY = float(np.finfo(np.float16).tiny)
"""The smallest normal number, 2^-14; below it FP16 loses bits."""

EXACT_INTEGERS = 2048.0
"""Up to here FP16 holds every integer."""

_CONSTANT_ERROR = 2.0**-10
_LEAST_SCALE = 2.0**-17  # from here to its maximum FP16 is within 1/254, which moves no code by more than half a step
_FINER = 64


def round_scale(scale: Float32) -> Float32:
    """Round scales to FP16, as float32, where that keeps them; return them as they are otherwise.

    Channels whose scale is too small for FP16 get the smallest that it holds well, where that is still `_FINER` times finer
    than one scale for the whole weight would be.
    """
    if scale.max() >= _FINER * _LEAST_SCALE:
        scale = np.maximum(scale, np.float32(_LEAST_SCALE))
    rounded = _rounded(scale)
    return rounded if bool((scale >= _LEAST_SCALE).all() and np.isfinite(rounded).all()) else scale


def exact(array: Float32) -> bool:
    """Whether rounding to FP16 changes nothing."""
    return bool((_rounded(array) == array).all())


def fits(constant: Float32, beside: float) -> bool:
    """Whether a constant survives rounding: it is finite, an epsilon does not become 0, and the error is small.

    Args:
        constant: of any shape.
        beside: how large the values are that it is added to, 0 if it is not.
    """
    rounded = _rounded(constant)
    if not np.isfinite(rounded).all() or (constant.any() and not rounded.any()):
        return False
    largest = max(float(np.abs(constant).max(initial=0)), beside)
    return float(np.abs(rounded - constant).max(initial=0)) <= _CONSTANT_ERROR * largest


def span(array: Float32) -> str:
    """Return the smallest and the largest magnitude, for messages."""
    found = np.abs(array[array != 0])
    return f"{found.min():.3g} to {found.max():.3g}" if found.size > 1 else f"{found.max(initial=0):.3g}"


def _rounded(array: Float32) -> Float32:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)
