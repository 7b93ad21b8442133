"""Metrics of text: CER, WER, exact texts, and the likelihood of the right text under CTC, which is the margin."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib import metrics
from calib.errors import ConfigError, DataError
from calib.metrics import contract, ctc
from calib.metrics.text import Comparison, CtcText, Text


def probabilities(steps: int, classes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), steps)


def by_all_paths(steps: np.ndarray, blanks: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Return the probability of every row of labels, summed over all paths one by one."""
    found: dict[tuple[int, ...], float] = defaultdict(float)
    for path in itertools.product(range(steps.shape[1]), repeat=len(steps)):
        collapsed = [label for label, _ in itertools.groupby(path)]
        probability = float(np.prod([steps[t, label] for t, label in enumerate(path)]))
        found[tuple(label for label in collapsed if label not in blanks)] += probability
    return found


class TestLikelihood:
    @given(st.integers(1, 5), st.integers(2, 4), st.booleans(), st.integers(0, 10_000))
    def test_is_the_sum_over_all_paths(self, steps: int, classes: int, two_blanks: bool, seed: int) -> None:
        sample = probabilities(steps, classes, seed)
        blanks = (1, 0) if two_blanks and classes > 2 else (1,)
        expected = by_all_paths(sample, blanks)
        texts = list(expected)  # of every length that fits: they are scored together, as a batch
        found = np.exp(ctc.log_likelihoods([sample] * len(texts), texts, blanks))
        assert found == pytest.approx([expected[text] for text in texts], rel=1e-9, abs=1e-40)
        assert found.sum() == pytest.approx(1)

    @given(st.integers(1, 4), st.integers(0, 10_000), st.floats(-5, 5))
    def test_of_logits_is_that_of_their_softmax(self, steps: int, seed: int, shift: float) -> None:
        sample = probabilities(steps, 3, seed) + 1e-6
        sample /= sample.sum(axis=1, keepdims=True)
        labels = [[], [1], [2, 1], [1, 1]]
        logits = np.log(sample) + shift
        if (np.abs(logits.sum(axis=1) - 1) < 0.01).all() and logits.min() >= 0:
            return  # these are probabilities too
        from_logits = ctc.log_likelihoods([logits] * 4, labels, [0])
        np.testing.assert_allclose(from_logits, ctc.log_likelihoods([sample] * 4, labels, [0]), rtol=1e-6, atol=1e-6)

    def test_depends_on_nothing_else_in_the_batch(self) -> None:
        samples = [probabilities(6, 4, 1), 5 * probabilities(6, 4, 2), probabilities(6, 4, 3)]
        labels = [[1, 2], [3, 3, 1], []]
        alone = [ctc.log_likelihoods([s], [own], [0])[0] for s, own in zip(samples, labels, strict=True)]
        np.testing.assert_array_equal(ctc.log_likelihoods(samples, labels, [0]), alone)

    def test_of_what_does_not_fit(self) -> None:
        """A doubled character needs a blank between: three steps."""
        sample = probabilities(2, 3, 0)
        found = ctc.log_likelihoods([sample] * 3, [[1, 1], [1, 2, 1], [1, 2]], [0])
        assert np.isneginf(found[:2]).all() and np.isfinite(found[2])

    def test_of_probabilities_that_float32_rounds_to_zero_is_a_number(self) -> None:
        (found,) = ctc.log_likelihoods([np.eye(3, dtype=np.float32)[[1, 0, 1]]], [[2]], [0])
        assert -330 < found < -90

    @pytest.mark.parametrize("dtype", [np.float16, np.float32])
    def test_of_half_precision(self, dtype: type) -> None:
        sample = probabilities(9, 200, 5).astype(dtype)
        exact = sample.astype(np.float64)
        (found,) = ctc.log_likelihoods([sample], [[3, 4]], [0])
        (expected,) = ctc.log_likelihoods([exact], [[3, 4]], [0])
        assert found == pytest.approx(expected, rel=1e-9)


def steps_of(text: str, charset: str, sure: float = 0.9) -> np.ndarray:
    """Return the probabilities of a model that is sure of each class of `text`, "-" being the blank."""
    rest = (1 - sure) / (len(charset) - 1)
    return np.array([[sure if one == character else rest for one in charset] for character in text])


