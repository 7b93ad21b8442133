"""Aggregates: from the terms of single samples to a set's value, also under weights and for thousands of resamples.

A score gives each sample some numbers, its terms; what they mean, and what a set's value is, its aggregate says:

    name       terms of a sample                        value of a set
    ratio      part, whole                              sum of parts / sum of wholes: accuracy (1 of 1), CER (edits of
                                                        characters), Dice, MAE (error of 1)
    root       square, whole                            root of the ratio: RMSE
    macro-f1   right class, predicted class             mean over classes of 2 TP / (2 TP + FP + FN); a class that is
                                                        neither right nor predicted anywhere is not counted
    ece        confidence in 0..1, 1 or 0 for right     sum over 15 equal bins of |sum of confidence - sum of right| / n:
                                                        C. Guo and others, "On Calibration of Modern Neural Networks", 2017
    auroc      right class, score of each class         mean over classes of the area under the ROC curve of this class
               (0 or 1 and one score for two classes)   against the rest (Mann-Whitney U, ties count a half)
    ap         (class, score, kind) of each box, flat:  mean over classes of the average precision at 101 recalls, as COCO
               kind 1 found an object, 0 found none,    has it (T.-Y. Lin and others, 2014; precision is the best at this
               -1 is an object itself (score unused)    recall or beyond); boxes of one score count together
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import sparse

from calib import resampling

Terms = Sequence[float]
Floats = npt.NDArray[np.float64]

_BINS = 15
_RECALLS = np.linspace(0, 1, 101)
_WANTED = {
    "ratio": "two finite numbers, part and whole, the whole 0 or more",
    "root": "two finite numbers, square and whole, both 0 or more",
    "macro-f1": "two class numbers, right and predicted, integers from 0",
    "ece": "a confidence in 0..1, and 1 for right or 0 for wrong",
    "auroc": "the right class's number and a finite score of each class (for two classes 0 or 1 and one score)",
    "ap": "class, score and kind of each box, flat, the kind 1 (found), 0 (found nothing) or -1 (an object)",
}
NAMES = tuple(_WANTED)
_UNDEFINED = {
    "ratio": "there is nothing to divide by: every whole is 0, as with empty right answers",
    "root": "there is nothing to divide by: every whole is 0",
    "macro-f1": "there are no samples",
    "ece": "there are no samples",
    "auroc": "only one class is among the right answers",
    "ap": "there is no object to find",
}


def wanted(name: str) -> str:
    """Return what a sample's terms must be, in words."""
    return _WANTED[name]


def undefined(name: str) -> str:
    """Return why a set's value is not a number, in words."""
    return _UNDEFINED[name]


def valid(name: str, terms: Terms) -> bool:
    """Return whether one sample's terms are what the aggregate needs."""
    if not np.isfinite(terms).all():
        return False
    whole = all(float(x).is_integer() for x in terms)
    if name in ("ratio", "root"):
        return len(terms) == 2 and terms[1] >= 0 and (name == "ratio" or terms[0] >= 0)
    if name == "macro-f1":
        return len(terms) == 2 and whole and min(terms) >= 0
    if name == "ece":
        return len(terms) == 2 and 0 <= terms[0] <= 1 and terms[1] in (0, 1)
    if name == "auroc":
        classes = max(2, len(terms) - 1)
        return len(terms) >= 2 and float(terms[0]).is_integer() and 0 <= terms[0] < classes
    boxes = len(terms) // 3
    return len(terms) % 3 == 0 and all(
        terms[3 * i + 2] in (-1, 0, 1) and float(terms[3 * i]).is_integer() for i in range(boxes)
    )


def value(name: str, terms: Sequence[Terms]) -> float:
    """Return a set's value; NaN where it is not defined (`undefined` says why)."""
    return float(observed([table(name, terms)])[0]) if len(terms) else float("nan")


class Table(Protocol):
    """The terms of a set, ready to be weighed."""

    @property
    def units(self) -> int:
        """How many units there are, each of which is weighed whole."""
        ...

    def values(self, weights: npt.NDArray[np.int32]) -> Floats:
        """Return the set's value under weights (draws, units), shape (draws,); NaN where it is not defined."""
        ...


