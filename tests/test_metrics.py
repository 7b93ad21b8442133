"""Built-in metrics against scikit-learn and plain NumPy, what they refuse, and the contract for users' own."""

import itertools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from sklearn import metrics as oracle

from calib import aggregates, metrics
from calib.errors import ConfigError, DataError
from calib.metrics import Metric, SampleScore, aggregates_of
from calib.metrics.classification import Classification
from calib.metrics.contract import check
from calib.metrics.regression import Regression
from calib.metrics.segmentation import Segmentation, rle

DOCS = Path(__file__).parents[1] / "docs" / "metrics.md"


def values(metric: Metric, scores: Sequence[SampleScore]) -> dict[str, float]:
    return {
        name: aggregates.value(kind, [score.values[name] for score in scores])
        for name, kind in aggregates_of(metric).items()
    }


def logits(samples: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    right = rng.integers(0, classes, samples)
    numbers = rng.normal(size=(samples, classes)).astype(np.float32)
    numbers[np.arange(samples), right] += 1
    return numbers, right


def hand_made_ece(confidence: np.ndarray, right: np.ndarray) -> float:
    total = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence >= low) & (confidence < low + 1 / 15)
        if inside.any():
            total += abs(confidence[inside].mean() - right[inside].mean()) * inside.mean()
    return total


