"""Regions where a model got worse, found without metadata, and the features that they are found by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.data import writing
from calib.evidence import regions
from calib.evidence.inputs import describe
from calib.evidence.regions import find, loss
from tests.slice_studies import few_draws, planted


def lines(samples: int = 800) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Features of which one tells where each second sample loses 1."""
    draws = np.random.default_rng(0)
    features = {"x: edges": draws.random(samples), "x: mean": draws.normal(0, 1, samples)}
    return features, ((features["x: edges"] < 0.25) & (draws.random(samples) < 0.5)).astype(float)


class TestFind:
    def test_names_the_region_and_holds_the_other_half(self) -> None:
        features, lost = lines()
        (found,) = find(features, lost, None)
        name, value = found.name.split(" < ")
        assert (found.kind, name) == ("region", "x: edges")
        assert float(value) == pytest.approx(0.25, abs=0.03)
        inside = features["x: edges"] < float(value)
        assert (found.where <= inside).all()
        assert 0.35 < found.where.sum() / inside.sum() < 0.65

    def test_where_it_lies_does_not_depend_on_the_half_that_tests_it(self) -> None:
        """The test is honest only then: what the other half lost may be anything."""
        features, lost = lines()
        (found,) = find(features, lost, None)
        half = find({"x": np.arange(800.0)}, (np.arange(800) < 400).astype(float), None)[0].where
        halves = half | find({"x": np.arange(800.0)}, (np.arange(800) >= 400).astype(float), None)[0].where
        assert (found.where <= halves).all()
        other = np.where(halves, np.random.default_rng(1).normal(5, 100, 800), lost)
        (again,) = find(features, other, None)
        assert again.name == found.name
        assert np.array_equal(again.where, found.where)

    def test_no_group_is_on_both_sides(self) -> None:
        features, lost = lines()
        groups = [f"patient-{i // 8}" for i in range(800)]
        (found,) = find({"x": np.zeros(800), **features}, lost, groups)
        seen = np.array(groups)[found.where]
        inside = features["x: edges"] < float(found.name.split(" < ")[1])
        assert (found.where == (inside & np.isin(groups, seen))).all()

    def test_the_name_alone_gives_the_samples(self) -> None:
        draws = np.random.default_rng(3)
        features = {"a": draws.normal(0, 1e-4, 2000), "b": draws.integers(1, 9, 2000) * 32.0}
        lost = ((features["a"] < 0) & (features["b"] >= 160)).astype(float)
        (found,) = find(features, lost, None)
        inside = np.ones(2000, np.bool_)
        for condition in found.name.split(" and "):
            name, sign, value = condition.split(" ")
            inside &= features[name] < float(value) if sign == "<" else features[name] >= float(value)
        assert {condition.split(" ")[0] for condition in found.name.split(" and ")} == {"a", "b"}
        assert (found.where <= inside).all()
        assert inside.sum() == pytest.approx(2 * found.where.sum(), rel=0.2)
        assert lost[inside].mean() > 0.9

    def test_one_condition_a_feature_and_direction(self) -> None:
        x = np.arange(4000.0)
        lost = ((x >= 1500) & (x < 2000)).astype(float)
        (found,) = find({"x": x}, lost, None)
        assert found.name.count(">=") <= 1
        assert found.name.count("<") == 1

    def test_as_many_samples_in_both_halves_and_three_regions_at_most(self) -> None:
        draws = np.random.default_rng(5)
        features = {f"f{i}": draws.random(3000) for i in range(6)}
        lost = np.sum([(one < 0.2) * (draws.random(3000) < 0.3) for one in features.values()], axis=0).astype(float)
        found = find(features, lost, None, smallest=40)
        assert 1 < len(found) <= regions.REGIONS
        assert min(one.where.sum() for one in found) >= 40
        assert (np.sum([one.where for one in found], axis=0) <= 1).all()

    @pytest.mark.parametrize(
        ("features", "lost"),
        [
            pytest.param({}, np.ones(500), id="no features"),
            pytest.param({"x": np.ones(500)}, np.arange(500.0), id="a constant feature"),
            pytest.param({"x": np.r_[np.nan, np.arange(499.0)]}, np.arange(500.0), id="NaN in a feature"),
            pytest.param({"x": np.arange(500.0)}, np.zeros(500), id="no change"),
            pytest.param({"x": np.arange(500.0)}, np.ones(500), id="the same everywhere"),
            pytest.param({"x": np.arange(500.0)}, -np.arange(500.0), id="better everywhere"),
            pytest.param({"x": np.arange(60.0)}, np.arange(60.0), id="few samples"),
        ],
    )
    def test_nothing_to_find(self, features: dict[str, np.ndarray], lost: np.ndarray) -> None:
        assert find(features, lost, None) == []

    def test_one_group_only(self) -> None:
        features, lost = lines()
        assert find(features, lost, ["one"] * 800) == []

    def test_huge_values_fit_the_tree(self) -> None:
        x = np.linspace(-1e300, 1e300, 500)
        (found,) = find({"x": x}, (x > 0).astype(float), None)
        assert found.where.any()
        assert (x[found.where] > 0).all()

    @given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=2, max_size=50, unique=True), st.data())
    def test_a_rounded_threshold_splits_alike(self, values: list[float], data: st.DataObject) -> None:
        ordered = np.sort(values)
        place = data.draw(st.integers(0, len(values) - 2))
        threshold = float((ordered[place] + ordered[place + 1]) / 2)
        rounded = regions._rounded(threshold, ordered)
        assert np.array_equal(ordered < rounded, ordered <= threshold)