def table(name: str, terms: Sequence[Terms], unit: npt.NDArray[np.int32] | None = None) -> Table:
    """Encode the terms of n samples; `unit` is the unit of each, int32 from 0, its own by default."""
    if unit is None:
        unit = np.arange(len(terms), dtype=np.int32)
    units = int(unit.max()) + 1
    if name == "ap":
        return _boxes(terms, unit, units)
    rows = np.asarray(terms, np.float64)
    if name == "auroc":
        return _classes(rows, unit, units)
    if name == "macro-f1":
        return _confusion(rows.astype(np.int64), unit, units)
    if name == "ece":
        return _bins(rows, unit, units)
    return _ratios(rows, unit, units, _root if name == "root" else _ratio)


def observed(tables: Sequence[Table]) -> Floats:
    """Return the values of tables of the same units, each unit once, shape (tables,)."""
    return _weighed(tables, resampling.ONCE, 1, 0, _NO_BLOCKS)[:, 0]


def bootstrap(tables: Sequence[Table], draws: int, seed: int) -> Floats:
    """Return the values of bootstrap resamples of the units, (tables, draws): a draw is the same units in every table."""
    return _weighed(tables, resampling.BOOTSTRAP, draws, seed, _NO_BLOCKS)


def without(tables: Sequence[Table], blocks: npt.NDArray[np.int32]) -> Floats:
    """Return the values without each block in turn, (tables, blocks); `blocks` is each unit's block, from 0."""
    return _weighed(tables, resampling.LEAVE_OUT, int(blocks.max()) + 1, 0, blocks)


def swapped(tables: Sequence[Table], draws: int, seed: int) -> Floats:
    """Return the values, (tables, draws), of random choices between unit i and its other copy, unit i + units / 2."""
    return _weighed(tables, resampling.SWAP, draws, seed, _NO_BLOCKS)


_NO_BLOCKS = np.zeros(0, np.int32)


def _weighed(tables: Sequence[Table], mode: int, draws: int, seed: int, blocks: npt.NDArray[np.int32]) -> Floats:
    result = np.empty((len(tables), draws))

    def work(chosen: slice, weights: npt.NDArray[np.int32]) -> None:
        for row, one in enumerate(tables):
            result[row, chosen] = one.values(weights)

    resampling.over_draws(
        work, tables[0].units, draws, lambda start, weights: resampling.weigh(mode, seed, start, blocks, weights)
    )
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """A value that is a function of sums: entry j of item i adds numbers[i, j] to cell cells[i, j]."""

    units: int
    unit: npt.NDArray[np.int32]
    cells: npt.NDArray[np.int32]
    numbers: Floats
    size: int  # number of cells
    finish: Callable[[Floats], Floats]  # from sums (draws, cells) to values (draws,)

    def values(self, weights: npt.NDArray[np.int32]) -> Floats:
        sums = np.empty((len(weights), self.size))
        resampling.sums(weights, self.unit, self.cells, self.numbers, sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.finish(sums)


def _ratios(rows: Floats, unit: npt.NDArray[np.int32], units: int, finish: Callable[[Floats], Floats]) -> Table:
    sums = np.stack([np.bincount(unit, rows[:, column], units) for column in (0, 1)], axis=1).astype(np.float64)
    cells = np.tile(np.array([0, 1], np.int32), (units, 1))
    return _Sums(units, np.arange(units, dtype=np.int32), cells, sums, 2, finish)


def _ratio(sums: Floats) -> Floats:
    return np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], np.nan)


def _root(sums: Floats) -> Floats:
    return np.sqrt(_ratio(sums))


def _bins(rows: Floats, unit: npt.NDArray[np.int32], units: int) -> Table:
    place = np.minimum((rows[:, 0] * _BINS).astype(np.int32), _BINS - 1)
    cells = np.stack([place, np.full_like(place, _BINS)], axis=1)
    numbers = np.stack([rows[:, 0] - rows[:, 1], np.ones(len(rows))], axis=1)
    return _Sums(units, unit, cells, numbers, _BINS + 1, _ece)


def _ece(sums: Floats) -> Floats:
    return np.asarray(np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1])


