"""Agreement with FP32's outputs, where there are no right answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from calib import aggregates, metrics
from calib.errors import ConfigError, DataError
from calib.metrics import Agreement, SampleScore, contract
from calib.metrics.agreement import OutputAgreement


def outputs(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


def compared(found: np.ndarray, against: np.ndarray, **options: object) -> list[SampleScore]:
    return OutputAgreement(**options).compare({"y": found}, {"y": against})  # type: ignore[arg-type]


class TestClasses:
    @given(st.integers(0, 10_000), st.integers(1, 4), st.integers(2, 5))
    def test_against_scipy(self, seed: int, steps: int, classes: int) -> None:
        found, against = outputs(seed, 3, steps, classes), outputs(seed + 1, 3, steps, classes)
        for one, two, score in zip(found, against, compared(found, against), strict=True):
            p, q = special.softmax(two.astype(np.float64), axis=1), special.softmax(one.astype(np.float64), axis=1)
            equal = one.argmax(axis=1) == two.argmax(axis=1)
            assert score.values["token"] == (equal.sum(), steps)
            assert score.values["top1"] == (equal.all(), 1) and score.right == equal.all()
            assert score.values["kl"] == (pytest.approx(stats.entropy(p, q, axis=1).sum(), abs=1e-9), steps)
            angle = float((one * two).sum() / np.sqrt((one**2).sum() * (two**2).sum()))
            assert score.values["cosine"] == (pytest.approx(angle, abs=1e-5), 1)
            ahead = [np.log(q[t, c] / np.delete(q[t], c).max()) for t, c in enumerate(two.argmax(axis=1))]
            assert score.margin == pytest.approx(min(ahead), abs=1e-9)

    def test_probabilities_are_the_softmax_of_logits(self) -> None:
        found, against = outputs(1, 4, 5, 6), outputs(2, 4, 5, 6)
        soft = [special.softmax(array.astype(np.float64), axis=-1) for array in (found, against)]
        for one, two in zip(compared(found, against), compared(*soft, outputs="probabilities"), strict=True):
            assert one.prediction == two.prediction
            assert two.values["kl"] == pytest.approx(one.values["kl"])
            assert two.margin == pytest.approx(one.margin)

    def test_of_a_model_with_itself(self) -> None:
        scores = compared(outputs(1, 4, 5, 6), outputs(1, 4, 5, 6))
        value = {
            name: aggregates.value("ratio", [score.values[name] for score in scores])
            for name in ("token", "top1", "cosine", "kl")
        }
        assert value == pytest.approx({"token": 1, "top1": 1, "cosine": 1, "kl": 0})
        assert all(score.right and score.margin is not None and score.margin > 0 for score in scores)

    def test_a_probability_that_became_0_is_a_finite_loss(self) -> None:
        found, against = np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32)
        (score,) = compared(found, against, outputs="probabilities")
        assert 90 < score.values["kl"][0] < 110 and score.margin is not None and -110 < score.margin < -90

    def test_classes_along_another_axis(self) -> None:
        found, against = outputs(1, 2, 3, 4, 5), outputs(2, 2, 3, 4, 5)
        last = compared(np.moveaxis(found, 1, -1), np.moveaxis(against, 1, -1))
        for score, other in zip(compared(found, against, axis=1), last, strict=True):
            assert score.values["token"] == other.values["token"] and score.values["token"][1] == 20
            assert score.values["kl"] == other.values["kl"]

    def test_class_numbers(self) -> None:
        metric = metrics.make("agreement", {"outputs": "classes"}, {})
        assert isinstance(metric, Agreement) and list(metric.higher_is_better) == ["token", "top1"]
        found, against = np.array([[1, 2, 3], [4, 5, 6]]), np.array([[1, 2, 3], [4, 0, 6]])
        first, second = metric.compare({"y": found}, {"y": against})
        assert first.values == {"token": (3, 3), "top1": (1, 1)} and first.prediction == "1 2 3"
        assert second.values == {"token": (2, 3), "top1": (0, 1)} and second.right is False and second.margin is None
        (only,) = metric.compare({"y": np.array([7])}, {"y": np.array([7])})
        assert only.values == {"token": (1, 1), "top1": (1, 1)}

    def test_a_prediction_is_short_and_tells_two_apart(self) -> None:
        found = outputs(1, 1, 400, 5)
        moved = found.copy()
        moved[0, 399] = -moved[0, 399]
        texts = [compared(array, found)[0].prediction for array in (found, found.copy(), moved)]
        assert texts[0] == texts[1] != texts[2] and max(map(len, texts)) == 16


class TestValues:
    metric = OutputAgreement(outputs="values")

    def test_relative_error_is_that_of_the_sqnr(self) -> None:
        against = outputs(1, 50, 8)
        found = against + outputs(2, 50, 8) / 100
        scores = self.metric.compare({"y": found}, {"y": against})
        value = aggregates.value(self.metric.aggregates["relative"], [score.values["relative"] for score in scores])
        sqnr_db = 10 * np.log10((against**2).sum() / ((found - against) ** 2).sum())
        assert -20 * np.log10(value) == pytest.approx(sqnr_db, rel=1e-5)
        assert all(score.right is None and score.margin is None for score in scores)
        assert self.metric.higher_is_better == {"cosine": True, "relative": False}

    def test_cosine_of_zeros(self) -> None:
        zero, one = np.zeros((1, 3), np.float32), np.ones((1, 3), np.float32)
        pairs = ((zero, zero, 1), (zero, one, 0), (one, zero, 0), (one, -one, -1), (one, one, 1))
        for found, against, expected in pairs:
            (score,) = self.metric.compare({"y": found}, {"y": against})
            assert score.values["cosine"] == (pytest.approx(expected), 1)

    def test_a_number_a_sample(self) -> None:
        for shape in ((2,), (2, 1)):
            found = np.array([1.5, 2.5], np.float32).reshape(shape)
            scores = self.metric.compare({"y": found}, {"y": found})
            assert [score.prediction for score in scores] == ["1.5", "2.5"]


def test_keeps_the_contract() -> None:
    y = outputs(4, 9, 5, 6)
    soft = special.softmax(y, axis=2)
    long = outputs(4, 3, 400, 3)
    for metric, array in (
        (OutputAgreement(), y),
        (OutputAgreement(axis=1), y),
        (OutputAgreement(), long),
        (OutputAgreement(outputs="probabilities"), soft),
        (OutputAgreement(outputs="classes"), y.argmax(axis=2)),
        (OutputAgreement(outputs="values"), y),
        (OutputAgreement(outputs="values"), y[:, 0, 0]),
    ):
        contract.check(metric, {"y": array})


def test_the_output_is_named_where_several_fit() -> None:
    both = {"a": outputs(1, 2, 3), "b": outputs(2, 2, 3), "n": np.array([1, 2])}
    other = {"a": outputs(3, 2, 3), "b": outputs(2, 2, 3), "n": np.array([1, 3])}
    assert OutputAgreement("b").compare(both, other)[0].values["kl"][0] == 0
    assert OutputAgreement("a").compare(both, other)[0].values["kl"][0] > 0
    assert [s.right for s in OutputAgreement(outputs="classes").compare(both, other)] == [True, False]
    for metric, says in (
        (OutputAgreement(), "compares one output of floats and the model gave a float32"),
        (OutputAgreement("c"), "compares 'c' of floats"),
        (OutputAgreement("n"), "compares 'n' of floats"),
        (OutputAgreement("a", "classes"), "compares 'a' of integers"),
    ):
        with pytest.raises(DataError, match=says):
            metric.compare(both, other)


def test_what_is_refused() -> None:
    for options, says in (({"outputs": "tokens"}, "outputs must be logits, prob"), ({"top": 1}, "does not take these")):
        with pytest.raises(ConfigError, match=says):
            metrics.make("agreement", options, {})
    y = outputs(1, 2, 3)
    soft = special.softmax(y, axis=1)
    cases = (
        (y, y[:, :2], {}, r"output 'y' is \[2, 3\] and the FP32 model has \[2, 2\]"),
        (y, y, {"outputs": "probabilities"}, "holds no probabilities"),
        (soft, soft * 2, {"outputs": "probabilities"}, "holds no probabilities"),
        (soft, soft, {}, 'set outputs to "probabilities"'),
        (y[:, :1], y[:, :1], {}, 'has no two classes along axis -1: set axis, or set outputs to "values"'),
        (y[:, 0], y[:, 0], {}, "has no two classes"),
        (y, y, {"axis": 2}, "has no two classes along axis 2"),
        (y, y, {"axis": 0}, "has no two classes along axis 0"),
        (y, y, {"axis": -2}, "has no two classes along axis -2"),
    )
    for found, against, options, says in cases:
        with pytest.raises(DataError, match=says):
            compared(found, against, **options)
    with pytest.raises(DataError, match="the FP32 model has none of that name"):
        OutputAgreement().compare({"y": y}, {"z": y})
