"""Histograms of |x| that merge exactly, and therefore depend on neither the order nor the batching of the data.

`Histogram` needs no range: the bin of x is the top 18 bits of its float32 pattern without the sign (8 exponent bits and
10 mantissa bits), which gives 1,024 bins an octave. Beside its count each bin keeps the integer sum of the 13 mantissa
bits that the bin drops, so that the exact mean of its values is known: real tensors have point masses (a constant
background, a clipped activation, an 8-bit input), whose error at a given scale a bin's centre would get wrong.

`LinearHistogram` is TensorRT's: 2,048 equal bins over [0, amax]. It needs amax first, hence a second pass.

All counts are integers, so `merge` is associative, commutative and exact.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import kernels
from calib.errors import DataError
from calib.ranges import Range

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

_OCTAVES = 256
_BINS_AN_OCTAVE = 1024
_DROPPED_BITS = 13
_OCTAVES_AT_ONCE = 5
_COARSE = 8
_FIRST_NONFINITE = 0x7F800000
LINEAR_BINS = 2048

_local = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """The distribution of |x| over a tensor's values, sparse.

    Attributes:
        amax: largest |x|, exact, as a float32 value.
        bins: shape (b,), int64, ascending numbers of the non-empty bins.
        counts: shape (b,), int64, values in each of them.
        residuals: shape (b,), int64, sum of the dropped mantissa bits of the values in each.
    """

    amax: float
    bins: Int64
    counts: Int64
    residuals: Int64

    @classmethod
    def empty(cls) -> Histogram:
        """Return the neutral element of `merge`."""
        none = np.zeros(0, np.int64)
        return cls(0.0, none, none, none)

    @classmethod
    def of(cls, values: npt.NDArray[np.generic]) -> Histogram:
        """Return the histogram of an array of any shape.

        Raises:
            DataError: the array holds NaN or Inf.
        """
        counter = Counter()
        counter.add(values)
        return counter.histogram()

    @property
    def total(self) -> int:
        """Number of values counted."""
        return int(self.counts.sum())

    def means(self) -> Float64:
        """Exact mean of the values in each non-empty bin, shape (b,), float64."""
        low = _lower_edge(self.bins)
        width = _lower_edge(self.bins + 1) - low
        return low + width * (self.residuals / (self.counts * float(1 << _DROPPED_BITS)))

    def upper_edges(self) -> Float64:
        """Upper edge of each non-empty bin, no more than amax; shape (b,), float64."""
        return np.minimum(_lower_edge(self.bins + 1), self.amax)

    def coarse(self) -> Histogram:
        """Return the same distribution in an eighth of the bins, 128 an octave; amax, counts and sums stay exact.

        What eight neighbours hold goes to the one of them in which their common mean lies.
        """
        if not self.bins.size:
            return self
        groups = self.bins // _COARSE
        starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        offsets = ((self.bins - groups * _COARSE) << _DROPPED_BITS) * self.counts + self.residuals
        counts, offsets = np.add.reduceat(self.counts, starts), np.add.reduceat(offsets, starts)
        within = (offsets // counts) >> _DROPPED_BITS
        residuals = offsets - (within << _DROPPED_BITS) * counts
        return Histogram(self.amax, groups[starts] * _COARSE + within, counts, residuals)

    def range(self) -> Range:
        """Return the range; the smallest value to the resolution of a bin, and none below 1e-40."""
        used = self.bins[self.bins > 0]
        return Range(self.amax, float(_lower_edge(used[:1])[0]) if used.size else float("inf"))

    def clipped_share(self, amax: float) -> float:
        """Share of the values whose |x| is above `amax` (0 to 1), to the resolution of a bin."""
        return float(self.counts[self.means() > amax].sum() / self.total) if self.total else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class LinearHistogram:
    """Counts of |x| in `LINEAR_BINS` equal bins over [0, amax]; counts has shape (2048,), int64."""

    amax: float
    counts: Int64


def merge(parts: Iterable[Histogram]) -> Histogram:
    """Return the histogram of all the parts' data together; exact, in any order and grouping."""
    known = [part for part in parts if part.bins.size]
    if not known:
        return Histogram.empty()
    first, last = min(int(part.bins[0]) for part in known), max(int(part.bins[-1]) for part in known)
    counts, residuals = np.zeros(last - first + 1, np.int64), np.zeros(last - first + 1, np.int64)
    for part in known:
        counts[part.bins - first] += part.counts
        residuals[part.bins - first] += part.residuals
    used = np.flatnonzero(counts)
    return Histogram(max(part.amax for part in known), used + first, counts[used], residuals[used])


