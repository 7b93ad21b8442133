"""Tests of whether a model is worse: on right and wrong, on any score, and on many slices at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

from calib import aggregates
from calib.aggregates import Terms
from calib.evidence.difference import RESAMPLES, SEED, changes, units
from calib.evidence.result import Decisions

_TIE = 1e-12  # differences of sums that are equal but for rounding


def mcnemar(was: npt.NDArray[np.bool_], now: npt.NDArray[np.bool_]) -> Decisions:
    """Count right and wrong of the same samples in two models, and test whether they err equally often.

    The test is McNemar's, exact: of the samples that changed, half should have broken. Q. McNemar, Psychometrika 12, 1947.

    Args:
        was: (n,), which samples the baseline gets right.
        now: (n,), which the model gets right.
    """
    broken, fixed = int((was & ~now).sum()), int((~was & now).sum())
    p_value = float(stats.binomtest(broken, broken + fixed).pvalue) if broken + fixed else 1.0
    return Decisions(int((was & now).sum()), broken, fixed, int((~was & ~now).sum()), p_value)


def decisions(was: npt.NDArray[np.bool_] | None, now: npt.NDArray[np.bool_] | None) -> Decisions | None:
    """Return `mcnemar` of what two models get right; None where the metric knows no right and wrong."""
    return None if was is None or now is None else mcnemar(was, now)


def no_drop(
    aggregate: str,
    baseline: Sequence[Terms],
    other: Sequence[Terms],
    groups: Sequence[str] | None,
    *,
    higher_is_better: bool,
) -> float:
    """Return the one-sided p-value of "the other model is no worse than the baseline".

    A paired randomization test: were the models equally good, each group's two results could as well be swapped. Its level
    holds for any number of samples. R. Fisher, "The Design of Experiments", 1935; for such scores A. Yeh, "More accurate
    tests for the statistical significance of result differences", COLING 2000. On right and wrong it is McNemar's, one-sided.
    The observed result counts as one of the draws: B. Phipson, G. Smyth, "Permutation p-values should never be zero", 2010.

    Args:
        aggregate: how a set's value is made of the terms.
        baseline: n terms.
        other: n terms, of the same samples.
        groups: n labels of what is swapped whole.
        higher_is_better: direction of the score.
    """
    unit, count = units(groups, len(baseline))
    changed = np.isin(unit, unit[changes(baseline, other)])
    # Swapping what is equal in both models changes nothing, so that all of it is one unit.
    unit = np.unique(np.where(changed, unit, count), return_inverse=True)[1].astype(np.int32)
    count = int(unit.max()) + 1
    copies = np.concatenate([unit, unit + count]).astype(np.int32)
    first = aggregates.table(aggregate, [*baseline, *other], copies)
    second = aggregates.table(aggregate, [*other, *baseline], copies)
    drawn = aggregates.swapped([first, second], RESAMPLES, SEED)
    sign = -1 if higher_is_better else 1
    drop = sign * (aggregates.value(aggregate, other) - aggregates.value(aggregate, baseline))
    # A draw without a value cannot speak against the model.
    as_large = ~(sign * (drawn[1] - drawn[0]) < drop - _TIE)
    return float((1 + as_large.sum()) / (1 + RESAMPLES))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for being looked at together, in the same order.

    Rejecting those up to alpha keeps the chance of a single false rejection at alpha. S. Holm, "A simple sequentially
    rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(steps, 1)
    return [float(p) for p in adjusted]
