"""One sample's tensor in one pass: largest and summed |x|, and how many values lie above given thresholds; compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calib.kernels import njit

_BLOCK = 4096  # values: 16 KiB, which stay in the first cache for the second look
_LANES = 32


def sample(
    values: npt.NDArray[np.float32], thresholds: npt.NDArray[np.float32]
) -> tuple[float, float, npt.NDArray[np.int64]]:
    """Return the largest |x|, the sum of |x| and the numbers of |x| above each threshold.

    Args:
        values: flat and contiguous.
        thresholds: shape (k,), ascending, 0 or more.

    Returns:
        The largest |x|, NaN if a value is NaN and else Inf if one is; the sum, added in float64; counts of shape (k,),
        in which a NaN is not above anything.
    """
    counts = np.zeros(thresholds.size, np.int64)
    largest, total = _sample(values, values.view(np.uint32), thresholds, counts)
    return float(np.uint32(largest).view(np.float32)), float(total), counts


@njit(nogil=True, cache=True, boundscheck=False)
def _sample(values: Any, bits: Any, thresholds: Any, counts: Any) -> Any:
    """Nearly all blocks hold nothing above the least threshold: their largest pattern, found with the sum, says so."""
    largest, total = np.uint32(0), 0.0
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        highest = _largest(bits[start : start + _BLOCK])
        largest = max(largest, highest)
        total += _sum(block)
        for k in range(thresholds.size):
            # Patterns of floats without sign are in the order of their values, NaN above all.
            if highest <= thresholds[k : k + 1].view(np.uint32)[0]:
                break
            counts[k] += _above(block, thresholds[k])
    return largest, total


@njit(nogil=True, cache=True, boundscheck=False)
def _largest(bits: Any) -> Any:
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, np.uint32(bits[i] & np.uint32(0x7FFFFFFF)))
    return largest


@njit(nogil=True, cache=True, boundscheck=False)
def _sum(values: Any) -> Any:
    """Add in lanes: vectorized, and yet in the same order on every processor."""
    lanes = np.zeros(_LANES)
    whole = values.size // _LANES * _LANES
    for start in range(0, whole, _LANES):
        for j in range(_LANES):
            lanes[j] += np.float64(abs(values[start + j]))
    total = 0.0
    for j in range(_LANES):
        total += lanes[j]
    for i in range(whole, values.size):
        total += np.float64(abs(values[i]))
    return total


@njit(nogil=True, cache=True, boundscheck=False)
def _above(values: Any, threshold: Any) -> Any:
    count = np.int32(0)
    for i in range(values.size):
        count += np.int32(abs(values[i]) > threshold)
    return count
