"""Regions where a model got worse, found without metadata: by what the inputs look like.

A shallow decision tree looks for them on one half of the groups, and they are tested on the other half, which had no say in
where they lie, so that the test is honest: S. Athey, G. Imbens, "Recursive partitioning for heterogeneous causal effects",
PNAS 113, 2016. What it cannot see: what the features do not tell, what takes more than three conditions, and regions of
fewer than `smallest` samples in a half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from sklearn.tree import DecisionTreeRegressor

from calib.aggregates import Terms
from calib.evidence.difference import SEED, units
from calib.evidence.slices import SMALLEST, Slice

REGIONS = 3
"""Regions at most: each one more makes the others harder to show."""

_DEPTH = 3
_ROOM = 1.5  # times as many samples in a leaf as a region must have, lest the other half holds fewer by chance
_LARGEST = 1e30  # of a feature; the tree adds them up in float32
_CLEARLY = 2.0  # standard errors above the mean
_Floats = npt.NDArray[np.float64]
_Split = tuple[str, str, float]  # feature, "<" or ">=", value


def loss(
    aggregate: str,
    baseline: Sequence[Terms],
    other: Sequence[Terms],
    right_a: npt.NDArray[np.bool_] | None,
    right_b: npt.NDArray[np.bool_] | None,
    *,
    higher_is_better: bool,
) -> _Floats | None:
    """Return what each sample lost, float64 (n,), positive where the model got worse; None where single samples tell nothing.

    For sums (ratio, root) it is the sample's share in the difference of the sums: of the parts, less what the wholes account
    for where they differ too, as Dice's do. For other aggregates a broken sample lost 1 and a fixed one -1.

    Args:
        aggregate: how a set's value is made of the terms.
        baseline: n terms.
        other: n terms, of the same samples.
        right_a: (n,), which samples the baseline gets right; None where that is not known.
        right_b: (n,), which the model gets right.
        higher_is_better: direction of the score.
    """
    if aggregate in ("ratio", "root"):
        was, now = np.asarray(baseline, np.float64), np.asarray(other, np.float64)
        whole = was[:, 1].sum()
        rate = was[:, 0].sum() / whole if whole else 0.0
        change = now[:, 0] - was[:, 0] - rate * (now[:, 1] - was[:, 1])
        return np.asarray(-change if higher_is_better else change)
    if right_a is None or right_b is None:
        return None
    return right_a.astype(np.float64) - right_b.astype(np.float64)


def find(
    features: Mapping[str, _Floats], losses: _Floats, groups: Sequence[str] | None, *, smallest: int = SMALLEST
) -> list[Slice]:
    """Return the regions of the features where the losses gather, three at most, the clearest first.

    Their masks hold samples of one half of the groups only: those that they were not found on. A region is a leaf of the
    tree, or several under one node where they are clearer together, and lies in no other region.

    Args:
        features: by name, n values each; one that is constant or not finite somewhere is not used.
        losses: (n,), positive where the model got worse.
        groups: n labels of what belongs together; each sample is its own group by default.
        smallest: samples that a region has at least, in either half.
    """
    table = _usable(features)
    unit, count = units(groups, len(losses))
    half = (np.random.default_rng(SEED).permutation(count) < (count + 1) // 2)[unit]
    leaf = int(_ROOM * smallest)
    if not table or half.sum() < 2 * leaf or not losses[half].any():
        return []
    rows = np.stack(list(table.values()), axis=1)[half]
    tree = DecisionTreeRegressor(max_depth=_DEPTH, min_samples_leaf=leaf, random_state=SEED).fit(rows, losses[half])
    mean, deviation = losses[half].mean(), losses[half].std()
    ranked = []
    for splits in _nodes(tree, list(table), table, half):
        inside = _inside(splits, table, len(losses))
        lost = losses[half & inside]
        clearly = float((lost.mean() - mean) * np.sqrt(len(lost)))
        if lost.mean() > 0 and clearly > _CLEARLY * deviation and (inside & ~half).sum() >= smallest:
            ranked.append((clearly, splits, inside))
    found: list[Slice] = []
    taken = np.zeros(len(losses), np.bool_)
    for _, splits, inside in sorted(ranked, key=lambda region: -region[0]):
        if len(found) < REGIONS and not (taken & inside).any():
            taken |= inside
            found.append(Slice("region", _name(splits), inside & ~half))
    return found


def _usable(features: Mapping[str, _Floats]) -> dict[str, _Floats]:
    """Return the features that split anything, in float32's steps, in which the tree sees them."""
    found = {}
    for name, values in features.items():
        if np.isfinite(values).all():
            seen = np.clip(values, -_LARGEST, _LARGEST).astype(np.float32).astype(np.float64)
            if np.ptp(seen) > 0:
                found[name] = seen
    return found


def _nodes(
    tree: DecisionTreeRegressor, names: Sequence[str], table: Mapping[str, _Floats], half: npt.NDArray[np.bool_]
) -> list[list[_Split]]:
    """Return the conditions of each node but the root."""
    nodes = tree.tree_
    found: list[list[_Split]] = []

    def walk(node: int, path: list[_Split]) -> None:
        found.append(_merged(path))
        left, right = int(nodes.children_left[node]), int(nodes.children_right[node])
        if left >= 0:
            name = names[int(nodes.feature[node])]
            value = _rounded(float(nodes.threshold[node]), table[name][half])
            walk(left, [*path, (name, "<", value)])
            walk(right, [*path, (name, ">=", value)])

    walk(0, [])
    return found[1:]


def _rounded(threshold: float, values: _Floats) -> float:
    """Return the value of the fewest digits, three at least, that splits the values where the threshold does."""
    below = values <= threshold
    for digits in range(3, 17):
        rounded = float(f"{threshold:.{digits}g}")
        if np.array_equal(values < rounded, below):
            return rounded
    return float(np.min(values[~below]))


def _merged(path: Sequence[_Split]) -> list[_Split]:
    """Leave one condition a feature and direction, the tightest, in the order of their first appearance."""
    tightest: dict[tuple[str, str], float] = {}
    for name, sign, value in path:
        known = tightest.get((name, sign), value)
        tightest[name, sign] = min(known, value) if sign == "<" else max(known, value)
    return [(name, sign, value) for (name, sign), value in tightest.items()]


def _inside(splits: Sequence[_Split], table: Mapping[str, _Floats], samples: int) -> npt.NDArray[np.bool_]:
    where = np.ones(samples, np.bool_)
    for name, sign, value in splits:
        where &= table[name] < value if sign == "<" else table[name] >= value
    return where


def _name(splits: Sequence[_Split]) -> str:
    return " and ".join(f"{name} {sign} {_text(value)}" for name, sign, value in splits)


def _text(value: float) -> str:
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
