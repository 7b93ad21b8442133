"""Aggregates against scikit-learn, weights against repeated samples, and the draws of the resampling."""

import itertools
import os
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as oracle

from calib import aggregates, resampling

Terms = list[tuple[float, ...]]

KINDS = [*aggregates.NAMES, "auroc-3"]
seeds = st.integers(0, 100_000)
few = settings(max_examples=30)  # of each kind


def name(kind: str) -> str:
    return kind.partition("-3")[0]


def drawn(kind: str, samples: int, seed: int) -> Terms:
    """Return terms with ties, and now and then with one class only or empty wholes."""
    rng = np.random.default_rng(seed)
    if kind == "ratio":
        return [(float(rng.normal()), float(whole)) for whole in rng.integers(0, 3, samples)]
    if kind == "root":
        return [(float(rng.exponential()), float(whole)) for whole in rng.integers(0, 3, samples)]
    if kind == "macro-f1":
        return [(float(a), float(b)) for a, b in rng.integers(0, rng.integers(1, 5), (samples, 2))]
    if kind == "ece":
        return [(float(round(rng.random(), 1)), float(rng.integers(2))) for _ in range(samples)]
    if kind == "auroc":
        return [(float(rng.integers(2)), float(rng.integers(4))) for _ in range(samples)]
    if kind == "auroc-3":
        return [(float(rng.integers(3)), *map(float, rng.integers(0, 4, 3))) for _ in range(samples)]
    rows = []
    for boxes in rng.integers(0, 5, samples):
        own = [(rng.integers(3), round(rng.random(), 1), rng.integers(-1, 2)) for _ in range(boxes)]
        rows.append(tuple(float(number) for box in own for number in box))
    return rows


def apart(kind: str, terms: Terms) -> Terms:
    """Return the terms without ties between boxes: their order, as in COCO, is that of the samples."""
    number = itertools.count()
    return [
        tuple(x + 1e-4 * next(number) if kind == "ap" and j % 3 == 1 else x for j, x in enumerate(row)) for row in terms
    ]


def value(kind: str, terms: Sequence[tuple[float, ...]]) -> float:
    return aggregates.value(name(kind), terms)


