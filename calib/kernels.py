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
_ROUND = 1.5 * 2.0**52  # adding and subtracting it rounds a float64 to even; unlike rint, compilers vectorize it
_LANES = 64
_BLOCK = 2048


@njit(nogil=True, cache=True, boundscheck=False)
def count_packed(bits: Any, packed: Any) -> None:
    """Count float32 bit patterns (uint32) in packed counters (uint64[2**19], a bin for the upper 19 bits, sign too).

    One add a value: a counter grows by 2**40 + the pattern. A bin's patterns are its first one plus at most 2**13 - 1, so
    that up to PACKED_LIMIT values both the count and the sum of the lower 13 bits can be told apart again.

    Neighbours often fall in the same bin and would wait for each other; values of four distant places seldom do (-30 %).
    """
    quarter = bits.size // 4
    for i in range(quarter):
        _add(bits[i], packed)
        _add(bits[quarter + i], packed)
        _add(bits[2 * quarter + i], packed)
        _add(bits[3 * quarter + i], packed)
    for i in range(4 * quarter, bits.size):
        _add(bits[i], packed)


@njit(nogil=True, cache=True, boundscheck=False)
def _add(value: Any, packed: Any) -> None:
    packed[value >> np.uint32(13)] += np.uint64(_ONE) + np.uint64(value)


@njit(nogil=True, cache=True, boundscheck=False)
def used_octaves(packed: Any) -> Any:
    """Return the octaves (exponents, 0 to 255) that hold a value of either sign, int64, ascending."""
    used = np.zeros(256, np.bool_)
    for octave in range(512):
        used[octave & 255] |= _any(packed[octave * 1024 : (octave + 1) * 1024])
    return np.flatnonzero(used).astype(np.int64)


@njit(nogil=True, cache=True, boundscheck=False)
def unpack(packed: Any, octaves: Any, counts: Any, sums: Any) -> Any:
    """Move the packed counters of some octaves to counts (int64[256, 1024]) and sums (uint64[256, 1024]), leaving zeros.

    These are without sign. A sum is that of 2**40 + the pattern without its sign, modulo 2**64; see `residuals`.

    Returns:
        The number of values moved, and the largest bin without sign that held one (-1 if none).
    """
    moved, largest = np.int64(0), -1
    for octave in octaves:
        for sign in range(2):
            source = packed[(sign * 256 + octave) * 1024 : (sign * 256 + octave + 1) * 1024]
            if not _any(source):
                continue
            if octave >= largest >> 10:
                largest = max(largest, octave * 1024 + _last_used(source))
            moved += _unpack_octave(source, octave, sign, counts[octave], sums[octave])
    return moved, largest


@njit(nogil=True, cache=True, boundscheck=False)
def _any(source: Any) -> Any:
    any_of = np.uint64(0)
    for j in range(source.size):  # without a way out it is vectorized
        any_of |= source[j]
    return any_of != 0


@njit(nogil=True, cache=True, boundscheck=False)
def _last_used(source: Any) -> Any:
    last = 1023
    while source[last] == 0:
        last -= 1
    return last


@njit(nogil=True, cache=True, boundscheck=False)
def _unpack_octave(source: Any, octave: Any, sign: Any, counts: Any, sums: Any) -> Any:
    # The count is the packed counter over 2**40 + the bin's first pattern, rounded down: the lower bits add at most
    # 1/16, and taking the upper 31 bits only loses at most 1/128. The reciprocal is linear over an octave to 2**-34.
    first = np.float64(_ONE) + np.float64(sign * 256 + octave) * 2.0**23
    reciprocal = 2.0**33 / first
    slope = reciprocal * 2.0**13 / first
    sign_bits = np.uint64(0) - np.uint64(sign)  # all or none
    moved = np.int64(0)
    for j in range(1024):
        upper = np.float64(np.int32(source[j] >> np.uint64(33)))
        count = np.int32(upper * (reciprocal - slope * np.float64(np.int32(j))) + 1 / 64)
        counts[j] += count
        sums[j] += source[j] - ((np.uint64(count) << np.uint64(31)) & sign_bits)
        moved += count
    for j in range(1024):
        source[j] = 0
    return moved


