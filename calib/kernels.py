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

PACKED_LIMIT = 1 << 23  # values that may be counted before `unpack`
_ONE = 1 << 40


@njit(nogil=True, cache=True, boundscheck=False)
def count_packed(bits: Any, packed: Any) -> None:
    """Count float32 bit patterns (uint32) in packed counters (uint64[2**19], a bin for the upper 19 bits, sign too).

    One add a value: a counter grows by 2**40 + the pattern. A bin's patterns are its first one plus at most 2**13 - 1, so
    that after PACKED_LIMIT values both the count and the sum of the lower 13 bits can be told apart again.
    """
    for i in range(bits.size):
        value = bits[i]
        packed[value >> np.uint32(13)] += np.uint64(_ONE) + np.uint64(value)


@njit(nogil=True, cache=True, boundscheck=False)
def used_octaves(packed: Any) -> Any:
    """Return the octaves (sign and exponent, 0 to 511) that hold a value, int64, ascending."""
    used = np.zeros(512, np.bool_)
    for octave in range(512):
        for i in range(octave * 1024, (octave + 1) * 1024):
            if packed[i] != 0:
                used[octave] = True
                break
    return np.flatnonzero(used).astype(np.int64)


@njit(nogil=True, cache=True, boundscheck=False)
def unpack(packed: Any, octaves: Any, row_of: Any, counts: Any, residuals: Any) -> Any:
    """Move the packed counters of some octaves to their rows of counts and residuals (int64[rows, 1024]), leaving zeros.

    Returns:
        The number of values moved, and the largest bin without sign that held one (-1 if none).
    """
    moved, largest = np.int64(0), -1
    for octave in octaves:
        row = row_of[octave]
        for j in range(1024):
            index = octave * 1024 + j
            value = packed[index]
            if value != 0:
                first = np.int64(index) << 13
                high = np.int64(value >> np.uint64(40))  # the count, and what the sum of patterns carried into it
                count = high - ((high * first) >> 40)
                count = high - ((count * first) >> 40)
                residual = np.int64(value - np.uint64(count) * (np.uint64(_ONE) + np.uint64(first)))
                while residual < 0:
                    count, residual = count - 1, residual + _ONE + first
                while residual > count * 8191:
                    count, residual = count + 1, residual - _ONE - first
                counts[row, j] += count
                residuals[row, j] += residual
                packed[index] = 0
                moved += count
                largest = max(largest, (octave & 255) * 1024 + j)
    return moved, largest


@njit(nogil=True, cache=True, boundscheck=False)
def count_linear(values: Any, amax: Any, counts: Any) -> Any:
    """Count |values| (float32) in equal bins over [0, amax]; return how many were above amax or NaN (not counted).

    `counts` (int64) has one more place than there are bins: amax itself falls there.
    """
    outside = 0
    factor = np.float64(counts.size - 1) / np.float64(amax) if amax > 0 else 0.0
    for i in range(values.size):
        value = abs(values[i])
        if value <= amax:
            counts[np.uint64(np.float64(value) * factor)] += 1
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
