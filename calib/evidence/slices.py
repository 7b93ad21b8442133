"""On whom a model is worse: subsets of the samples, each compared with the baseline, corrected for being looked at together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from calib.aggregates import Terms
from calib.evidence.difference import difference
from calib.evidence.result import Difference, SliceEvidence
from calib.evidence.tests import holm, no_drop

SMALLEST = 30
"""Samples that a slice needs for a verdict."""

VALUES = 50
"""Distinct values of a column, or of the right answers, up to which each is a slice."""

_PAIRS = 200  # pairs of values that are looked at, the largest
_KINDS = ("column", "pair", "class", "region")
_NONE = "(none)"

Verdict = Literal["worse", "slightly worse", "within", "open", "too few"]


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """A subset of the samples.

    Attributes:
        kind: what it was made of.
        name: for people, "device = fax".
        where: bool (n,), its samples.
    """

    kind: Literal["column", "pair", "class", "region"]
    name: str
    where: npt.NDArray[np.bool_]


def by_columns(
    columns: Mapping[str, Sequence[str]], *, pairs: bool, smallest: int = SMALLEST
) -> tuple[list[Slice], list[str]]:
    """Return a slice for each value of each column and for pairs of values, and notes on what was left out.

    An empty value is one too, "device = (none)": samples of an unknown device are a group like others. Left out are a value
    that every sample has; a column of more than 50 values; a pair of fewer than `smallest` samples, or of the same samples
    as another slice; and all but the 200 largest pairs. None of it depends on how the models did.

    Args:
        columns: by name, n values each.
        pairs: whether values of two columns are combined.
        smallest: samples that a pair must have; single values may have fewer.
    """
    notes: list[str] = []
    sliced: dict[str, tuple[npt.NDArray[np.str_], npt.NDArray[np.intp]]] = {}
    for name, column in columns.items():
        values, codes = np.unique(np.asarray(column, np.str_), return_inverse=True)
        if len(values) > VALUES:
            notes.append(
                f"column '{name}' has {len(values)} different values, more than {VALUES}, and is not sliced by value"
            )
        else:
            sliced[name] = values, codes
    found = [
        Slice("column", f"{name} = {value or _NONE}", codes == code)
        for name, (values, codes) in sliced.items()
        if len(values) > 1
        for code, value in enumerate(values.tolist())
    ]
    if pairs:
        combined, left = _pairs(sliced, {_key(one.where) for one in found}, smallest)
        found += combined
        if left:
            notes.append(f"{left} pairs of values are not looked at, only the {_PAIRS} with the most samples")
    return found, notes


def _pairs(
    sliced: Mapping[str, tuple[npt.NDArray[np.str_], npt.NDArray[np.intp]]], seen: set[bytes], smallest: int
) -> tuple[list[Slice], int]:
    """Return the largest pairs, column by column, and how many more there are; `seen` are masks that are slices already."""
    sizes: list[tuple[int, str, str, int, int]] = []
    for one, two in combinations(sliced, 2):
        width = len(sliced[two][0])
        counts = np.bincount(sliced[one][1] * width + sliced[two][1])
        sizes += [
            (-int(counts[k]), one, two, int(k) // width, int(k) % width) for k in np.flatnonzero(counts >= smallest)
        ]
    found: list[Slice] = []
    for number, (_, one, two, first, second) in enumerate(sorted(sizes, key=lambda size: size[0])):
        if len(found) == _PAIRS:
            return found, len(sizes) - number
        where = (sliced[one][1] == first) & (sliced[two][1] == second)
        if not where.all() and _key(where) not in seen:
            seen.add(_key(where))
            values = sliced[one][0][first] or _NONE, sliced[two][0][second] or _NONE
            found.append(Slice("pair", f"{one} = {values[0]}, {two} = {values[1]}", where))
    return found, 0


def _key(where: npt.NDArray[np.bool_]) -> bytes:
    return np.packbits(where).tobytes()


def by_class(targets: Sequence[str]) -> list[Slice]:
    """Return a slice for each right answer, where they are classes: 2 to 50 different ones, each of 2 samples on average."""
    values, codes = np.unique(np.asarray(targets, np.str_), return_inverse=True)
    if not (2 <= len(values) <= VALUES and 2 * len(values) <= len(targets)):
        return []
    return [Slice("class", f"class = {value or _NONE}", codes == code) for code, value in enumerate(values.tolist())]


def examine(  # noqa: PLR0913  one question, in words
    slices: Sequence[Slice],
    aggregate: str,
    baseline: Sequence[Terms],
    other: Sequence[Terms],
    groups: Sequence[str] | None,
    *,
    higher_is_better: bool,
    margin: float,
    level: float,
    smallest: int = SMALLEST,
) -> tuple[tuple[SliceEvidence, ...], int]:
    """Compare the models on each slice; return the evidence and how many slices were tested together.

    A slice has too few samples for a verdict when there are fewer than `smallest`, or of so few groups that no test could
    find it worse: at a level of 95 % fewer than 5, because 2^-4 is more than 5 %. One patient says nothing about patients.

    Of the others those are tested that could be found worse beside the others: with k groups that changed the smallest
    possible p-value is 2^-k, whichever model won in them (R. Tarone, "A modified Bonferroni method for discrete data",
    Biometrics 46, 1990). The chance that any slice is called worse stays at 1 - level at most (Holm), if in truth each change
    could as well have gone the other way; many small losses made up for by a few large gains can be missing the gains in a
    small slice, which is then called worse more often. "worse" and "slightly worse" are told apart by the drop in this
    sample. A slice that has no value (one class only for AUROC) or no interval is "open", and its difference says why.

    Args:
        slices: of the n samples; empty ones are left out.
        aggregate: how a set's value is made of the terms (`calib.aggregates`).
        baseline: n terms.
        other: n terms, of the same samples.
        groups: n labels of what belongs together; each sample is its own group by default.
        higher_is_better: direction of the score.
        margin: how much worse the model may be, in the score's unit.
        level: of the intervals, which are those of single slices, and of the tests together.
        smallest: number of samples.

    Returns:
        The evidence by kind (column, pair, class, region), within it the largest drop first and those without a value last.
    """
    alpha = 1 - level
    sign = -1 if higher_is_better else 1
    kept = [one for one in slices if one.where.any()]
    parts = [_part(one.where, baseline, other, groups) for one in kept]
    found = [difference(aggregate, *part, level) for part in parts]
    enough = np.array([d.samples >= smallest and 2.0**-d.groups <= alpha for d in found], np.bool_)
    changed = np.array([d.changed if np.isfinite(d.delta) else 0 for d in found])
    tested = np.flatnonzero(enough & _testable(np.where(enough, changed, 0), alpha))
    p_values = [no_drop(aggregate, *parts[i], higher_is_better=higher_is_better) for i in tested]
    results: dict[int, tuple[float, float]] = dict(
        zip(tested.tolist(), zip(p_values, holm(p_values), strict=True), strict=True)
    )
    evidence = []
    for i, (one, found_here) in enumerate(zip(kept, found, strict=True)):
        p_value, adjusted = results.get(i, (None, None))
        verdict: Verdict = "too few"
        if enough[i]:
            is_worse = adjusted is not None and adjusted <= alpha and sign * found_here.delta > 0
            verdict = _verdict(found_here, sign, margin, is_worse=is_worse)
        evidence.append(SliceEvidence(one.kind, one.name, found_here, p_value, adjusted, verdict))
    evidence.sort(key=lambda e: (_KINDS.index(e.kind), -np.nan_to_num(sign * e.difference.delta, nan=-np.inf)))
    return tuple(evidence), len(tested)


def _part(
    where: npt.NDArray[np.bool_], baseline: Sequence[Terms], other: Sequence[Terms], groups: Sequence[str] | None
) -> tuple[list[Terms], list[Terms], list[str] | None]:
    chosen = np.flatnonzero(where).tolist()
    labels = None if groups is None else [groups[i] for i in chosen]
    return [baseline[i] for i in chosen], [other[i] for i in chosen], labels


def _testable(changed: npt.NDArray[np.int64], alpha: float) -> npt.NDArray[np.bool_]:
    """Return which tests are worth their share of alpha: the fewest k of which k at most can reach alpha / k."""
    least = 2.0 ** -changed.astype(np.float64)
    for share in range(1, len(changed) + 1):
        chosen = least <= alpha / share
        if chosen.sum() <= share:
            return np.asarray(chosen)
    return np.zeros(len(changed), np.bool_)


def _verdict(found: Difference, sign: int, margin: float, *, is_worse: bool) -> Verdict:
    if is_worse:
        return "worse" if sign * found.delta > margin else "slightly worse"
    if found.interval is None:
        return "open"
    most = max(sign * found.interval.low, sign * found.interval.high)
    return "within" if most <= margin else "open"