def residuals(bins: Any, counts: Any, sums: Any) -> Any:
    """Return the sum of the lower 13 bits of the values in each bin (int64), from what `unpack` gathered."""
    one_each = np.uint64(_ONE) + (bins.astype(np.uint64) << np.uint64(13))
    return (sums - counts.astype(np.uint64) * one_each).astype(np.int64)  # modulo 2**64, which the result is far below


@njit(nogil=True, cache=True, boundscheck=False)
def largest_pattern(bits: Any) -> Any:
    """Return the largest float32 bit pattern (uint32) without its sign."""
    largest = np.uint32(0)
    for i in range(bits.size):
        largest = max(largest, np.uint32(bits[i] << np.uint32(1)))
    return largest >> np.uint32(1)


@njit(nogil=True, cache=True, boundscheck=False)
def range_patterns(bits: Any) -> Any:
    """Return the largest float32 bit pattern (uint32) without its sign, and the smallest that is not zero's."""
    largest, below = np.uint32(0), np.uint32(0xFFFFFFFF)
    for i in range(bits.size):
        shifted = np.uint32(bits[i] << np.uint32(1))
        largest = max(largest, shifted)
        below = min(below, np.uint32(shifted - np.uint32(1)))  # zero wraps to the largest
    return largest >> np.uint32(1), np.uint32(below + np.uint32(1)) >> np.uint32(1) if below != np.uint32(
        0xFFFFFFFF
    ) else np.uint32(0x7F800000)


@njit(nogil=True, cache=True, boundscheck=False)
def count_linear(values: Any, amax: Any, counts: Any) -> Any:
    """Count |values| (float32) in equal bins over [0, amax]; return how many were above amax or NaN (not counted).

    `counts` (int64) has one more place than there are bins: amax itself falls there. Finding bins is vectorized, and
    four tables in turn spare neighbours in the same bin waiting for each other.
    """
    nowhere = np.int32(counts.size)
    factor = np.float64(counts.size - 1) / np.float64(amax) if amax > 0 else 0.0
    tables = np.zeros((4, counts.size + 1), np.int64)
    one, two, three, four = tables[0], tables[1], tables[2], tables[3]
    bins = np.empty(_BLOCK, np.int32)
    for start in range(0, values.size, _BLOCK):
        block = values[start : start + _BLOCK]
        _linear_bins(block, amax, factor, nowhere, bins)
        fours = block.size // 4 * 4
        for i in range(0, fours, 4):
            one[np.uint32(bins[i])] += 1
            two[np.uint32(bins[i + 1])] += 1
            three[np.uint32(bins[i + 2])] += 1
            four[np.uint32(bins[i + 3])] += 1
        for i in range(fours, block.size):
            one[np.uint32(bins[i])] += 1
    for i in range(counts.size):
        counts[i] += one[i] + two[i] + three[i] + four[i]
    return one[nowhere] + two[nowhere] + three[nowhere] + four[nowhere]


@njit(nogil=True, cache=True, boundscheck=False)
def _linear_bins(values: Any, amax: Any, factor: Any, nowhere: Any, bins: Any) -> None:
    for i in range(values.size):
        value = abs(values[i])
        bins[i] = np.int32(np.float64(value) * factor) if value <= amax else nowhere


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
        low, high = np.searchsorted(means, 0.5 * amax / 127.0), np.searchsorted(means, amax)
        clipped = second[size] - second[high] - 2 * amax * (first[size] - first[high])
        ends = second[low] + max(0.0, clipped + amax * amax * (weight[size] - weight[high]))
        errors[k] = ends + _rounding_error(means[low:high], counts[low:high], amax)
    return errors


