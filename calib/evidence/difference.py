"""How much a model's score differs from the baseline's on the same samples, and how sure that is.

The interval is a paired bootstrap, bias-corrected and accelerated (BCa): B. Efron, "Better bootstrap confidence intervals",
JASA 82, 1987. Groups (documents, patients) are drawn whole, because their samples are not independent. Two things are
added, without which it is too short where samples are few (reports/evidence.md has its coverage with and without them):

- The tail probabilities are those of Student's t with one degree of freedom less than there are groups, widened by
  sqrt(G / (G - 1)): T. Hesterberg, "What Teachers Should Know About the Bootstrap", American Statistician 69, 2015.
- Two more groups are drawn from: a typical one of those that changed, and the same with the two models swapped. What
  was seen of 100 samples says little about changes of which fewer than one in 100 was to be expected, and a bootstrap of the
  samples alone takes what it never saw for impossible. The idea is that of the pseudo-observations for paired proportions in
  A. Agresti, Y. Min, "Simple improved confidence intervals for comparing matched proportions", Statistics in Medicine 24, 2005.

Where no sample changed at all, 0 of G says that at most a share of 1 - (alpha / 2)^(1 / G) may change (C. Clopper, E. Pearson,
Biometrika 26, 1934: the "rule of three"), and that is the interval of a score that lies between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from calib import aggregates
from calib.aggregates import Floats, Terms
from calib.evidence.result import Difference, Interval

RESAMPLES = 10_000
SEED = 0
_BLOCKS = 1000  # of the jackknife: more units than that are left out in blocks, whose acceleration is the same
_DEFINED = 0.5  # share of resamples that must have a value


def difference(
    aggregate: str,
    baseline: Sequence[Terms],
    other: Sequence[Terms],
    groups: Sequence[str] | None = None,
    level: float = 0.95,
) -> Difference:
    """Return other's value minus baseline's with its confidence interval.

    Args:
        aggregate: how a set's value is made of the terms (`calib.aggregates`).
        baseline: n terms, one or more numbers a sample.
        other: n terms, of the same samples in the same order.
        groups: n labels of what is drawn whole; each sample is its own group by default.
        level: of confidence.
    """
    return differences(aggregate, baseline, other, groups, (level,))[0]


def differences(
    aggregate: str,
    baseline: Sequence[Terms],
    other: Sequence[Terms],
    groups: Sequence[str] | None,
    levels: Sequence[float],
) -> list[Difference]:
    """Return the difference as `difference` does, with an interval at each level, from the same resamples."""
    assert len(baseline) == len(other)
    if groups is None:  # the order of samples must not decide which of them a draw means
        pairs = sorted(zip(map(tuple, baseline), map(tuple, other), strict=True))
        baseline, other = [one for one, _ in pairs], [two for _, two in pairs]
    unit, count = units(groups, len(baseline))
    moved = changes(baseline, other)
    changed = np.unique(unit[moved])
    was, now = (aggregates.value(aggregate, terms) for terms in (baseline, other))
    found = _Resamples(0.0, count)
    why = _undefined(aggregate, was, now, count)
    if not why and not changed.size:
        why = (
            ""
            if _is_share(aggregate, baseline)
            else "no sample scores otherwise, so nothing says how large a change is"
        )
    elif not why:
        extended = _extended(baseline, other, unit, count, moved)
        found = _resamples(aggregate, *extended)
        if found.distribution is None:
            why = f"in most resamples {aggregates.undefined(aggregate)}"
    return [
        Difference(
            samples=len(baseline),
            groups=count,
            changed=len(changed),
            baseline=was,
            value=now,
            delta=now - was,
            interval=None if why else found.interval(level, now - was),
            standard_error=found.error,
            why=why,
        )
        for level in levels
    ]


def units(groups: Sequence[str] | None, samples: int) -> tuple[npt.NDArray[np.int32], int]:
    """Return each sample's unit, int32 (n,), and the number of units."""
    if groups is None:
        return np.arange(samples, dtype=np.int32), samples
    labels, index = np.unique(np.asarray(groups), return_inverse=True)
    return index.astype(np.int32), len(labels)


