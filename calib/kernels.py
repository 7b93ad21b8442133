"""The compiled inner loops: counting values and searching thresholds.

They release the GIL, so that threads share the work, and they are compiled once and cached beside this file (or in
numba's cache directory where the package is read-only).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    def njit(**_: Any) -> Callable[[Any], Any]:  # numba has no types
        """Compile a function."""
        ...

else:
    from numba import njit

PACKED_LIMIT = (1 << 24) - 1  # values that a packed counter's 24-bit count can hold
_COUNT_ONE = 1 << 40


@njit(nogil=True, cache=True, boundscheck=False)
def count_packed(bits: Any, packed: Any) -> Any:
    """Add float32 bit patterns (uint32) to packed counters (uint64[2**18]); return the largest pattern without sign."""
    largest = np.uint32(0)
    for i in range(bits.size):
        value = bits[i] & np.uint32(0x7FFFFFFF)
        largest = max(largest, value)
        packed[value >> np.uint32(13)] += np.uint64(_COUNT_ONE) + np.uint64(value & np.uint32(0x1FFF))
    return largest


@njit(nogil=True, cache=True, boundscheck=False)
def used_octaves(packed: Any, end: Any) -> Any:
    """Return the octaves in [0, end) that hold a value, int64, ascending."""
    used = np.zeros(end, np.bool_)
    for octave in range(end):
        for i in range(octave * 1024, (octave + 1) * 1024):
            if packed[i] != 0:
                used[octave] = True
                break
    return np.flatnonzero(used).astype(np.int64)


@njit(nogil=True, cache=True, boundscheck=False)
def unpack(packed: Any, octaves: Any, row_of: Any, counts: Any, residuals: Any) -> None:
    """Move the packed counters of some octaves to their rows of counts and residuals (int64[rows, 1024]), leaving zeros.

    A packed counter holds a count in its upper 24 bits and a sum of residuals in its lower 40: counting costs one add.
    """
    for octave in octaves:
        row = row_of[octave]
        for j in range(1024):
            value = packed[octave * 1024 + j]
            counts[row, j] += np.int64(value >> np.uint64(40))
            residuals[row, j] += np.int64(value & np.uint64(_COUNT_ONE - 1))
            packed[octave * 1024 + j] = 0


@njit(nogil=True, cache=True, boundscheck=False)
def count_linear(values: Any, amax: Any, counts: Any) -> Any:
    """Count |values| (float32) in equal bins over [0, amax]; return how many were above amax or NaN (not counted)."""
    outside = 0
    factor = np.float64(counts.size) / np.float64(amax) if amax > 0 else 0.0
    last = counts.size - 1
    for i in range(values.size):
        value = abs(values[i])
        if value <= amax:
            counts[min(int(np.float64(value) * factor), last)] += 1
        else:
            outside += 1
    return outside


@njit(nogil=True, cache=True, boundscheck=False)
def quantization_errors(means: Any, counts: Any, candidates: Any) -> Any:
    """Sum of counts * (x - q(x))**2 for symmetric INT8 with scale amax / 127, for each amax of `candidates`.

    All arrays are float64, means ascending. Values below half a step become 0 and values above amax become amax, so that
    prefix sums stand for both ends and the loop runs over what is left.
    """
    size = means.size
    weight, first, second = np.zeros(size + 1), np.zeros(size + 1), np.zeros(size + 1)
    for i in range(size):
        weight[i + 1] = weight[i] + counts[i]
        first[i + 1] = first[i] + counts[i] * means[i]
        second[i + 1] = second[i] + counts[i] * means[i] * means[i]
    errors = np.empty(candidates.size)
    for k in range(candidates.size):
        amax = candidates[k]
        scale, inverse = amax / 127.0, 127.0 / amax
        low, high = np.searchsorted(means, 0.5 * scale), np.searchsorted(means, amax)
        clipped = second[size] - second[high] - 2 * amax * (first[size] - first[high])
        error = second[low] + max(0.0, clipped + amax * amax * (weight[size] - weight[high]))
        for i in range(low, high):
            difference = means[i] - np.rint(means[i] * inverse) * scale
            error += counts[i] * difference * difference
        errors[k] = error
    return errors


@njit(nogil=True, cache=True, boundscheck=False)
def entropy_threshold(counts: Any, levels: Any) -> Any:  # noqa: C901  one compiled loop
    """Return the i in [levels, bins] that minimizes KL(P || Q), the first of equals; counts is float64[bins].

    P is counts[:i] with the rest added to its last bin; Q is counts[:i] averaged over the non-empty bins of each of
    `levels` groups, where bin j belongs to group j * levels // i. Both are normalized.
    """
    bins = counts.size
    total = counts.sum()
    best, best_divergence = bins, np.inf
    group_sum = np.empty(levels)
    group_size = np.empty(levels)
    inside = counts[:levels].sum()
    for i in range(levels, bins + 1):
        if i > levels:
            inside += counts[i - 1]
        group_sum[:] = 0.0
        group_size[:] = 0.0
        for j in range(i):
            group = j * levels // i
            if counts[j] > 0:
                group_sum[group] += counts[j]
                group_size[group] += 1
        if inside == 0.0:
            continue
        divergence = 0.0
        for j in range(i):
            p = counts[j]
            if j == i - 1:
                p += total - inside
            if p > 0:
                group = j * levels // i
                q = group_sum[group] / group_size[group] if counts[j] > 0 else 0.0
                if q > 0:
                    divergence += p / total * np.log((p / total) / (q / inside))
                else:
                    divergence = np.inf
        if divergence < best_divergence:
            best, best_divergence = i, divergence
    return best