class TestLoss:
    right = (np.array([True, True, False]), np.array([True, False, True]))

    def test_of_edits_is_more_edits(self) -> None:
        was, now = [(0.0, 9.0), (1.0, 9.0), (5.0, 9.0)], [(0.0, 9.0), (4.0, 9.0), (4.0, 9.0)]
        found = loss("ratio", was, now, None, None, higher_is_better=False)
        assert found is not None
        assert found.tolist() == [0, 3, -1]

    def test_of_right_and_wrong(self) -> None:
        terms = [[(float(one), 1.0) for one in rows] for rows in self.right]
        for found in (
            loss("ratio", *terms, None, None, higher_is_better=True),
            loss("auroc", *terms, *self.right, higher_is_better=True),
            loss("ece", *terms, *self.right, higher_is_better=False),
        ):
            assert found is not None
            assert found.tolist() == [0, 1, -1]

    def test_of_overlaps_whose_wholes_differ(self) -> None:
        """Dice: the second model finds the same overlap and paints 5 more pixels beside it."""
        found = loss("ratio", [(8.0, 10.0), (8.0, 10.0)], [(8.0, 15.0), (8.0, 10.0)], None, None, higher_is_better=True)
        assert found is not None
        assert found.tolist() == [4, 0]

    def test_is_unknown_without_right_and_wrong(self) -> None:
        assert loss("auroc", [(1.0, 0.5)], [(1.0, 0.5)], None, None, higher_is_better=True) is None

    def test_of_nothing_to_divide_by(self) -> None:
        found = loss("ratio", [(0.0, 0.0)], [(2.0, 0.0)], None, None, higher_is_better=False)
        assert found is not None
        assert found.tolist() == [2]


class TestDescribe:
    def test_of_images_of_two_sizes(self, tmp_path: Path) -> None:
        draws = np.random.default_rng(0)
        images = [draws.normal(0, 1, (1, 4, 6 if i % 3 else 8)).astype(np.float32) for i in range(9)]
        images[4][:] = 0
        samples = writing.write(tmp_path / "set", ((f"s{i}", {"x": one}, {}) for i, one in enumerate(images)))
        for size in (1, 4):
            found = describe(samples, size)
            assert list(found) == [
                "x: mean", "x: deviation", "x: smallest", "x: largest", "x: share of zeros", "x: edges",
                "x: length of axis 3",
            ]  # fmt: skip
            wanted = [
                (one.mean(dtype=np.float64), one.std(dtype=np.float64), one.min(), one.max(), (one == 0).mean(),
                 np.abs(np.diff(one.astype(np.float64))).mean(), one.shape[2])
                for one in images
            ]  # fmt: skip
            assert np.allclose(np.stack(list(found.values()), axis=1), wanted)

    def test_of_tokens_pixels_and_scalars(self, tmp_path: Path) -> None:
        inputs = [
            {
                "tokens": np.array([7, 7, i, 0], np.int64),
                "pixels": np.full((2, 2), 50 * i, np.uint8),
                "scalar": np.float32(i),
                "one": np.array([i], np.float32),
                "none": np.zeros((0,), np.float32),
            }
            for i in range(3)
        ]
        found = describe(writing.write(tmp_path / "set", ((f"s{i}", one, {}) for i, one in enumerate(inputs))), 2)
        assert found["tokens: number of values not 0"].tolist() == [2, 3, 3]
        assert found["tokens: different values"].tolist() == [2, 3, 3]
        assert found["pixels: mean"].tolist() == [0, 50, 100]
        assert found["scalar: mean"].tolist() == [0, 1, 2]
        assert found["one: edges"].tolist() == [0, 0, 0]
        assert not [name for name in found if "axis" in name or name.startswith("none")]


def test_a_slice_that_is_worse_is_found_without_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    """5 % of 2,000 samples, of which the model breaks a fifth: sharper edges tell them from others, nearly."""
    few_draws(monkeypatch)
    caught = 0
    for seed in range(100):
        study = planted(seed, 0.2)
        caught += any("x: edges" in name for name in study.accused(study.by_region()))
    assert caught >= 80