def _confusion(rows: npt.NDArray[np.int64], unit: npt.NDArray[np.int32], units: int) -> Table:
    """Count pairs of a right and a predicted class: one entry a sample."""
    labels, index = np.unique(rows, return_inverse=True)
    true, predicted = index.reshape(-1, 2).T
    pairs, place = np.unique(true * len(labels) + predicted, return_inverse=True)
    of_true, of_predicted = np.divmod(pairs, len(labels))
    shape, every = (len(pairs), len(labels)), np.arange(len(pairs))
    right = sparse.csr_array((np.where(of_true == of_predicted, 1.0, 0.0), (every, of_true)), shape)
    either = sparse.csr_array((np.ones(2 * len(pairs)), (np.tile(every, 2), np.r_[of_true, of_predicted])), shape)

    def macro_f1(sums: Floats) -> Floats:
        twice, total = 2 * (sums @ right), sums @ either
        score = np.where(total > 0, twice / total, 0)
        return np.asarray(score.sum(axis=1) / (total > 0).sum(axis=1))

    cells = place.astype(np.int32).reshape(-1, 1)
    return _Sums(units, unit, cells, np.ones(cells.shape), len(pairs), macro_f1)


@dataclass(frozen=True, slots=True, eq=False)
class _Mean:
    """The mean of what is defined of several tables' values, one a class."""

    units: int
    parts: tuple[Table, ...]

    def values(self, weights: npt.NDArray[np.int32]) -> Floats:
        total, count = np.zeros(len(weights)), np.zeros(len(weights))
        for part in self.parts:
            found = part.values(weights)
            defined = ~np.isnan(found)
            total[defined] += found[defined]
            count += defined
        with np.errstate(invalid="ignore"):
            return np.asarray(total / count)


@dataclass(frozen=True, slots=True, eq=False)
class _Ranks:
    """Samples by descending score of a class; `first` begins a run of ties."""

    units: int
    unit: npt.NDArray[np.int32]
    first: npt.NDArray[np.bool_]
    positive: npt.NDArray[np.int32]

    def values(self, weights: npt.NDArray[np.int32]) -> Floats:
        result = np.empty(len(weights))
        resampling.auroc(weights, self.unit, self.first, self.positive, result)
        return result


def _classes(rows: Floats, unit: npt.NDArray[np.int32], units: int) -> Table:
    parts = []
    for column in range(1, rows.shape[1]):
        positive = (rows[:, 0] == (column - 1 if rows.shape[1] > 2 else 1)).astype(np.int32)
        order = np.argsort(-rows[:, column], kind="stable")
        scores = rows[order, column]
        first = np.r_[True, scores[1:] != scores[:-1]]
        parts.append(_Ranks(units, unit[order], first, positive[order]))
    return _Mean(units, tuple(parts))


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """Boxes of a class by descending score, `last` ends a run of ties, and how many objects of it each unit holds."""

    units: int
    unit: npt.NDArray[np.int32]
    last: npt.NDArray[np.bool_]
    found: npt.NDArray[np.int32]
    objects: npt.NDArray[np.int64]

    def values(self, weights: npt.NDArray[np.int32]) -> Floats:
        result = np.empty(len(weights))
        resampling.average_precision(weights, self.unit, self.last, self.found, self.objects, _RECALLS, result)
        return result


def _boxes(terms: Sequence[Terms], unit: npt.NDArray[np.int32], units: int) -> Table:
    boxes = np.asarray([x for row in terms for x in row], np.float64).reshape(-1, 3)
    owner = np.repeat(unit, [len(row) // 3 for row in terms]).astype(np.int32)
    parts = []
    for label in np.unique(boxes[boxes[:, 2] == -1, 0]):  # as COCO: a class without an object does not count
        mine = boxes[:, 0] == label
        objects, found = mine & (boxes[:, 2] == -1), mine & (boxes[:, 2] != -1)
        order = np.argsort(-boxes[found, 1], kind="stable")
        scores = boxes[found, 1][order]
        last = np.r_[scores[1:] != scores[:-1], True] if len(scores) else np.zeros(0, np.bool_)
        counts = np.bincount(owner[objects], minlength=units)
        parts.append(_Found(units, owner[found][order], last, boxes[found, 2][order].astype(np.int32), counts))
    return _Mean(units, tuple(parts))  # without parts nothing is defined