class Counter:
    """Counts one tensor's values, array by array, from any number of threads: the mutable thing behind `Histogram`.

    Memory is 16 KiB for each octave in which a value occurs, however much is counted.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._octaves = np.zeros(0, np.int64)
        self._counts = _sparse_zeros(np.int64)
        self._sums = _sparse_zeros(np.uint64)
        self._largest = 0  # float32 pattern

    def add(self, values: npt.NDArray[np.generic]) -> None:
        """Count an array of any shape and any float dtype; float64 is rounded to float32.

        Raises:
            DataError: the array holds NaN or Inf; the counter is of no use afterwards.
        """
        bits = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32)
        packed = _scratch()
        for start in range(0, bits.size, kernels.PACKED_LIMIT):
            chunk = bits[start : start + kernels.PACKED_LIMIT]
            kernels.count_packed(chunk, packed)
            with self._lock:
                largest = self._unpack(packed, chunk.size)
                if largest >= self._largest >> _DROPPED_BITS:  # else no value is larger than those seen before
                    self._largest = max(self._largest, int(kernels.largest_pattern(chunk)))
        if self._largest >= _FIRST_NONFINITE:
            raise DataError("a value is NaN or Inf")

    def histogram(self) -> Histogram:
        """Return what was counted so far."""
        with self._lock:
            octaves = np.sort(self._octaves)
            counts, sums = self._counts[octaves], self._sums[octaves]
        bins = octaves[:, None] * _BINS_AN_OCTAVE + np.arange(_BINS_AN_OCTAVE)
        used = counts > 0
        bins, counts, sums = bins[used], counts[used], sums[used]
        amax = float(np.uint32(self._largest).view(np.float32))
        return Histogram(amax, bins, counts, kernels.residuals(bins, counts, sums))

    def cut(self) -> Histogram:
        """Return what was counted since the last cut, and start again from nothing."""
        result = self.histogram()
        with self._lock:
            self._counts[self._octaves] = 0
            self._sums[self._octaves] = 0
            self._largest = 0  # the octaves stay: finding them again would be slow
        return result

    def _unpack(self, packed: npt.NDArray[np.uint64], size: int) -> int:
        """Take the thread's counts; octaves seen before come first, and are nearly always all."""
        moved, largest = kernels.unpack(packed, self._octaves, self._counts, self._sums)
        if moved < size:
            # Looking for new octaves is slow, and the next ones are of smaller values.
            below = kernels.used_octaves(packed)[:, None] - np.arange(_OCTAVES_AT_ONCE)
            new = np.setdiff1d(np.maximum(below, 0), self._octaves)
            self._octaves = np.concatenate([self._octaves, new])
            _, among_new = kernels.unpack(packed, new, self._counts, self._sums)
            largest = max(largest, among_new)
        return int(largest)


class LinearCounter:
    """Counts one tensor's values into a `LinearHistogram` over [0, amax], from any number of threads."""

    def __init__(self, amax: float) -> None:
        """Start empty; `amax` must be the largest |x| of all the data, as `Histogram.amax` gives it."""
        self.amax = amax
        self._lock = threading.Lock()
        self._counts = np.zeros(LINEAR_BINS + 1, np.int64)

    def add(self, values: npt.NDArray[np.generic]) -> None:
        """Count an array of any shape and any float dtype.

        Raises:
            DataError: a value lies outside [-amax, amax], so this is not the data that gave amax.
        """
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        counts = np.zeros_like(self._counts)
        outside = kernels.count_linear(flat, np.float32(self.amax), counts)
        if outside:
            raise DataError(f"{outside} values are outside [-{self.amax:g}, {self.amax:g}] that the first pass saw")
        with self._lock:
            self._counts += counts

    def histogram(self) -> LinearHistogram:
        """Return what was counted so far."""
        counts = self._counts[:-1].copy()
        counts[-1] += self._counts[-1]
        return LinearHistogram(self.amax, counts)


def nonfinite_rows(values: npt.NDArray[np.generic]) -> Int64:
    """Indices along the first axis of the samples that hold NaN or Inf; a scalar counts as one sample."""
    rows = values.reshape(values.shape[0], -1) if values.ndim else values.reshape(1, 1)
    return np.flatnonzero(~np.isfinite(rows).all(axis=1))


def _sparse_zeros(kind: type[np.generic]) -> npt.NDArray[Any]:
    """Zeros, [octaves, 1024], of which only the octaves that are written take memory; a heap would keep it when freed."""
    room = mmap.mmap(-1, _OCTAVES * _BINS_AN_OCTAVE * 8)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            room.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(room, kind).reshape(_OCTAVES, _BINS_AN_OCTAVE)


def _scratch() -> npt.NDArray[np.uint64]:
    """The calling thread's packed counters, all zero between uses."""
    if not hasattr(_local, "packed"):
        _local.packed = np.zeros(2 * _OCTAVES * _BINS_AN_OCTAVE, np.uint64)
    return np.asarray(_local.packed)


def _lower_edge(bins: Int64) -> Float64:
    # Bin 0x7f800000 >> 13 would start at Inf; the last finite bin ends at 2**128, which float64 can say.
    edges = (bins.astype(np.uint32) << np.uint32(_DROPPED_BITS)).view(np.float32).astype(np.float64)
    return np.where(np.isfinite(edges), edges, 2.0**128)
