"""On whom a model is worse: slices, their tests and their verdicts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from calib.evidence import slices
from calib.evidence.result import SliceEvidence
from calib.evidence.slices import Slice, by_class, by_columns, examine
from tests.slice_studies import EQUAL, LEVEL, few_draws, planted


def names(found: list[Slice]) -> list[str]:
    return [one.name for one in found]


class TestByColumns:
    def test_every_value_and_every_pair(self) -> None:
        columns = {"device": ["fax", "fax", "phone", "phone"], "kind": ["letter", "report", "letter", "report"]}
        found, notes = by_columns(columns, pairs=True, smallest=1)
        assert names(found) == [
            "device = fax", "device = phone", "kind = letter", "kind = report",
            "device = fax, kind = letter", "device = fax, kind = report",
            "device = phone, kind = letter", "device = phone, kind = report",
        ]  # fmt: skip
        assert {one.kind for one in found[:4]} == {"column"}
        assert {one.kind for one in found[4:]} == {"pair"}
        assert found[4].where.tolist() == [True, False, False, False]
        assert not notes
        assert names(by_columns(columns, pairs=False)[0]) == names(found[:4])

    def test_what_is_missing_is_a_value_of_its_own(self) -> None:
        found, _ = by_columns({"device": ["", "fax", ""]}, pairs=False)
        assert names(found) == ["device = (none)", "device = fax"]
        assert found[0].where.tolist() == [True, False, True]

    def test_a_pair_of_the_same_samples_as_another_slice_is_left_out(self) -> None:
        columns = {"device": ["fax", "fax", "phone"], "site": ["a", "a", "b"], "kind": ["x", "y", "y"]}
        found, _ = by_columns(columns, pairs=True, smallest=1)
        assert [one.name for one in found if one.kind == "pair"] == ["device = fax, kind = y"]

    def test_a_value_that_all_samples_have_is_no_slice(self) -> None:
        assert by_columns({"site": ["a", "a"], "kind": ["", ""]}, pairs=True, smallest=1) == ([], [])

    def test_a_column_of_many_values_is_named_in_a_note(self) -> None:
        columns = {"patient": [str(i) for i in range(51)], "device": ["fax"] * 20 + ["phone"] * 31}
        found, notes = by_columns(columns, pairs=True, smallest=1)
        assert names(found) == ["device = fax", "device = phone"]
        assert notes == ["column 'patient' has 51 different values, more than 50, and is not sliced by value"]

    def test_small_pairs_are_left_out_and_of_many_the_largest_stay(self) -> None:
        draws = np.random.default_rng(0)
        columns = {name: draws.integers(0, 20, 20_000).astype(str).tolist() for name in ("a", "b")}
        found, notes = by_columns(columns, pairs=True)
        sizes = [int(one.where.sum()) for one in found if one.kind == "pair"]
        assert len(sizes) == 200
        assert sizes == sorted(sizes, reverse=True)
        assert notes == ["200 pairs of values are not looked at, only the 200 with the most samples"]
        assert not [one for one in by_columns(columns, pairs=True, smallest=100)[0] if one.kind == "pair"]

    @given(st.lists(st.tuples(st.sampled_from(["", "a", "b"]), st.sampled_from(["x", "y"])), min_size=1, max_size=30))
    def test_values_partition_the_samples(self, rows: list[tuple[str, str]]) -> None:
        columns = {"one": [a for a, _ in rows], "two": [b for _, b in rows]}
        found, _ = by_columns(columns, pairs=True, smallest=1)
        for name, values in columns.items():
            own = [one.where for one in found if one.kind == "column" and one.name.startswith(name)]
            assert len(own) == (len(set(values)) if len(set(values)) > 1 else 0)
            assert not own or (np.sum(own, axis=0) == 1).all()
        assert len({one.where.tobytes() for one in found if one.kind == "pair"}) == sum(
            one.kind == "pair" for one in found
        )


class TestByClass:
    def test_few_right_answers_are_classes(self) -> None:
        found = by_class(["cat", "dog", "cat", "dog", "dog"])
        assert names(found) == ["class = cat", "class = dog"]
        assert found[0].where.tolist() == [True, False, True, False, False]

    @pytest.mark.parametrize("targets", [[], ["a"], ["a", "a"], ["a", "b"], [str(i // 2) for i in range(102)]])
    def test_texts_and_a_single_class_are_not(self, targets: list[str]) -> None:
        assert by_class(targets) == []


def right(values: list[int] | np.ndarray) -> list[tuple[float, float]]:
    return [(float(value), 1.0) for value in values]


def asked(
    chosen: list[Slice],
    was: list,
    now: list,
    groups: list[str] | None = None,
    *,
    margin: float = 0.05,
    kind: str = "ratio",
) -> tuple[tuple[SliceEvidence, ...], int]:
    return examine(chosen, kind, was, now, groups, higher_is_better=True, margin=margin, level=LEVEL)


def parts(**sizes: int) -> list[Slice]:
    """Consecutive slices of the given sizes."""
    total, start, result = sum(sizes.values()), 0, []
    for name, size in sizes.items():
        where = np.zeros(total, np.bool_)
        where[start : start + size] = True
        start += size
        result.append(Slice("column", name, where))
    return result


class TestVerdicts:
    def test_each_of_the_five(self) -> None:
        chosen = parts(worse=100, slightly=1000, within=200, open=60, few=29)
        was = right([1] * 1389)
        now = right([0] * 20 + [1] * 80 + [0] * 20 + [1] * 980 + [1] * 200 + [0] * 3 + [1] * 57 + [0] * 29)
        found, tested = asked(chosen, was, now)
        verdicts = {one.name: one.verdict for one in found}
        assert verdicts == {
            "worse": "worse", "slightly": "slightly worse", "within": "within", "open": "open", "few": "too few",
        }  # fmt: skip
        assert tested == 2  # three changes and none show nothing, whoever wins them
        assert [one.name for one in found] == ["few", "worse", "open", "slightly", "within"]
        few = found[0]
        assert (few.p_value, few.adjusted) == (None, None)
        assert few.difference.samples == 29
        assert few.difference.delta == -1

    def test_are_corrected_together(self) -> None:
        chosen = parts(a=100, b=100)
        was, now = right([1] * 200), right([0] * 8 + [1] * 92 + [0] * 6 + [1] * 94)
        found, tested = asked(chosen, was, now)
        assert tested == 2
        a, b = found
        assert a.p_value is not None
        assert b.p_value is not None
        assert a.adjusted == pytest.approx(2 * a.p_value)
        assert b.adjusted == pytest.approx(b.p_value)
        assert a.p_value == pytest.approx(2**-8, abs=0.003)
        assert b.p_value == pytest.approx(2**-6, abs=0.005)

    @pytest.mark.parametrize(("broken", "fixed"), [(9, 1), (8, 8), (14, 5), (3, 12)])
    def test_p_values_are_mcnemars_one_sided(self, broken: int, fixed: int) -> None:
        was = right([1] * broken + [0] * fixed + [1] * 50)
        now = right([0] * broken + [1] * fixed + [1] * 50)
        (found,), _ = asked(parts(all=len(was)), was, now)
        exact = stats.binomtest(broken, broken + fixed, alternative="greater").pvalue
        assert found.p_value == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 10_000) + 2e-4)

    def test_direction_of_the_score(self) -> None:
        was, now = right([0] * 60), right([1] * 20 + [0] * 40)
        options = {"margin": 0.05, "level": LEVEL}
        better = examine(parts(a=60), "ratio", was, now, None, higher_is_better=True, **options)[0][0]
        worse = examine(parts(a=60), "ratio", was, now, None, higher_is_better=False, **options)[0][0]
        assert (better.verdict, worse.verdict) == ("within", "worse")
        assert better.p_value is not None
        assert better.p_value > 0.99

    def test_one_patient_says_nothing_about_patients(self) -> None:
        was, now = right([1] * 120), right([0] * 60 + [1] * 60)
        groups = ["one"] * 60 + [f"p{i // 15}" for i in range(60)]
        found, tested = asked(parts(one=60, four=60), was, now, groups)
        assert [(one.verdict, one.p_value) for one in found] == [("too few", None)] * 2
        assert tested == 0
        assert "one group" in found[0].difference.why

    def test_nothing_but_whole_groups_is_swapped(self) -> None:
        was, now = right([1] * 60), right([0] * 60)
        (found,), _ = asked(parts(all=60), was, now, [f"p{i // 10}" for i in range(60)])
        assert found.p_value == pytest.approx(2**-6, abs=0.005)


class TestBadCases:
    def test_no_slices_and_empty_ones(self) -> None:
        was = right([1] * 40)
        assert asked([], was, was) == ((), 0)
        empty = Slice("pair", "nobody", np.zeros(40, np.bool_))
        assert asked([empty], was, was) == ((), 0)

    def test_one_class_only_has_no_auroc_and_says_so(self) -> None:
        draws = np.random.default_rng(0)
        truth = np.repeat([0, 1], 40)
        was, now = ([(float(t), float(s)) for t, s in zip(truth, draws.random(80), strict=True)] for _ in "ab")
        chosen = [*by_class([str(t) for t in truth]), Slice("region", "all", np.ones(80, np.bool_))]
        found, tested = asked(chosen, was, now, kind="auroc")
        assert [one.kind for one in found] == ["class", "class", "region"]
        for one in found[:2]:
            assert (one.verdict, one.p_value, one.difference.interval) == ("open", None, None)
            assert one.difference.why == "only one class is among the right answers"
        assert tested == 1

    def test_nothing_to_divide_by(self) -> None:
        (found,), _ = asked(parts(empty=40), [(0.0, 0.0)] * 40, [(2.0, 0.0)] * 40)
        assert found.verdict == "open"
        assert "nothing to divide by" in found.difference.why

    @pytest.mark.parametrize("value", [0, 1])
    def test_constant_scores_are_not_accused(self, value: int) -> None:
        was = right([value] * 100)
        (found,), tested = asked(parts(all=100), was, was)
        assert (found.verdict, found.p_value, tested) == ("within", None, 0)

    def test_ties_are_not_accused(self) -> None:
        """Of 50 broken and 50 fixed the observed difference equals many of those that were drawn."""
        was, now = right([1] * 50 + [0] * 50), right([0] * 50 + [1] * 50)
        (found,), _ = asked(parts(all=100), was, now)
        assert found.p_value is not None
        assert found.p_value > 0.5
        assert found.verdict == "open"

    def test_slices_without_a_value_come_last(self) -> None:
        was = [*right([1] * 40), *[(0.0, 0.0)] * 40]
        now = [*right([1] * 40), *[(0.0, 0.0)] * 40]
        chosen = [dataclasses.replace(one) for one in reversed(parts(full=40, none=40))]
        assert [one.name for one in asked(chosen, was, now)[0]] == ["full", "none"]


@given(st.lists(st.integers(0, 40), max_size=30))
def test_what_is_tested_can_be_rejected_beside_the_others(changed: list[int]) -> None:
    chosen = slices._testable(np.array(changed, np.int64), 0.05)
    least = 2.0 ** -np.array(changed, np.float64)
    assert (least[chosen] <= 0.05 / max(1, chosen.sum())).all()
    assert not chosen.any() or least[chosen].max() < least[~chosen].min(initial=2)


class TestSimulated:
    def test_a_slice_that_is_worse_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """5 % of 2,000 samples, of which the model breaks a fifth, in one of three columns with all pairs."""
        few_draws(monkeypatch)
        caught = 0
        for seed in range(100):
            study = planted(seed, 0.2)
            found = {one.name: one.verdict for one in study.examine(study.by_column())}
            caught += found["device = fax"] == "worse"
        assert caught >= 95

    @pytest.mark.parametrize("score", EQUAL)
    def test_a_model_that_is_not_worse_is_not_accused(self, score: str, monkeypatch: pytest.MonkeyPatch) -> None:
        few_draws(monkeypatch)
        studies = 60
        accused = 0
        for seed in range(studies):
            study = EQUAL[score](seed)
            accused += bool(study.accused([*study.by_column(), *study.by_region()]))
        assert accused <= stats.binom.ppf(0.999, studies, 1 - LEVEL)

    def test_without_groups_it_would_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The check above can fail: patients taken apart are accused far more often than stated."""
        few_draws(monkeypatch)
        studies = [dataclasses.replace(EQUAL["groups"](seed), groups=None) for seed in range(20)]
        assert sum(bool(study.accused(study.by_column())) for study in studies) > 10