def changes(baseline: Sequence[Terms], other: Sequence[Terms]) -> list[int]:
    """Return the positions of the samples that score otherwise."""
    return [i for i, (one, two) in enumerate(zip(baseline, other, strict=True)) if tuple(one) != tuple(two)]


def _undefined(aggregate: str, was: float, now: float, count: int) -> str:
    if np.isnan(was) or np.isnan(now):
        return aggregates.undefined(aggregate)
    return "all samples belong to one group, so nothing says how groups differ" if count < 2 else ""


def _is_share(aggregate: str, terms: Sequence[Terms]) -> bool:
    return aggregate == "ratio" and all(0 <= part <= whole for part, whole in terms)


def _extended(
    baseline: Sequence[Terms],
    other: Sequence[Terms],
    unit: npt.NDArray[np.int32],
    count: int,
    moved: Sequence[int],
) -> tuple[list[Terms], list[Terms], npt.NDArray[np.int32]]:
    """Add a typical one of the units that changed, and the same with the models swapped; `moved` are samples."""
    changed, at = np.unique(unit[moved], return_inverse=True)
    size = np.bincount(at, [_distance(baseline[i], other[i]) for i in moved])
    typical = changed[np.argmin(np.abs(size - np.sqrt(np.mean(size**2))))]
    members = np.flatnonzero(unit == typical).tolist()
    own, swapped = [baseline[i] for i in members], [other[i] for i in members]
    more = np.repeat(np.array([count, count + 1], np.int32), len(members))
    return [*baseline, *own, *swapped], [*other, *swapped, *own], np.concatenate([unit, more])


def _distance(one: Terms, two: Terms) -> float:
    if len(one) != len(two):  # boxes: another number of them
        return 1.0
    return float(np.abs(np.subtract(one, two)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class _Resamples:
    """The bootstrap distribution of a difference, sorted, with the two numbers of BCa."""

    error: float
    units: int  # without those that were added
    distribution: Floats | None = None
    bias: float = 0.0  # z0
    acceleration: float = 0.0

    def interval(self, level: float, delta: float) -> Interval:
        tail = (1 - level) / 2
        if self.distribution is None:
            most = 1 - tail ** (1 / self.units)
            return Interval(-most, most, level)
        z = np.sqrt(self.units / (self.units - 1)) * stats.t.ppf(1 - tail, self.units - 1)
        ends = []
        for quantile in (self.bias - z, self.bias + z):
            shrunk = 1 - self.acceleration * quantile
            # Far out the correction turns round; there the end of the distribution is meant.
            at = stats.norm.cdf(self.bias + quantile / shrunk) if shrunk > 0 else float(quantile > 0)
            ends.append(float(np.quantile(self.distribution, at)))
        return Interval(min(ends[0], delta), max(ends[1], delta), level)


def _resamples(
    aggregate: str, baseline: Sequence[Terms], other: Sequence[Terms], unit: npt.NDArray[np.int32]
) -> _Resamples:
    tables = [aggregates.table(aggregate, terms, unit) for terms in (baseline, other)]
    count = tables[0].units
    was, now = aggregates.observed(tables)
    drawn = aggregates.bootstrap(tables, RESAMPLES, SEED)
    deltas = drawn[1] - drawn[0]
    deltas = np.sort(deltas[np.isfinite(deltas)])
    if len(deltas) < _DEFINED * RESAMPLES:
        return _Resamples(0.0, count - 2)
    below = (np.sum(deltas < now - was) + 0.5 * np.sum(deltas == now - was)) / len(deltas)
    bias = stats.norm.ppf(np.clip(below, 1 / len(deltas), 1 - 1 / len(deltas)))
    return _Resamples(float(deltas.std()), count - 2, deltas, float(bias), _acceleration(tables))


def _acceleration(tables: Sequence[aggregates.Table]) -> float:
    """A sixth of the jackknife's skewness; of sums of k units it is sqrt(k) smaller and their number k times smaller."""
    count = tables[0].units
    blocks = np.random.default_rng(SEED).permutation(count) % min(count, _BLOCKS)
    left = aggregates.without(tables, blocks.astype(np.int32))
    deltas = left[1] - left[0]
    deltas = deltas[np.isfinite(deltas)]
    spread = deltas.mean() - deltas
    square = float((spread**2).sum())
    return float((spread**3).sum() / (6 * square**1.5)) if square > 0 else 0.0
