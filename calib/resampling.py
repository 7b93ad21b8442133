"""The compiled loops of resampling: how often each unit is drawn, and what a set's value is under such weights.

A unit is what is drawn whole: a sample, or a group of samples. Draw number r depends on the seed and r alone, so that two
models are compared on the same draws, and neither the number of threads nor the order of the work changes a result.

The generator is SplitMix64: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:

    def njit(**_: Any) -> Callable[[Any], Any]:  # numba has no types
        """Compile a function."""
        ...

else:
    from numba import njit

ONCE, BOOTSTRAP, LEAVE_OUT, SWAP = range(4)
"""How weights are made: each unit once; drawn with replacement; all but one block of units; one of two copies of each."""

_PIECES = 8  # of the draws, a worker each
_WEIGHTS = 1 << 18  # at a time and worker: 1 MiB, whatever the number of units
_GOLDEN = 0x9E3779B97F4A7C15


@njit(nogil=True, cache=True, boundscheck=False)
def _mixed(z: Any) -> Any:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(nogil=True, cache=True, boundscheck=False)
def weigh(mode: Any, seed: Any, start: Any, blocks: Any, weights: Any) -> None:
    """Set the units' weights, int32 (draws, units), for the draws from number `start` on.

    LEAVE_OUT leaves out the units whose block, of `blocks`, is the draw's number. SWAP reads the units as two halves, the
    first and the second copy of each.
    """
    for row in range(weights.shape[0]):
        draw = start + row
        if mode == ONCE:
            weights[row, :] = 1
        elif mode == LEAVE_OUT:
            for unit in range(weights.shape[1]):
                weights[row, unit] = blocks[unit] != draw
        else:
            state = _mixed(np.uint64(seed) ^ _mixed(np.uint64(draw) + np.uint64(1)))
            if mode == SWAP:
                _swap(state, weights[row])
            else:
                _draw(state, weights[row])


@njit(nogil=True, cache=True, boundscheck=False)
def _swap(state: Any, weights: Any) -> None:
    half = weights.size // 2
    for unit in range(half):
        state += np.uint64(_GOLDEN)
        second = np.int32(_mixed(state) >> np.uint64(63))
        weights[unit] = 1 - second
        weights[half + unit] = second


@njit(nogil=True, cache=True, boundscheck=False)
def _draw(state: Any, weights: Any) -> None:
    units = np.uint64(weights.size)
    low = np.uint64(0xFFFFFFFF)
    weights[:] = 0
    for _ in range(weights.size // 2):  # 64 bits are two draws
        state += np.uint64(_GOLDEN)
        bits = _mixed(state)
        weights[((bits >> np.uint64(32)) * units) >> np.uint64(32)] += 1
        weights[((bits & low) * units) >> np.uint64(32)] += 1
    if weights.size % 2:
        state += np.uint64(_GOLDEN)
        weights[((_mixed(state) >> np.uint64(32)) * units) >> np.uint64(32)] += 1


@njit(nogil=True, cache=True, boundscheck=False)
def sums(weights: Any, unit: Any, cells: Any, numbers: Any, out: Any) -> None:
    """Set `out`, float64 (draws, cells): entry j of item i adds numbers[i, j] to cell cells[i, j], if unit[i] is drawn."""
    out[:] = 0.0
    for row in range(weights.shape[0]):
        of, total = weights[row], out[row]
        for i in range(unit.size):
            weight = of[unit[i]]
            for j in range(cells.shape[1]):
                total[cells[i, j]] += weight * numbers[i, j]


@njit(nogil=True, cache=True, boundscheck=False)
def auroc(weights: Any, unit: Any, first: Any, positive: Any, out: Any) -> None:
    """Set `out`, float64 (draws,), to areas under the ROC curve of items by descending score; `first` begins ties."""
    for row in range(weights.shape[0]):
        of = weights[row]
        above = negatives = tied_positive = tied_negative = 0
        area = 0.0
        for i in range(unit.size):
            if first[i]:
                area += tied_negative * (above + 0.5 * tied_positive)
                above += tied_positive
                negatives += tied_negative
                tied_positive = tied_negative = 0
            weight = of[unit[i]]
            tied_positive += weight * positive[i]
            tied_negative += weight * (1 - positive[i])
        area += tied_negative * (above + 0.5 * tied_positive)
        pairs = (above + tied_positive) * (negatives + tied_negative)
        out[row] = area / pairs if pairs else np.nan


@njit(nogil=True, cache=True, boundscheck=False)
def average_precision(weights: Any, unit: Any, last: Any, found: Any, objects: Any, recalls: Any, out: Any) -> None:
    """Set `out`, float64 (draws,), to the precision of boxes by descending score, averaged over recalls.

    `last` ends a run of ties, which have one precision, so that their order decides nothing. `found` is 1 where the box of
    unit[i] found an object, and `objects`, (units,), counts a unit's objects.
    """
    recall, precision = np.empty(unit.size), np.empty(unit.size)
    for row in range(weights.shape[0]):
        of = weights[row]
        total = 0
        for i in range(objects.size):
            total += of[i] * objects[i]
        if not total:
            out[row] = np.nan
            continue
        right = seen = 0
        for i in range(unit.size):
            right += of[unit[i]] * found[i]
            seen += of[unit[i]]
            recall[i] = right / total
            precision[i] = right / seen if last[i] and seen else 0.0
        best = 0.0
        for i in range(unit.size - 1, -1, -1):  # the best precision at this recall or a higher one
            best = max(best, precision[i])
            precision[i] = best
        area, i = 0.0, 0
        for point in recalls:
            while i < unit.size and recall[i] < point:
                i += 1
            if i < unit.size:
                area += precision[i]
        out[row] = area / recalls.size


def over_draws(
    work: Callable[[slice, Any], None], units: int, draws: int, weigh_rows: Callable[[int, Any], None]
) -> None:
    """Call `work(draws, weights)` on pieces of the draws, a thread a core; weights are int32 (draws, units).

    Args:
        work: may be called from several threads at once.
        units: number of units.
        draws: number of draws.
        weigh_rows: sets the weights of some draws, given the first one's number.
    """
    rows = max(1, _WEIGHTS // max(1, units))
    edges = [draws * i // _PIECES for i in range(_PIECES + 1)]

    def piece(start: int, stop: int) -> None:
        weights = np.empty((min(rows, max(stop - start, 1)), units), np.int32)
        for begin in range(start, stop, rows):
            end = min(begin + rows, stop)
            weigh_rows(begin, weights[: end - begin])
            work(slice(begin, end), weights[: end - begin])

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(piece, edges[:-1], edges[1:]))