class TestClassification:
    @pytest.mark.parametrize("seed", range(3))
    def test_of_several_classes_is_scikit_learns(self, seed: int) -> None:
        numbers, right = logits(300, 6, seed)
        metric = Classification(top=(1, 2, 4))
        found = values(metric, metric.score({"y": numbers}, list(map(str, right))))
        probability = special.softmax(numbers.astype(np.float64), axis=1)
        predicted = numbers.argmax(axis=1)
        assert found == pytest.approx(
            {
                "top1": oracle.accuracy_score(right, predicted),
                "top2": oracle.top_k_accuracy_score(right, numbers, k=2),
                "top4": oracle.top_k_accuracy_score(right, numbers, k=4),
                "macro_f1": oracle.f1_score(right, predicted, average="macro"),
                "ece": hand_made_ece(probability.max(axis=1), predicted == right),
                "auroc": oracle.roc_auc_score(right, probability, multi_class="ovr", average="macro"),
            }
        )
        assert found["ece"] > 0.02 and 0.5 < found["auroc"] < 0.95  # there is something to tell apart

    @pytest.mark.parametrize("shape", [(-1,), (-1, 1), (-1, 1, 1, 1)])
    @pytest.mark.parametrize("kind", ["logits", "probabilities"])
    def test_of_one_column_is_scikit_learns_and_that_of_two(self, kind: str, shape: tuple[int, ...]) -> None:
        numbers, right = logits(200, 2, 7)
        numbers = numbers[:, 1].astype(np.float64)
        probability = special.expit(numbers)
        column = (numbers if kind == "logits" else probability).reshape(shape)
        metric = metrics.make("classification", {"outputs": kind, "classes": ["no", "yes"]}, {})
        targets = [("no", "yes")[number] for number in right]
        scores = metric.score({"y": column}, targets)
        assert values(metric, scores) == pytest.approx(
            {
                "top1": oracle.accuracy_score(right, probability > 0.5),
                "macro_f1": oracle.f1_score(right, probability > 0.5, average="macro"),
                "ece": hand_made_ece(np.maximum(probability, 1 - probability), (probability > 0.5) == right),
                "auroc": oracle.roc_auc_score(right, probability),
            }
        )
        pair = np.stack([np.zeros(200), numbers] if kind == "logits" else [1 - probability, probability], axis=1)
        for score, other in zip(scores, metric.score({"y": pair}, targets), strict=True):
            assert (score.prediction, score.right) == (other.prediction, other.right)
            assert score.margin == pytest.approx(other.margin)

    def test_logits_and_their_probabilities_score_the_same(self) -> None:
        numbers, right = logits(50, 4, 3)
        targets = list(map(str, right))
        first = Classification().score({"y": numbers}, targets)
        probability = special.softmax(numbers.astype(np.float64), axis=1)
        for score, other in zip(
            first, Classification(outputs="probabilities").score({"y": probability}, targets), strict=True
        ):
            assert score.values["ece"] == pytest.approx(other.values["ece"])
            assert score.margin == pytest.approx(other.margin)

    def test_the_margin_is_between_log_probabilities(self) -> None:
        probability = np.array([[0.7, 0.2, 0.1], [0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])
        scores = Classification(outputs="probabilities").score({"y": probability}, ["0", "2", "1"])
        assert [score.right for score in scores] == [True, False, False]
        assert scores[0].margin == pytest.approx(np.log(0.7 / 0.2))
        assert scores[1].margin == pytest.approx(np.log(0.3 / 0.5))
        assert -110 < scores[2].margin < -90  # a 0 is what float32 could not hold

    def test_of_equal_numbers_the_first_wins(self) -> None:
        numbers = np.array([[1, 3, 3, 3.0]] * 4)
        scores = Classification(top=(1, 2, 3)).score({"y": numbers}, ["0", "1", "2", "3"])
        assert [score.prediction for score in scores] == ["1"] * 4
        ranks = [[score.values[f"top{k}"][0] for k in (1, 2, 3)] for score in scores]
        assert ranks == [[0, 0, 0], [1, 1, 1], [0, 1, 1], [0, 0, 1]]
        (tied,) = Classification(outputs="probabilities").score({"y": np.array([0.5])}, ["0"])
        assert tied.right is True

    @pytest.mark.parametrize(
        ("options", "metadata", "classes"),
        [
            ({}, {"character": "0\n90\n180"}, ("0", "90", "180")),
            ({}, {"names": "{1: 'dog', 0: 'cat', 2: \"it's\"}"}, ("cat", "dog", "it's")),
            ({}, {"names": "['cat', 'dog']"}, ("cat", "dog")),
            ({}, {}, ()),
            ({"classes": []}, {"character": "0\n90"}, ()),
            ({"classes": ["a", "b"]}, {"character": "0\n90"}, ("a", "b")),
        ],
    )
    def test_the_names_of_the_classes(
        self, options: dict[str, object], metadata: dict[str, str], classes: tuple[str, ...]
    ) -> None:
        assert metrics.make("classification", options, metadata) == Classification(classes)

    @pytest.mark.parametrize(
        ("options", "metadata", "says"),
        [
            ({"classes": ["a", "b", "a"]}, {}, "each but once"),
            ({"classes": [0, 1]}, {}, "name of each class"),
            ({"classes": "a"}, {}, "classes must be a list"),
            ({"classes": ["a"]}, {}, "lists one class"),
            ({"top": 5}, {}, "top must be a list"),
            ({"top": [0]}, {}, "different numbers from 1"),
            ({"top": [1, 1]}, {}, "different numbers from 1"),
            ({"top": []}, {}, "different numbers from 1"),
            ({"outputs": "scores"}, {}, 'must be "logits" or "probabilities", not \'scores\''),
            ({}, {"names": "cat,dog"}, "'names' is no dict .* set the option classes"),
            ({}, {"names": "{1: 'dog'}"}, "'names' is no dict"),
            ({}, {"names": "3"}, "'names' is no dict"),
            ({"labels": ["a", "b"]}, {}, "does not take these options"),
        ],
    )
    def test_options_that_are_refused(self, options: dict[str, object], metadata: dict[str, str], says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            metrics.make("classification", options, metadata)

    @pytest.mark.parametrize(
        ("metric", "output", "targets", "says"),
        [
            (Classification(), [[1.0, 2.0, 0.0]], ["3"], "right answer '3' is no class number from 0 to 2"),
            (Classification(), [[1.0, 2.0, 0.0]], ["-1"], "right answer '-1' is no class number"),
            (Classification(), [[1.0, 2.0, 0.0]], [""], "right answer '' is no class number"),
            (Classification(("a", "b")), [[1.0, 2.0]], ["c"], "right answer 'c' is none of the classes a, b"),
            (Classification(("a", "b")), [[1.0, 2.0]], [""], "right answer '' is none of the classes a, b"),
            (Classification(("a", "b")), [[1.0, 2.0, 3.0]], ["a"], r"needs floats \[n, 2\] and the model gave y float64\[1, 3\]"),
            (Classification(), [[[1.0, 2.0], [3.0, 4.0]]], ["0"], r"the model gave y float64\[1, 2, 2\]"),
            (Classification(), [[1, 2, 3]], ["0"], r"needs floats .* gave y int64\[1, 3\]"),
            (Classification(), np.zeros((1, 0)), ["0"], r"the model gave y float64\[1, 0\]"),
            (Classification(), [[1.0, 2.0]], ["0", "1"], r"with n = 2 and the model gave y float64\[1, 2\]"),
            (Classification(), [[1.0, 2.0], [np.nan, 1.0]], ["0", "1"], "output 'y' holds nan in row 1 of the batch"),
            (Classification(), [[1.0, -np.inf]], ["0"], "output 'y' holds -inf in row 0"),
            (Classification(), [[0.3, 0.7], [1.0, 0.0]], ["0", "0"], 'looks like probabilities.* set the option outputs to "log'),
            (Classification(), [0.3], ["0"], "one column may be of either kind: set the option outputs"),
            (Classification(outputs="probabilities"), [[0.5, 0.5], [2.0, -1.0]], ["0", "0"], r"row 1 .*\(from -1 to 2, sum 1\)"),
            (Classification(outputs="probabilities"), [[0.5, 0.4]], ["0"], 'sum 0.9.* Set the option outputs to "logits"'),
            (Classification(outputs="probabilities"), [0.5, 1.5], ["0", "1"], r"row 1 .*\(from 1.5 to 1.5\)"),
            (Classification(top=(1, 2)), [[1.0, 2.0]], ["0"], "top2 of 2 classes is always right"),
            (Classification(), np.zeros((1, 101)), ["0"], "auroc would keep 101 numbers .* set auroc to false"),
            (Classification(output="z"), [[1.0, 2.0]], ["0"], r"reads output 'z' and the model gave y float64\[1, 2\]"),
        ],
    )  # fmt: skip
    def test_what_is_refused(self, metric: Classification, output: object, targets: list[str], says: str) -> None:
        with pytest.raises(DataError, match=says):
            metric.score({"y": np.asarray(output)}, targets)

    def test_logits_that_look_like_probabilities_are_taken_when_said(self) -> None:
        numbers = np.array([[0.3, 0.7]])
        (score,) = Classification(outputs="logits").score({"y": numbers}, ["1"])
        assert score.margin == pytest.approx(0.4)

    def test_many_classes_have_no_auroc_or_one_that_was_asked_for(self) -> None:
        numbers = np.random.default_rng(0).normal(size=(2, 300))
        without, asked = Classification(auroc=False), Classification(auroc=True)
        assert "auroc" not in without.higher_is_better
        assert set(without.score({"y": numbers}, ["0", "1"])[0].values) == {"top1", "macro_f1", "ece"}
        assert len(asked.score({"y": numbers}, ["0", "1"])[0].values["auroc"]) == 301

    def test_one_of_several_outputs_is_read(self) -> None:
        outputs = {"features": np.zeros((1, 9)), "y": np.array([[1.0, 2.0]])}
        assert Classification(output="y").score(outputs, ["1"])[0].right
        with pytest.raises(
            DataError, match=r"reads one output and the model gave features .* y .*: set the option output"
        ):
            Classification().score(outputs, ["1"])


class TestRegression:
    @pytest.mark.parametrize("columns", [1, 3])
    def test_is_scikit_learns(self, columns: int) -> None:
        rng = np.random.default_rng(columns)
        found, right = rng.normal(size=(2, 40, columns))
        targets = [json.dumps(row.tolist() if columns > 1 else row[0]) for row in right]
        metric = Regression()
        assert values(metric, metric.score({"y": found}, targets)) == pytest.approx(
            {
                "mae": oracle.mean_absolute_error(right, found),
                "rmse": oracle.root_mean_squared_error(right.ravel(), found.ravel()),
            }
        )

    def test_right_is_within_the_tolerance(self) -> None:
        found = np.array([[1.0, 2.0], [1.0, 2.5], [1.0, 2.75]], np.float32)
        scores = Regression(tolerance=0.5).score({"y": found}, ["[1, 2]"] * 3)
        assert [score.right for score in scores] == [True, True, False]
        assert [score.margin for score in scores] == [0, -0.5, -0.75]
        assert [score.prediction for score in scores] == ["1.0, 2.0", "1.0, 2.5", "1.0, 2.75"]
        assert Regression().score({"y": found[:1]}, ["[1, 2]"])[0].right is None

    @given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(1, 9))
    def test_predictions_are_equal_where_their_texts_are(self, number: float, steps: int) -> None:
        first = np.float32(number)
        other = np.nextafter(first, np.float32(np.inf if number < 0 else -np.inf), dtype=np.float32)
        texts = [Regression().score({"y": np.array([x, x])}, ["0"] * 2)[0].prediction for x in (first, first, other)]
        assert texts[0] == texts[1] != texts[2]
        assert np.float32(texts[0]) == first

    def test_integers_are_numbers_too(self) -> None:
        assert Regression().score({"y": np.array([3])}, ["1.5"])[0].values == {"mae": (1.5, 1), "rmse": (2.25, 1)}

    @pytest.mark.parametrize(
        ("output", "target", "says"),
        [
            ([1.0], "", "right answer '' is not a finite number"),
            ([1.0], "tall", "right answer 'tall' is not a finite number"),
            ([1.0], "nan", "right answer 'nan' is not a finite number"),
            ([1.0], "[NaN]", r"right answer '\[NaN\]' is not a finite number"),
            ([1.0], "1e999", "is not a finite number"),
            ([1.0], "[1" + 400 * "0" + "]", "is not a finite number"),
            ([1.0], "[1, 2]", "is not a finite number"),
            ([1.0], "[true]", "is not a finite number"),
            ([[1.0, 2.0]], "1", "right answer '1' is not a JSON list of 2 finite numbers"),
            ([[1.0, 2.0]], "[1, [2]]", "is not a JSON list of 2 finite numbers"),
            ([[1.0, 2.0]], "[1, 2", "is not a JSON list of 2 finite numbers"),
            ([[1.0, np.nan]], "[1, 2]", "output 'y' holds nan in row 0"),
            ([[[1.0]]], "1", r"needs numbers \[n\] or \[n, k\] and the model gave y float64\[1, 1, 1\]"),
            ([[]], "1", r"the model gave y float64\[1, 0\]"),
            ([["a"]], "1", "needs numbers"),
        ],
    )
    def test_what_is_refused(self, output: object, target: str, says: str) -> None:
        with pytest.raises(DataError, match=says):
            Regression().score({"y": np.asarray(output)}, [target])

    @pytest.mark.parametrize("tolerance", [-1, float("nan"), "1"])
    def test_options_that_are_refused(self, tolerance: object) -> None:
        with pytest.raises(ConfigError, match="tolerance must be a number from 0"):
            metrics.make("regression", {"tolerance": tolerance}, {})


def plain_overlap(found: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    dice, iou = [], []
    for label in range(1, 1 + int(max(found.max(), right.max()))):
        p, t = found == label, right == label
        if p.any() or t.any():
            dice.append(2 * (p & t).sum() / (p.sum() + t.sum()))
            iou.append((p & t).sum() / (p | t).sum())
    return (float(np.mean(dice)), float(np.mean(iou))) if dice else (1.0, 1.0)


masks = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(2, 5), st.integers(0, 10_000))


class TestSegmentation:
    @given(masks)
    def test_is_that_of_plain_numpy(self, drawn: tuple[int, int, int, int]) -> None:
        height, width, classes, seed = drawn
        rng = np.random.default_rng(seed)
        numbers = rng.normal(size=(2, classes, height, width)) + rng.normal(size=(2, classes, 1, 1))
        right = rng.integers(0, rng.integers(1, classes + 1), (2, height, width))
        targets = [json.dumps(one.tolist()) for one in right]
        scores = Segmentation(iou_right=0.5).score({"y": numbers}, targets)
        integers = Segmentation(iou_right=0.5).score({"y": numbers.argmax(axis=1)}, targets)
        for score, other, found, mask in zip(scores, integers, numbers.argmax(axis=1), right, strict=True):
            dice, iou = plain_overlap(found, mask)
            assert score.values == {"dice": (pytest.approx(dice), 1), "iou": (pytest.approx(iou), 1)}
            assert (score.right, score.margin) == (iou >= 0.5 - 1e-12, pytest.approx(dice))
            assert score == other

    @given(masks)
    def test_runs_are_the_mask(self, drawn: tuple[int, int, int, int]) -> None:
        height, width, _, seed = drawn
        rng = np.random.default_rng(seed)
        mask = rng.random((height, width)) < rng.choice([0, 0.5, 1])
        metric = Segmentation(outputs="probabilities")
        output = {"y": rng.random((1, 1, height, width))}
        assert metric.score(output, [rle(mask)]) == metric.score(output, [json.dumps(mask.astype(int).tolist())])
        content = json.loads(rle(mask))
        assert all(count > 0 for count in content["counts"][1:])
        runs = itertools.accumulate(content["counts"])  # pixels up to the end of each run, background first
        filled = np.searchsorted(list(runs), np.arange(mask.size), side="right") % 2
        np.testing.assert_array_equal(filled.reshape(width, height).T, mask)

    @pytest.mark.parametrize("axes", [(), (1,)])
    def test_one_number_a_pixel_has_a_threshold(self, axes: tuple[int, ...]) -> None:
        probability = np.array([[[0.1, 0.3, 0.5, 0.6, 0.9]]])
        for threshold, covered in ((0.5, 2), (0.2, 4)):
            target = rle(np.arange(5)[None] >= 5 - covered)
            for kind, numbers in (("probabilities", probability), ("logits", special.logit(probability))):
                metric = Segmentation(outputs=kind, threshold=threshold)
                (score,) = metric.score({"y": np.expand_dims(numbers, axes)}, [target])
                assert score.values["dice"] == (1, 1)

    def test_two_predictions_are_equal_where_their_texts_are(self) -> None:
        found = np.array([[[0, 1], [1, 0]], [[1, 0], [0, 1]], [[0, 1], [1, 0]]])
        texts = [score.prediction for score in Segmentation().score({"y": found}, [rle(found[0])] * 3)]
        assert texts[0] == texts[2] != texts[1]
        assert texts[0].startswith("50.00% of the pixels")

    @pytest.mark.parametrize(
        ("output", "target", "says"),
        [
            (np.zeros((1, 2, 2, 2)), "", "right answer '' is no mask .* must be JSON"),
            (np.zeros((1, 2, 2, 2)), "[[0, 1], [0]]", "is no mask"),
            (np.zeros((1, 2, 2, 2)), "[[0, 1]]", r"the output is 2 x 2, this is int64\[1, 2\]"),
            (np.zeros((1, 2, 2, 2)), "[[0, 0.5], [0, 1]]", r"this is float64\[2, 2\]"),
            (np.zeros((1, 2, 2, 2)), '"a"', "is no mask"),
            (np.zeros((1, 2, 2, 2)), "[[0, 2], [0, 1]]", "right answer has class 2; the model's are from 0 to 1"),
            (np.zeros((1, 2, 2, 2)), "[[0, -1], [0, 1]]", "right answer has class -1"),
            (np.zeros((1, 2, 2), int), "[[0, -1], [0, 1]]", "right answer has class -1; the model's are from 0"),
            (np.zeros((1, 2, 2, 2)), '{"size": [2, 2], "counts": "0n1"}', "counts are compressed"),
            (np.zeros((1, 2, 2, 2)), '{"size": [2, 2], "counts": [1, 2]}', "add up to 4 pixels"),
            (np.zeros((1, 2, 2, 2)), '{"size": [2, 2], "counts": [5, -1]}', "add up to 4 pixels"),
            (np.zeros((1, 2, 2, 2)), '{"size": [2, 2], "counts": []}', "add up to 4 pixels"),
            (
                np.zeros((1, 2, 2, 2)),
                json.dumps({"size": [2, 2], "counts": [2**62, 2**62, 2**62, 2**62, 4]}),
                "add up to 4 pixels",
            ),
            (np.zeros((1, 2, 2, 2)), '{"size": [90000, 90000], "counts": [8100000000]}', r"size is \[90000, 90000\]"),
            (np.zeros((1, 2, 2, 2)), '{"counts": [4]}', "KeyError: 'size'"),
            (
                np.zeros((1, 2, 2)),
                "[[0, 1], [0, 1]]",
                "one number a pixel may be of either kind: set the option outputs",
            ),
            (np.full((1, 2, 2), np.nan), "[[0, 1], [0, 1]]", "output 'y' holds nan"),
            (np.full((1, 2, 2), -1), "[[0, 1], [0, 1]]", "the model gave class -1"),
            (np.zeros((1, 2, 2, 2), int), "[[0, 1], [0, 1]]", r"the model gave y int64\[1, 2, 2, 2\]"),
            (np.zeros((1, 2)), "[[0, 1], [0, 1]]", r"the model gave y float64\[1, 2\]"),
            (np.zeros((1, 2, 0, 2)), "[[0, 1], [0, 1]]", r"the model gave y float64\[1, 2, 0, 2\]"),
        ],
    )
    def test_what_is_refused(self, output: np.ndarray, target: str, says: str) -> None:
        with pytest.raises(DataError, match=says):
            Segmentation().score({"y": output}, [target])

    def test_numbers_that_are_no_probabilities_are_refused(self) -> None:
        metric = Segmentation(outputs="probabilities")
        with pytest.raises(DataError, match=r'holds -3 to 0, .* set the option outputs to "logits"'):
            metric.score({"y": np.array([[[0.0, -3.0]]])}, ["[[0, 1]]"])

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"threshold": 1}, "threshold must be a number between 0 and 1"),
            ({"iou_right": 0}, "iou_right must be a number above 0"),
            ({"outputs": "mask"}, "outputs must be"),
        ],
    )
    def test_options_that_are_refused(self, options: dict[str, object], says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            metrics.make("segmentation", options, {})

    @pytest.mark.parametrize("mask", [np.zeros(3), np.zeros((0, 2)), np.array([[2, 0]])])
    def test_a_mask_that_is_none_has_no_runs(self, mask: np.ndarray) -> None:
        with pytest.raises(DataError, match="needs a mask"):
            rle(mask)


def boxes(count: int) -> tuple[dict[str, np.ndarray], list[str]]:
    rng = np.random.default_rng(3)
    corners = np.sort(rng.integers(0, 9, (count, 3, 2, 2)), axis=2).reshape(count, 3, 4).astype(np.float32)
    right = [json.dumps([[*map(float, box), 0] for box in own[:2]]) for own in corners]
    return {"boxes": corners + rng.integers(0, 2, corners.shape), "scores": rng.random((count, 3))}, right


def texts(count: int) -> list[str]:
    return ["", "ab", "b a", "aab"] * (count // 4)


def lines(count: int) -> np.ndarray:
    return np.random.default_rng(4).dirichlet(np.full(4, 0.5), (count, 5)).astype(np.float32)


N = 24
NUMBERS, RIGHT = logits(N, 4, 11)
AREAS = np.random.default_rng(5).normal(size=(N, 3, 5, 4))
ALL = [
    ("classification", {"top": [1, 2]}, {"y": NUMBERS}, list(map(str, RIGHT))),
    ("classification", {"outputs": "probabilities"}, {"y": special.softmax(NUMBERS, axis=1)}, list(map(str, RIGHT))),
    ("classification", {"outputs": "logits"}, {"y": NUMBERS[:, 0]}, list(map(str, RIGHT % 2))),
    ("regression", {}, {"y": NUMBERS}, ["[0, 1, 2, 3]"] * N),
    ("regression", {"tolerance": 1}, {"y": NUMBERS[:, :1]}, list(map(str, RIGHT))),
    ("segmentation", {}, {"y": AREAS}, [json.dumps(one.tolist()) for one in (AREAS[:, :, ::-1] > 0).argmax(axis=1)]),
    ("segmentation", {"outputs": "logits", "iou_right": 0.5}, {"y": AREAS[:, 0]}, [rle(one > 0) for one in AREAS[:, 1]]),
    ("ctc-text", {"charset": ["", "a", "b", " "]}, {"y": lines(N)}, texts(N)),
    ("ctc-text", {"charset": ["", "a", "b", " "], "ignore": ""}, {"y": 5 * lines(N)}, texts(N)),
    ("text", {"charset": ["", "a", "b", " "], "skip": [0]}, {"y": lines(N).argmax(axis=2)}, texts(N)),
    ("detection", {"iou": [0.5, 0.75]}, *boxes(N)),
    ("agreement", {}, {"y": NUMBERS}, []),
    ("agreement", {"outputs": "probabilities"}, {"y": lines(N)}, []),
    ("agreement", {"outputs": "classes"}, {"y": lines(N).argmax(axis=2)}, []),
    ("agreement", {"outputs": "values"}, {"y": NUMBERS}, []),
]  # fmt: skip


class TestContract:
    @pytest.mark.parametrize(("name", "options", "outputs", "targets"), ALL)
    def test_the_built_in_metrics_keep_it(
        self, name: str, options: dict[str, object], outputs: dict[str, np.ndarray], targets: list[str]
    ) -> None:
        check(metrics.make(name, options, {}), outputs, targets)

    def test_every_built_in_metric_is_tested_and_documented(self) -> None:
        with pytest.raises(ConfigError) as error:
            metrics.make("none", {}, {})
        names = re.search(r"known are (.*) and module", str(error.value)).group(1).split(", ")
        assert set(names) == {name for name, *_ in ALL}
        rows = re.findall(r"^\| `([a-z-]+)` \|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(names) <= set(rows)

    @pytest.mark.parametrize(("name", "options", "outputs", "targets"), ALL)
    def test_the_documented_scores_are_the_metrics(
        self, name: str, options: dict[str, object], outputs: dict[str, np.ndarray], targets: list[str]
    ) -> None:
        (row,) = re.findall(rf"^\| `{name}` \|(.*)$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
        for score in metrics.make(name, options, {}).higher_is_better:
            assert re.search(rf"`{re.sub('[0-9]+', '[0-9]+', score)}`", row)


@dataclass
class Own:
    """A user's metric that is right unless a test breaks it."""

    sample: Callable[["Own", float, float, int], SampleScore] | None = None
    higher_is_better: dict[str, bool] = field(default_factory=lambda: {"right": True})
    aggregates: dict[str, str] = field(default_factory=dict)
    calls: int = 0

    def score(self, outputs: dict[str, np.ndarray], targets: list[str]) -> list[SampleScore]:
        self.calls += 1
        given, mean = outputs["y"], float(outputs["y"].mean())
        return [(self.sample or Own.fair)(self, float(row[0]), mean, self.calls) for row in given]

    def fair(self, first: float, mean: float, calls: int) -> SampleScore:
        return SampleScore("x", {"right": (float(first > 0), 1.0)}, first > 0, first)


def one(terms: tuple[float, ...] = (1.0, 1.0), **more: object) -> SampleScore:
    return SampleScore(**{"prediction": "x", "values": {"right": terms}, **more})


OUTPUTS = {"y": np.random.default_rng(9).normal(size=(10, 2))}

BROKEN = [
    (Own(lambda m, first, mean, calls: one((float(first > mean), 1.0))), "sample . scores .* a sample at a time, and"),
    (Own(lambda m, first, mean, calls: one(margin=first - mean)), "a sample at a time"),
    (Own(lambda m, first, mean, calls: one((float(calls), 1.0))), "called again"),
    (Own(lambda m, first, mean, calls: one(prediction=str(calls))), "called again"),
    (Own(lambda m, first, mean, calls: one((1.0,))), r"'right' is \(1.0,\), and the aggregate ratio needs two finite"),
    (Own(lambda m, first, mean, calls: one([1.0, 1.0])), "aggregate ratio needs"),
    (Own(lambda m, first, mean, calls: one((None, 1.0))), "aggregate ratio needs"),
    (Own(lambda m, first, mean, calls: one((np.float32(1), 1.0))), "aggregate ratio needs"),
    (Own(lambda m, first, mean, calls: one(right=np.bool_(True))), "no bool"),
    (Own(lambda m, first, mean, calls: one((float("nan"), 1.0))), "aggregate ratio needs"),
    (Own(lambda m, first, mean, calls: one((0.0, 0.0))), "of all samples has no value: there is nothing to divide by"),
    (Own(lambda m, first, mean, calls: one(values={"wrong": (1.0, 1.0)})), "scores are wrong and higher_is_better names right"),
    (Own(lambda m, first, mean, calls: one(margin=float("inf"))), "the margin is inf"),
    (Own(lambda m, first, mean, calls: one(right=1)), "right is 1, no bool"),
    (Own(lambda m, first, mean, calls: one(right=True if first > 0 else None)), "right is None for some"),
    (Own(lambda m, first, mean, calls: one(prediction=3)), "the prediction 3 is no text"),
    (Own(lambda m, first, mean, calls: (1.0, 1.0)), "a tuple is no SampleScore"),
    (Own(higher_is_better={}), "higher_is_better must say"),
    (Own(higher_is_better={"right": 1}), "higher_is_better must say"),
    (Own(aggregates={"f1": "ratio"}), "aggregates names 'f1', which is none of the scores right"),
    (Own(aggregates={"right": "mean"}), "'right' has aggregate 'mean'; known are ratio"),
    (
        Own(lambda m, first, mean, calls: one((0.0, *[first] * (1 + 2 * (first > 0)))), aggregates={"right": "auroc"}),
        "more terms for some samples",
    ),
    (object(), "object must have higher_is_better and either score"),
]  # fmt: skip


class TestContractOfBrokenMetrics:
    def test_a_fair_one_passes(self) -> None:
        check(Own(), OUTPUTS, [""] * 10)

    @pytest.mark.parametrize(("metric", "says"), BROKEN)
    def test_each_is_caught(self, metric: object, says: str) -> None:
        with pytest.raises(AssertionError, match=says):
            check(metric, OUTPUTS, [""] * 10)

    def test_one_that_changes_outputs(self) -> None:
        class Changing(Own):
            def score(self, outputs, targets):
                outputs["y"][:] = np.abs(outputs["y"])
                return super().score(outputs, targets)

        with pytest.raises(AssertionError, match="changed output 'y'"):
            check(Changing(), {"y": OUTPUTS["y"].copy()}, [""] * 10)

    def test_one_that_skips_a_sample(self) -> None:
        class Short(Own):
            def score(self, outputs, targets):
                return super().score(outputs, targets)[1:]

        with pytest.raises(AssertionError, match="gave 9 scores for 10 samples"):
            check(Short(), OUTPUTS, [""] * 10)

    def test_one_that_looks_at_neighbours(self) -> None:
        class Neighbours(Own):
            def score(self, outputs, targets):
                y = outputs["y"][:, 0]
                return [one(margin=float(m)) for m in y - (np.roll(y, 1) if len(y) > 1 else 0)]

        with pytest.raises(AssertionError, match="a sample at a time"):
            check(Neighbours(), OUTPUTS, [""] * 10)

    def test_one_that_sorts_the_samples(self) -> None:
        class Sorting(Own):
            def score(self, outputs, targets):
                return [one(margin=float(first)) for first in np.sort(outputs["y"][:, 0])]

        with pytest.raises(AssertionError, match="in another order"):
            check(Sorting(), {"y": np.sort(OUTPUTS["y"], axis=0)}, [""] * 10)

    def test_what_it_is_given_must_be_samples(self) -> None:
        with pytest.raises(AssertionError, match="n >= 2 samples"):
            check(Own(), {"y": np.zeros((1, 2))}, [""])
        with pytest.raises(AssertionError, match="n >= 2 samples"):
            check(Own(), {"y": np.zeros((3, 2)), "z": np.zeros((4, 2))}, [""] * 3)
        with pytest.raises(AssertionError, match="a right answer for each of the 10 samples, not 2"):
            check(Own(), OUTPUTS, ["", ""])

    @pytest.mark.parametrize(
        ("up", "right", "says"),
        [
            (True, True, "'near' of FP32's own outputs is 0 .*better"),
            (False, False, "sample 0 does not agree with itself"),
        ],
    )
    def test_an_agreement_that_is_upside_down(self, up: bool, right: bool, says: str) -> None:
        class Distance:
            def __init__(self):
                self.higher_is_better = {"near": up}

            def compare(self, outputs, reference):
                off = np.abs(outputs["y"] - reference["y"]).sum(axis=1)
                return [SampleScore("x", {"near": (float(x), 1.0)}, right) for x in off]

        with pytest.raises(AssertionError, match=says):
            check(Distance(), OUTPUTS)


def test_the_example_of_the_documentation_keeps_the_contract(tmp_path: Path) -> None:
    blocks = re.findall(r"```(python|toml)\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    for name, text in blocks:
        if name == "python":
            (tmp_path / re.match(r"# (\w+\.py)\n", text).group(1)).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    studies = [tomllib.loads(text) for name, text in blocks if name == "toml"]
    for study in studies:
        metric = metrics.make(study["metric"]["name"], study["metric"]["options"], {}, tmp_path)
        assert study["budget"]["metric"] in metric.higher_is_better
    with pytest.raises(DataError, match=r"needs an output \[n, 4\]"):
        metric.score({"y": np.zeros((1, 5))}, ["0"])