class TestValue:
    @given(seeds, st.integers(1, 40))
    def test_ratio_and_root(self, seed: int, samples: int) -> None:
        for kind in ("ratio", "root"):
            part, whole = np.array(drawn(kind, samples, seed)).T
            assume(whole.sum() > 0)
            expected = part.sum() / whole.sum()
            found = value(kind, list(zip(part, whole, strict=True)))
            assert found == pytest.approx(np.sqrt(expected) if kind == "root" else expected)

    @given(seeds, st.integers(1, 40))
    def test_macro_f1_is_scikit_learns(self, seed: int, samples: int) -> None:
        terms = drawn("macro-f1", samples, seed)
        right, predicted = np.array(terms, int).T
        assert value("macro-f1", terms) == pytest.approx(oracle.f1_score(right, predicted, average="macro"))

    def test_class_numbers_may_be_any(self) -> None:
        assert value("macro-f1", [(7, 7), (10**9, 7), (10**9, 10**9)]) == pytest.approx(2 / 3)

    @given(seeds, st.integers(1, 40))
    def test_auroc_is_scikit_learns(self, seed: int, samples: int) -> None:
        terms = drawn("auroc", samples, seed)
        right, score = np.array(terms).T
        assume(len(set(right)) == 2)
        assert value("auroc", terms) == pytest.approx(oracle.roc_auc_score(right, score))

    @few
    @given(seeds, st.integers(3, 40))
    def test_auroc_of_three_classes_is_scikit_learns(self, seed: int, samples: int) -> None:
        terms = drawn("auroc-3", samples, seed)
        right, scores = np.array(terms)[:, 0], np.array(terms)[:, 1:]
        present = [label for label in range(3) if 0 < (right == label).sum() < samples]
        if not present:
            assert np.isnan(value("auroc", terms))
            return
        areas = [oracle.roc_auc_score(right == label, scores[:, label]) for label in present]
        assert value("auroc", terms) == pytest.approx(np.mean(areas))
        assume(len(present) == 3)
        total = scores.sum(axis=1, keepdims=True)
        probability = np.where(total, scores / np.where(total, total, 1), 1 / 3)
        ovr = oracle.roc_auc_score(right, probability, multi_class="ovr", average="macro")
        rows = [(label, *row) for label, row in zip(right, probability, strict=True)]
        assert value("auroc", rows) == pytest.approx(ovr)

    @given(seeds, st.integers(1, 60))
    def test_ece_is_by_hand(self, seed: int, samples: int) -> None:
        rng = np.random.default_rng(seed)
        confidence = np.where(rng.random(samples) < 0.2, 1.0, rng.random(samples))
        right = (rng.random(samples) < confidence).astype(float)
        place = np.minimum(np.floor(confidence * 15), 14)
        total = sum(
            (place == bin).mean() * abs(confidence[place == bin].mean() - right[place == bin].mean())
            for bin in np.unique(place)
        )
        assert value("ece", list(zip(confidence, right, strict=True))) == pytest.approx(total)

    @given(seeds, st.integers(1, 12))
    def test_ap_is_the_area_under_the_best_precision_at_101_recalls(self, seed: int, samples: int) -> None:
        terms = drawn("ap", samples, seed)
        boxes = np.array([x for row in terms for x in row]).reshape(-1, 3)
        areas = []
        for label in range(3):
            objects = ((boxes[:, 0] == label) & (boxes[:, 2] == -1)).sum()
            if not objects:
                continue
            own = boxes[(boxes[:, 0] == label) & (boxes[:, 2] >= 0)]
            scores = np.unique(own[:, 1])[::-1]
            found = np.array([own[own[:, 1] >= score, 2].sum() for score in scores])
            recall = found / objects
            precision = found / np.array([(own[:, 1] >= score).sum() for score in scores])
            best = [precision[recall >= at].max(initial=0) for at in np.linspace(0, 1, 101)]
            areas.append(np.mean(best))
        expected = np.mean(areas) if areas else np.nan
        assert value("ap", terms) == pytest.approx(expected, nan_ok=True)

    def test_the_order_of_boxes_of_one_score_decides_nothing(self) -> None:
        """INT8 has few scores: which of two equal ones comes first must not be worth precision."""
        one = [(0, 0.5, 1, 0, 0, -1), (0, 0.5, 0)]
        assert value("ap", one) == value("ap", one[::-1]) == pytest.approx(0.5)

    @pytest.mark.parametrize(
        ("kind", "terms"),
        [
            ("ratio", []),
            ("ratio", [(0, 0), (2, 0)]),
            ("root", [(1, 0)]),
            ("macro-f1", []),
            ("ece", []),
            ("auroc", [(1, 0.5), (1, 0.7)]),
            ("auroc", [(2, 1, 2, 3), (2, 3, 2, 1)]),
            ("ap", [(), ()]),
            ("ap", [(0, 0.5, 0)]),
        ],
    )
    def test_without_anything_to_go_by_there_is_none(self, kind: str, terms: Terms) -> None:
        assert np.isnan(aggregates.value(kind, terms))
        assert aggregates.undefined(kind)