class TestCtcText:
    metric = CtcText(("", "a", "b", " "))

    def test_reads_greedily_and_compares(self) -> None:
        read = steps_of("aa-ab b-", "-ab ")
        (score,) = self.metric.score({"y": read[None]}, ["aab b"])
        assert score.prediction == "aab b"
        assert score.values == {"cer": (0, 4), "exact": (1, 1)} and score.right is True
        (score,) = self.metric.score({"y": read[None]}, ["abb"])
        assert score.values == {"cer": (1, 3), "exact": (0, 1)} and score.right is False

    def test_words_are_counted_only_where_spaces_are(self) -> None:
        assert list(self.metric.higher_is_better) == ["cer", "exact"]
        metric = CtcText(("", "a", "b", " "), ignore="")
        assert metric.higher_is_better == {"cer": False, "exact": True, "wer": False}
        read = steps_of("ab a b", "-ab ")[None]
        assert metric.score({"y": read}, ["ab b b"])[0].values == {"cer": (1, 6), "exact": (0, 1), "wer": (1, 3)}
        assert metric.score({"y": read}, ["aba b"])[0].values["wer"] == (2, 2)
        assert metric.score({"y": read}, [""])[0].values == {"cer": (6, 0), "exact": (0, 1), "wer": (3, 0)}

    def test_the_margin_is_the_likelihood_a_character(self) -> None:
        read = probabilities(5, 4, 8)
        metric = CtcText(("", "a", "b", " "), ignore="")
        expected = by_all_paths(read, (0,))
        for target, labels in (("ab", (1, 2)), ("a b", (1, 3, 2)), ("aa", (1, 1))):
            (score,) = metric.score({"y": read[None]}, [target])
            assert score.margin == pytest.approx(np.log(expected[labels]) / len(target))
        assert metric.score({"y": read[None]}, [""])[0].margin == pytest.approx(np.log(expected[()]))

    def test_what_is_ignored_counts_as_a_blank(self) -> None:
        """The likelihood is that of everything that compares equal: "ab", "a b", " ab", ..."""
        read = probabilities(5, 4, 8)
        expected = by_all_paths(read, (0, 3))[(1, 1, 2)]
        margins = [self.metric.score({"y": read[None]}, [target])[0].margin for target in ("aab", "a ab", " a a b ")]
        assert margins == [pytest.approx(np.log(expected) / 3)] * 3

    def test_falls_as_the_model_is_less_sure(self) -> None:
        sure = [
            self.metric.score({"y": steps_of("a-ab", "-ab ", p)[None]}, ["aab"])[0].margin for p in (0.99, 0.9, 0.5)
        ]
        assert sure == sorted(sure, reverse=True)

    def test_there_is_none_where_the_text_cannot_be_read(self) -> None:
        read = probabilities(3, 4, 0)[None].repeat(4, axis=0)
        scores = self.metric.score({"y": read}, ["ac", "aa", "abab", "ab"])
        assert [score.margin is None for score in scores] == [True, False, True, False]

    def test_the_blank_and_the_batch_may_be_elsewhere(self) -> None:
        read = probabilities(5, 4, 8)
        (first,) = self.metric.score({"y": read[None]}, ["ab"])
        moved = metrics.make("ctc-text", {"charset": ["a", "b", " ", ""], "blank": 3, "time_major": True}, {})
        assert isinstance(moved, CtcText)
        (second,) = moved.score({"y": read[:, None, [1, 2, 3, 0]]}, ["ab"])
        assert second.margin == pytest.approx(first.margin) and second.prediction == first.prediction

    def test_the_charset_of_the_metadata(self) -> None:
        metric = metrics.make("ctc-text", {"charset": "letters"}, {"letters": "a\nb"})
        assert metric == CtcText(("", "a", "b", " "))
        assert metrics.make("ctc-text", {"space": False}, {"character": "a"}) == CtcText(("", "a"))

    def test_what_is_refused(self) -> None:
        for options, says in (
            ({}, "metadata has no 'character'"),
            ({"charset": []}, "text of each class"),
            ({"charset": [1, 2]}, "text of each class"),
            ({"charset": ["", "a"], "blank": 2}, "blank must be a class, 0 to 1"),
            ({"spaces": True}, "does not take these options"),
        ):
            with pytest.raises(ConfigError, match=says):
                metrics.make("ctc-text", options, {})
        for outputs in ({"y": np.zeros((2, 3))}, {"y": np.zeros((1, 3, 5))}, {"y": np.zeros((1, 0, 4))}, {}):
            with pytest.raises(DataError, match=r"needs one output \[n, T, 4\]"):
                self.metric.score(outputs, ["a"])


class TestText:
    def test_of_class_numbers_is_that_of_ctc(self) -> None:
        read = np.stack([probabilities(7, 4, seed) for seed in range(20)])
        targets = ["ab", "aab", "", "ba b"] * 5
        inside = metrics.make("text", {"charset": ["", "a", "b", " "], "skip": [0], "collapse": True}, {})
        assert isinstance(inside, Text)
        expected = CtcText(("", "a", "b", " ")).score({"y": read}, targets)
        for found, other in zip(inside.score({"y": read.argmax(axis=2)}, targets), expected, strict=True):
            assert (found.prediction, found.values, found.right) == (other.prediction, other.values, other.right)

    def test_of_a_sequence_with_an_end(self) -> None:
        metric = Text(("", "a", "b"), skip=(0, -1), end=9)
        rows = np.array([[0, 1, 1, 9, 2, 7], [2, 2, 9, -1, -1, -1], [1, 2, 1, 2, 1, 2], [9, 1, 1, 1, 1, 1]])
        found = metric.score({"y": rows}, ["aa", "ba", "ababab", ""])
        assert [score.prediction for score in found] == ["aa", "bb", "ababab", ""]
        assert [score.right for score in found] == [True, False, True, True]
        assert all(score.margin is None for score in found)

    def test_what_is_refused(self) -> None:
        metric = Text(("", "a"))
        for outputs in ({"y": np.zeros((2, 3))}, {"y": np.zeros((2, 3, 4), np.int64)}, {}):
            with pytest.raises(DataError, match=r"needs one output \[n, T\] of integers"):
                metric.score(outputs, ["a", "a"])
        for number in (-1, 2):
            with pytest.raises(DataError, match=f"class {number} and the charset has 2"):
                metric.score({"y": np.array([[1, number]])}, ["a"])


def test_both_keep_the_contract() -> None:
    read = np.stack([probabilities(7, 4, seed) for seed in range(12)])
    read[6:] = np.log(read[6:])  # logits among probabilities, as the rule goes by sample
    targets = ["ab", "aab", "", "ba b", "c", "abababab"] * 2
    for ignore in (" ", ""):
        contract.check(CtcText(("", "a", "b", " "), ignore=ignore), {"y": read}, targets)
        contract.check(Text(("", "a", "b", " "), ignore=ignore), {"y": read.argmax(axis=2)}, targets)


def test_ignored_characters_are_taken_from_both_texts() -> None:
    score = Comparison("-.").score("1.5 mg-l", "15 mgl")
    assert score.values == {"cer": (0, 6), "exact": (1, 1), "wer": (0, 2)}
    assert score.prediction == "1.5 mg-l"
