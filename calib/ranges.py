"""Ranges: how large and how small a tensor's values get, which decides whether FP16 can hold it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib import kernels

_INFINITE = 0x7F800000


@dataclass(frozen=True, slots=True)
class Range:
    """Of the |x| of a tensor's values, float32.

    Attributes:
        amax: the largest; infinite where a value was infinite.
        smallest: the smallest that is not zero; infinite where there is none, 0 where it was not looked for.
    """

    amax: float
    smallest: float

    @classmethod
    def of(cls, values: npt.NDArray[np.generic]) -> Range:
        """Return the range of an array of any shape; float64 is rounded to float32."""
        counter = RangeCounter()
        counter.add(values)
        return counter.range()

    @classmethod
    def join(cls, parts: Iterable[Range]) -> Range:
        """Return the range of all the parts' values together."""
        known = list(parts)
        return cls(max((p.amax for p in known), default=0.0), min((p.smallest for p in known), default=float("inf")))


class RangeCounter:
    """Follows one tensor's range, array by array, from any number of threads: the mutable thing behind `Range`."""

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._largest, self._smallest = 0, _INFINITE  # float32 patterns

    def add(self, values: npt.NDArray[np.generic]) -> None:
        """Take in an array of any shape and any float dtype; NaN and Inf are taken as Inf."""
        bits = np.ascontiguousarray(values, np.float32).reshape(-1).view(np.uint32)
        largest, smallest = kernels.range_patterns(bits)
        with self._lock:
            self._largest, self._smallest = max(self._largest, int(largest)), min(self._smallest, int(smallest))

    def add_extremes(self, least: float, largest: float) -> None:
        """Take in an array by its least and largest value, (inf, -inf) for an empty one; `smallest` becomes 0."""
        pattern = int(np.float32(max(-least, largest, 0.0)).view(np.uint32))
        with self._lock:
            self._largest, self._smallest = max(self._largest, pattern), 0

    def range(self) -> Range:
        """Return what was seen so far."""
        return Range(_value(self._largest), _value(self._smallest))


def _value(pattern: int) -> float:
    return float(np.uint32(min(pattern, _INFINITE)).view(np.float32))