class TestWeights:
    @pytest.mark.parametrize("kind", KINDS)
    @few
    @given(seeds, st.integers(1, 20), st.integers(1, 6))
    def test_are_repeated_samples(self, kind: str, seed: int, samples: int, units: int) -> None:
        """Also where a unit is several samples, which are then drawn together."""
        rng = np.random.default_rng(seed)
        terms = apart(kind, drawn(kind, samples, seed))
        unit = np.unique(rng.integers(0, units, samples), return_inverse=True)[1].astype(np.int32)
        weights = rng.integers(0, 4, (3, unit.max() + 1)).astype(np.int32)
        found = aggregates.table(name(kind), terms, unit).values(weights)
        for row, result in zip(weights, found, strict=True):
            repeated = [terms[sample] for sample in np.repeat(np.arange(samples), row[unit])]
            assert result == pytest.approx(value(kind, repeated), rel=1e-9, abs=1e-12, nan_ok=True)

    @pytest.mark.parametrize("kind", KINDS)
    @few
    @given(seeds, st.integers(1, 12))
    def test_the_order_of_the_samples_does_not_matter(self, kind: str, seed: int, samples: int) -> None:
        terms = apart(kind, drawn(kind, samples, seed))
        order = np.random.default_rng(seed).permutation(samples)
        assert value(kind, [terms[i] for i in order]) == pytest.approx(value(kind, terms), nan_ok=True)

    @pytest.mark.parametrize("kind", KINDS)
    @few
    @given(seeds, st.integers(2, 20))
    def test_leaving_out_is_the_value_of_the_rest(self, kind: str, seed: int, samples: int) -> None:
        terms = drawn(kind, samples, seed)
        blocks = np.unique(np.random.default_rng(seed).integers(0, 5, samples), return_inverse=True)[1].astype(np.int32)
        (found,) = aggregates.without([aggregates.table(name(kind), terms)], blocks)
        rest = [[terms[i] for i in np.flatnonzero(blocks != block)] for block in range(blocks.max() + 1)]
        np.testing.assert_allclose(found, [value(kind, own) for own in rest], rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("kind", KINDS)
    @few
    @given(seeds, st.integers(1, 20))
    def test_swapping_equals_changes_nothing(self, kind: str, seed: int, samples: int) -> None:
        terms = apart(kind, drawn(kind, samples, seed))
        (found,) = aggregates.swapped([aggregates.table(name(kind), [*terms, *terms])], 50, seed)
        np.testing.assert_allclose(found, value(kind, terms), rtol=1e-9, atol=1e-12)


class TestDraws:
    @pytest.mark.parametrize("draw", [aggregates.bootstrap, aggregates.swapped])
    def test_depend_on_the_seed_and_their_number_alone(self, draw, monkeypatch: pytest.MonkeyPatch) -> None:
        terms = [drawn(kind, 30, 1) for kind in ("ratio", "root", "ratio")]
        tables = [aggregates.table(kind, rows) for kind, rows in zip(("ratio", "root", "ratio"), terms, strict=True)]
        found = draw(tables, 500, 3)
        np.testing.assert_array_equal(found[0], found[2])  # the same draw in every table
        np.testing.assert_array_equal(draw(tables[:1], 500, 3)[0], found[0])
        np.testing.assert_array_equal(draw(tables, 70, 3), found[:, :70])
        for threads in (1, 2, 7):
            monkeypatch.setattr(os, "cpu_count", lambda: threads)  # noqa: B023  called at once
            np.testing.assert_array_equal(draw(tables, 500, 3), found)
        monkeypatch.setattr(resampling, "_WEIGHTS", 64)
        np.testing.assert_array_equal(draw(tables, 500, 3), found)
        assert (draw(tables, 500, 4) != found).mean() > 0.5

    def test_of_a_mean_have_the_bootstraps_moments(self) -> None:
        """The bootstrap distribution of a mean has the sample's mean, and its variance over n."""
        samples, draws = 41, 40_000
        x = np.random.default_rng(2).exponential(size=samples)
        (found,) = aggregates.bootstrap([aggregates.table("ratio", [(v, 1.0) for v in x])], draws, 0)
        deviation = x.std() / np.sqrt(samples)
        assert abs(found.mean() - x.mean()) < 4 * deviation / np.sqrt(draws)
        assert found.std() == pytest.approx(deviation, rel=4 / np.sqrt(2 * draws))

    def test_of_a_ratio_have_the_variance_of_its_linearization(self) -> None:
        rng = np.random.default_rng(3)
        whole = rng.integers(5, 40, 400).astype(float)
        part = rng.poisson(0.1 * whole).astype(float)
        terms = list(zip(part, whole, strict=True))
        (found,) = aggregates.bootstrap([aggregates.table("ratio", terms)], 10_000, 0)
        ratio = part.sum() / whole.sum()
        deviation = np.sqrt(((part - ratio * whole) ** 2).sum()) / whole.sum()
        assert found.mean() == pytest.approx(ratio, rel=0.01)
        assert found.std() == pytest.approx(deviation, rel=0.04)

    @pytest.mark.parametrize("units", [1, 2, 7, 30])
    def test_hold_as_many_units_as_there_are_each_as_often(self, units: int) -> None:
        weights = np.empty((20_000, units), np.int32)
        resampling.weigh(resampling.BOOTSTRAP, 5, 0, np.zeros(0, np.int32), weights)
        assert (weights.sum(axis=1) == units).all()
        if units > 1:
            assert stats.chisquare(weights.sum(axis=0)).pvalue > 0.001
            counts = np.bincount(weights[:, 0], minlength=units + 1)
            expected = stats.binom(units, 1 / units).pmf(np.arange(units + 1)) * len(weights)
            often = expected > 20
            assert (
                stats.chisquare(counts[often], expected[often] * counts[often].sum() / expected[often].sum()).pvalue
                > 0.001
            )
            assert abs(np.corrcoef(weights[:-1, 0], weights[1:, 0])[0, 1]) < 0.03  # one draw tells nothing of the next

    def test_swap_one_copy_of_each_unit_half_the_time(self) -> None:
        weights = np.empty((10_000, 12), np.int32)
        resampling.weigh(resampling.SWAP, 5, 0, np.zeros(0, np.int32), weights)
        assert (weights[:, :6] + weights[:, 6:] == 1).all()
        assert np.abs(weights[:, :6].mean(axis=0) - 0.5).max() < 0.02
        assert np.abs(np.corrcoef(weights[:, :6].T) - np.eye(6)).max() < 0.05

    def test_of_several_threads_see_the_same_groups(self) -> None:
        """A unit of several samples is drawn whole: samples that cancel out within it always do."""
        terms = [(1.0, 1.0), (-1.0, 1.0)] * 20
        unit = np.repeat(np.arange(20, dtype=np.int32), 2)
        (found,) = aggregates.bootstrap([aggregates.table("ratio", terms, unit)], 200, 0)
        assert (found == 0).all()


class TestValid:
    @pytest.mark.parametrize("kind", KINDS)
    @few
    @given(seeds)
    def test_what_is_drawn_is(self, kind: str, seed: int) -> None:
        assert all(aggregates.valid(name(kind), terms) for terms in drawn(kind, 5, seed))

    @pytest.mark.parametrize(
        ("kind", "terms"),
        [
            *((kind, (1.0,)) for kind in ("ratio", "root", "macro-f1", "ece", "auroc")),
            *((kind, (1.0, 0.0, 1.0)) for kind in ("ratio", "root", "macro-f1", "ece")),
            *((kind, ()) for kind in ("ratio", "root", "macro-f1", "ece", "auroc")),
            *((kind, (1.0, float("nan"), 0.0)[: 3 if kind == "ap" else 2]) for kind in aggregates.NAMES),
            *((kind, (float("inf"), 1.0, 0.0)[: 3 if kind == "ap" else 2]) for kind in aggregates.NAMES),
            ("ratio", (1, -1)),
            ("root", (1, -1)),
            ("root", (-1, 1)),
            ("macro-f1", (0.5, 1)),
            ("macro-f1", (1, -1)),
            ("ece", (1.01, 1)),
            ("ece", (-0.01, 1)),
            ("ece", (0.5, 0.5)),
            ("auroc", (2, 0.3)),
            ("auroc", (-1, 0.3)),
            ("auroc", (0.5, 0.3)),
            ("auroc", (3, 0.3, 0.2, 0.5)),
            ("ap", (1, 0.5)),
            ("ap", (1, 0.5, 2)),
            ("ap", (0.5, 0.5, 1)),
        ],
    )
    def test_what_is_not(self, kind: str, terms: tuple[float, ...]) -> None:
        assert not aggregates.valid(kind, terms)
        assert aggregates.wanted(kind)