@njit(nogil=True, cache=True, boundscheck=False)
def _rounding_error(means: Any, counts: Any, amax: Any) -> Any:
    """Add in lanes: vectorized, and yet in the same order on every processor."""
    scale, inverse = amax / 127.0, 127.0 / amax
    lanes = np.zeros(_LANES)
    whole = means.size // _LANES * _LANES
    for start in range(0, whole, _LANES):
        for j in range(_LANES):
            mean = means[start + j]
            difference = mean - ((mean * inverse + _ROUND) - _ROUND) * scale
            lanes[j] += counts[start + j] * difference * difference
    error = 0.0
    for j in range(_LANES):
        error += lanes[j]
    for i in range(whole, means.size):
        difference = means[i] - ((means[i] * inverse + _ROUND) - _ROUND) * scale
        error += counts[i] * difference * difference
    return error


@njit(nogil=True, cache=True, boundscheck=False)
def entropy_threshold(counts: Any, levels: Any) -> Any:
    """Return the i in [levels, bins] that minimizes KL(P || Q), the first of equals; counts is float64[bins].

    P is counts[:i] with the rest added to its last bin; Q is counts[:i] averaged over the non-empty bins of each of
    `levels` groups, where bin j belongs to group j * levels // i. Both are normalized.

    Prefix sums give every divergence to rounding; the definition then decides among those that are as good as the least.
    """
    estimates = _estimated_divergences(counts, levels)
    enough = estimates.min() + 1e-9
    best, best_divergence = counts.size, np.inf
    for i in range(levels, counts.size + 1):
        if estimates[i] <= enough:
            divergence = _divergence(counts, levels, i)
            if divergence < best_divergence:
                best, best_divergence = i, divergence
    return best


@njit(nogil=True, cache=True, boundscheck=False)
def _estimated_divergences(counts: Any, levels: Any) -> Any:
    """Return KL(P || Q) by i, infinite where Q is 0 and P is not: sum of p log p less, by group, P's share times log Q."""
    bins, total = counts.size, counts.sum()
    inside, filled, own = np.zeros(bins + 1), np.zeros(bins + 1), np.zeros(bins + 1)
    for j in range(bins):
        inside[j + 1] = inside[j] + counts[j]
        filled[j + 1] = filled[j] + (counts[j] > 0)
        own[j + 1] = own[j] + _x_log_x(counts[j])
    result = np.full(bins + 1, np.inf)
    for i in range(levels, bins + 1):
        outliers = total - inside[i]
        if inside[i] == 0.0 or (outliers > 0 and counts[i - 1] == 0):
            continue
        cross, start = 0.0, 0
        for group in range(levels):
            stop = ((group + 1) * i + levels - 1) // levels
            if filled[stop] > filled[start]:
                group_sum = inside[stop] - inside[start]
                share = group_sum + (outliers if group == levels - 1 else 0.0)
                cross += share * np.log(group_sum / (filled[stop] - filled[start]))
            start = stop
        mine = own[i - 1] + _x_log_x(counts[i - 1] + outliers)
        result[i] = (mine - cross) / total + np.log(inside[i] / total)
    return result


@njit(nogil=True, cache=True, boundscheck=False)
def _divergence(counts: Any, levels: Any, i: Any) -> Any:
    total, inside = counts.sum(), counts[:i].sum()
    group_sum, group_size = np.zeros(levels), np.zeros(levels)
    for j in range(i):
        if counts[j] > 0:
            group_sum[j * levels // i] += counts[j]
            group_size[j * levels // i] += 1
    divergence = 0.0
    for j in range(i):
        p = counts[j] + (total - inside if j == i - 1 else 0.0)
        if p > 0:
            group = j * levels // i
            q = group_sum[group] / group_size[group] if counts[j] > 0 else 0.0
            divergence += p / total * np.log((p / total) / (q / inside)) if q > 0 else np.inf
    return divergence


@njit(nogil=True, cache=True, boundscheck=False)
def _x_log_x(x: Any) -> Any:
    return x * np.log(x) if x > 0 else 0.0
