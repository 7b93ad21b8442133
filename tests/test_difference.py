"""The interval of a difference: against SciPy's, against known truth, and at the edges."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calib.evidence.difference import difference
from calib.evidence.tests import holm, mcnemar, no_drop

Pairs = tuple[list[tuple[float, ...]], list[tuple[float, ...]]]


def binary(n: int, broken: float, fixed: float, seed: int = 0) -> Pairs:
    u = np.random.default_rng(seed).random(n)
    was = u < 0.9
    now = np.where(u < broken, False, np.where(u > 1 - fixed, True, was))
    return [(float(x), 1.0) for x in was], [(float(x), 1.0) for x in now]


def edits(n: int, seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    length = rng.integers(3, 30, n).astype(float)
    was = rng.poisson(0.3, n).astype(float)
    now = was + np.where(rng.random(n) < 0.3, 1 + rng.poisson(0.4, n), 0)
    return list(zip(was, length, strict=True)), list(zip(now, length, strict=True))


def ranked(n: int, seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.3).astype(float)
    was = 1.5 * label + rng.normal(size=n)
    return list(zip(label, was, strict=True)), list(zip(label, was + rng.normal(0, 0.3, n), strict=True))


def test_with_many_samples_it_is_scipys_bca() -> None:
    was, now = edits(3000, 1)
    found = difference("ratio", was, now).interval
    part, other, whole = np.array(was)[:, 0], np.array(now)[:, 0], np.array(was)[:, 1]
    theirs = stats.bootstrap(
        (part, other, whole),
        lambda a, b, w, axis=-1: (b.sum(axis=axis) - a.sum(axis=axis)) / w.sum(axis=axis),
        paired=True, vectorized=True, n_resamples=9999, batch=500, rng=np.random.default_rng(0),
    ).confidence_interval  # fmt: skip
    assert found is not None
    width = theirs.high - theirs.low
    assert abs(found.low - theirs.low) < 0.03 * width
    assert abs(found.high - theirs.high) < 0.03 * width


@pytest.mark.parametrize(
    ("aggregate", "drawn", "truth"),
    [
        ("ratio", lambda n, seed: binary(n, 0.03, 0.01, seed), -0.02),
        ("ratio", edits, 0.3 * 1.4 / 16),
        ("auroc", ranked, float(stats.norm.cdf(1.5 / np.sqrt(2.18)) - stats.norm.cdf(1.5 / np.sqrt(2)))),
    ],
    ids=["accuracy", "CER", "AUROC"],
)
def test_the_interval_covers_the_truth(aggregate: str, drawn: Callable[[int, int], Pairs], truth: float) -> None:
    """95 % of 300 studies of 100 samples, but for chance of one in ten thousand; the full table is reports/evidence.md."""
    covered = 0
    for seed in range(300):
        interval = difference(aggregate, *drawn(100, seed)).interval
        assert interval is not None
        covered += interval.low <= truth <= interval.high
    low, high = stats.binom.ppf([0.0001, 0.9999], 300, 0.95)
    assert low <= covered <= high


def test_a_gate_at_the_margin_passes_seldom_where_changes_are_rare() -> None:
    """1 % of samples break: in 37 % of studies of 100 none is seen, and a plain bootstrap passes them all."""
    passes = sum(difference("ratio", *binary(100, 0.01, 0.0, seed)).interval.low > -0.01 for seed in range(300))
    assert passes <= stats.binom.ppf(0.9999, 300, 0.06)


def test_no_change_is_the_rule_of_three() -> None:
    was, _ = binary(300, 0, 0)
    found = difference("ratio", was, was)
    assert found.interval is not None
    assert found.delta == 0
    assert found.interval.high == -found.interval.low == pytest.approx(1 - 0.025 ** (1 / 300))
    assert stats.binomtest(0, 300).proportion_ci(0.95, "exact").high == pytest.approx(found.interval.high)


def test_no_change_of_a_score_without_bounds_has_no_interval() -> None:
    errors = [(x, 1.0) for x in np.random.default_rng(0).random(50) * 3 + 1]
    found = difference("ratio", errors, errors)
    assert found.interval is None
    assert "nothing says how large" in found.why


@pytest.mark.parametrize(
    ("aggregate", "terms", "why"),
    [
        ("auroc", [(1.0, 0.1), (1.0, 0.4)], "only one class"),
        ("ratio", [(0.0, 0.0), (0.0, 0.0)], "nothing to divide by"),
        ("ap", [(0.0, 0.9, 0.0), ()], "no object"),
    ],
)
def test_what_has_no_value_says_why(aggregate: str, terms: list[tuple[float, ...]], why: str) -> None:
    found = difference(aggregate, terms, terms)
    assert found.interval is None
    assert why in found.why


def test_one_group_says_nothing_of_groups() -> None:
    found = difference("ratio", *binary(50, 0.1, 0.0), ["patient"] * 50)
    assert found.interval is None
    assert "one group" in found.why


def test_few_groups_make_a_wider_interval_than_their_samples() -> None:
    rng = np.random.default_rng(3)
    documents = np.repeat(np.arange(20), 20)
    bad = rng.random(20)[documents] < 0.2
    was = [(0.0, 10.0)] * 400
    now = [(float(b), 10.0) for b in bad]
    alone, grouped = (difference("ratio", was, now, g).interval for g in (None, [str(d) for d in documents]))
    assert alone is not None
    assert grouped is not None
    assert grouped.high - grouped.low > 2 * (alone.high - alone.low)


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_the_order_of_samples_and_the_names_of_groups_decide_nothing(seed: int, grouped: bool) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 60))
    was, now = edits(n, seed)
    groups = [f"g{x}" for x in rng.integers(0, 5, n)] if grouped else None
    order = rng.permutation(n)
    one = difference("ratio", was, now, groups)
    two = difference(
        "ratio", [was[i] for i in order], [now[i] for i in order], [groups[i] for i in order] if groups else None
    )
    assert (one.interval is None) == (two.interval is None)
    if one.interval and two.interval:
        assert one.interval.low == pytest.approx(two.interval.low, abs=1e-12)
        assert one.interval.high == pytest.approx(two.interval.high, abs=1e-12)
        assert one.interval.low <= one.delta <= one.interval.high


def test_swapping_the_models_mirrors_the_interval() -> None:
    was, now = edits(200, 5)
    there, back = difference("ratio", was, now), difference("ratio", now, was)
    assert there.delta == -back.delta
    assert there.interval is not None
    assert back.interval is not None
    width = there.interval.high - there.interval.low
    assert there.interval.low == pytest.approx(-back.interval.high, abs=0.03 * width)


class TestRightAndWrong:
    def test_mcnemar_is_the_binomial_test_of_what_changed(self) -> None:
        was = np.array([1, 1, 1, 1, 1, 1, 1, 0, 1, 0], bool)
        now = np.array([1, 0, 0, 0, 0, 0, 0, 1, 1, 0], bool)
        found = mcnemar(was, now)
        assert (found.both_right, found.broken, found.fixed, found.both_wrong) == (2, 6, 1, 1)
        assert found.p_value == pytest.approx(2 * stats.binom.cdf(1, 7, 0.5))
        assert mcnemar(was, was).p_value == 1

    @pytest.mark.parametrize(("broken", "fixed"), [(5, 1), (9, 2), (3, 3), (0, 4), (12, 0)])
    def test_the_randomization_test_is_mcnemars_one_sided(self, broken: int, fixed: int) -> None:
        was = [(1.0, 1.0)] * broken + [(0.0, 1.0)] * fixed + [(1.0, 1.0)] * 50
        now = [(0.0, 1.0)] * broken + [(1.0, 1.0)] * fixed + [(1.0, 1.0)] * 50
        exact = stats.binomtest(broken, broken + fixed, alternative="greater").pvalue
        found = no_drop("ratio", was, now, None, higher_is_better=True)
        assert abs(found - exact) < 5 * np.sqrt(exact * (1 - exact) / 10_000) + 2e-4

    def test_no_change_is_no_evidence(self) -> None:
        was, _ = binary(50, 0, 0)
        assert no_drop("ratio", was, was, None, higher_is_better=True) == 1

    def test_groups_are_swapped_whole(self) -> None:
        was, now = [(1.0, 1.0)] * 40, [(0.0, 1.0)] * 20 + [(1.0, 1.0)] * 20
        groups = ["a"] * 20 + ["b"] * 20
        assert no_drop("ratio", was, now, None, higher_is_better=True) < 0.001
        assert no_drop("ratio", was, now, groups, higher_is_better=True) == pytest.approx(0.5, abs=0.05)


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1, 1]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_lies_between_none_and_bonferroni(values: list[float]) -> None:
    adjusted = holm(values)
    for p, a in zip(values, adjusted, strict=True):
        assert p <= a <= min(1, len(values) * p) + 1e-12
    assert [a for _, a in sorted(zip(values, adjusted, strict=True))] == sorted(adjusted)
