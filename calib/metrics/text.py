"""Text: what a recognizer reads against what is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import Levenshtein

from calib.errors import ConfigError, DataError
from calib.metrics import ctc
from calib.metrics.base import Outputs, SampleScore
from calib.metrics.reading import Array, shapes


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two texts are compared: characters (cer), words (wer) and all of it (exact).

    CER is edits (Levenshtein) over the characters of the target, WER the same of the words between whitespace. An empty
    target counts edits over nothing. There is a WER only where spaces are not ignored: without them there are no words.

    Attributes:
        ignore: characters that are taken out of both texts before they are compared.
    """

    ignore: str = " "

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        return {"cer": False, "exact": True} | ({} if " " in self.ignore else {"wer": False})

    def compared(self, text: str) -> str:
        """Return the text without what is ignored."""
        return text.translate(str.maketrans("", "", self.ignore))

    def score(self, text: str, target: str, margin: float | None = None) -> SampleScore:
        """Compare what was read with what is written."""
        found, right = self.compared(text), self.compared(target)
        scores = {"cer": (float(Levenshtein.distance(found, right)), float(len(right)))}
        scores["exact"] = (float(found == right), 1.0)
        if "wer" in self.higher_is_better:
            words = right.split()
            scores["wer"] = (float(Levenshtein.distance(found.split(), words)), float(len(words)))
        return SampleScore(text, scores, right=found == right, margin=margin)


@dataclass(frozen=True, slots=True)
class CtcText:
    """Text recognition with CTC, decoded greedily: CER, exact lines and, where spaces count, WER.

    The only output is [n, T, classes]. The margin is the log-likelihood of the right text, by all its alignments, in nats a
    character (`calib.metrics.ctc`): classes whose text is ignored count as blanks, which makes it that of the text as it is
    compared. There is none where a character of the target is not a class, or the text does not fit into T steps.

    Attributes:
        charset: text of each class; class `blank` is CTC's blank.
        blank: index of the blank.
        ignore: characters that are taken out of both texts before they are compared.
        time_major: the output is [T, n, classes].
    """

    charset: tuple[str, ...]
    blank: int = 0
    ignore: str = " "
    time_major: bool = False

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        return Comparison(self.ignore).higher_is_better

    def score(self, outputs: Outputs, targets: Sequence[str]) -> list[SampleScore]:
        """Decode and compare a batch.

        Raises:
            DataError: the output is not [n, T, classes] with the charset's number of classes.
        """
        steps = _only(outputs)
        if steps.ndim != 3 or steps.shape[2] != len(self.charset) or not steps.shape[1]:
            wanted = f"[{'T, n' if self.time_major else 'n, T'}, {len(self.charset)}]"
            raise DataError(f"metric ctc-text needs one output {wanted} and the model gave {shapes(outputs)}")
        if self.time_major:
            steps = steps.swapaxes(0, 1)
        compare = Comparison(self.ignore)
        margins = self._margins(steps, [compare.compared(target) for target in targets])
        return [
            compare.score(_read(classes, self.charset, self.blank), target, margin)
            for classes, target, margin in zip(steps.argmax(axis=2), targets, margins, strict=True)
        ]

    def _margins(self, steps: Array, targets: Sequence[str]) -> list[float | None]:
        drop = str.maketrans("", "", self.ignore)
        texts = ["" if index == self.blank else text.translate(drop) for index, text in enumerate(self.charset)]
        classes = {text: index for index, text in reversed(list(enumerate(texts))) if text}
        blanks = [index for index, text in enumerate(texts) if not text]
        known = [at for at, target in enumerate(targets) if all(character in classes for character in target)]
        labels = [[classes[character] for character in targets[at]] for at in known]
        result: list[float | None] = [None] * len(targets)
        for at, found in zip(known, ctc.log_likelihoods([steps[at] for at in known], labels, blanks), strict=True):
            result[at] = float(found) / max(1, len(targets[at])) if np.isfinite(found) else None
        return result


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a model that gives class numbers: CER, exact texts and, where spaces count, WER.

    The only output is [n, T], integers.

    Attributes:
        charset: text of each class.
        skip: classes that stand for no text: padding, a begin, CTC's blank.
        end: the class after which there is no more text.
        collapse: a class that follows itself is the same character, as CTC has it.
        ignore: characters that are taken out of both texts before they are compared.
    """

    charset: tuple[str, ...]
    skip: tuple[int, ...] = ()
    end: int | None = None
    collapse: bool = False
    ignore: str = " "

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        return Comparison(self.ignore).higher_is_better

    def score(self, outputs: Outputs, targets: Sequence[str]) -> list[SampleScore]:
        """Decode and compare a batch.

        Raises:
            DataError: the output is not [n, T], integers, or holds a number that is no class.
        """
        numbers = _only(outputs)
        if numbers.ndim != 2 or numbers.dtype.kind not in "iu":
            raise DataError(f"metric text needs one output [n, T] of integers and the model gave {shapes(outputs)}")
        compare = Comparison(self.ignore)
        rows = numbers.astype(np.int64)
        return [compare.score(self._text(row), target) for row, target in zip(rows, targets, strict=True)]

    def _text(self, classes: npt.NDArray[np.int64]) -> str:
        if self.end is not None and (classes == self.end).any():
            classes = classes[: int(np.argmax(classes == self.end))]
        if self.collapse:
            classes = _collapsed(classes)
        classes = classes[~np.isin(classes, self.skip)]
        outside = classes[(classes < 0) | (classes >= len(self.charset))]
        if outside.size:
            raise DataError(
                f"metric text: the model gave class {outside[0]} and the charset has {len(self.charset)}; is it padding? "
                "then name it in skip"
            )
        return "".join(self.charset[index] for index in classes)


def _only(outputs: Outputs) -> Array:
    return next(iter(outputs.values())) if len(outputs) == 1 else np.zeros(0)


def _collapsed(classes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return classes[np.r_[True, classes[1:] != classes[:-1]]] if classes.size else classes


def _read(classes: npt.NDArray[np.int64], charset: Sequence[str], blank: int) -> str:
    classes = _collapsed(classes)
    return "".join(charset[index] for index in classes[classes != blank])


def ctc_text(
    metadata: Mapping[str, str],
    charset: str | Sequence[str] = "character",
    space: bool = True,
    blank: int = 0,
    ignore: str = " ",
    time_major: bool = False,
) -> CtcText:
    """Make the metric.

    Args:
        metadata: of the ONNX model.
        charset: the text of each class, in order, the blank's too; or the metadata's key under which PaddleOCR lists the
            classes after the blank, a line each.
        space: a class " " comes after those of the metadata.
        blank: index of CTC's blank.
        ignore: characters that are not compared.
        time_major: the output is [T, n, classes].
    """
    classes = _classes(metadata, charset)
    if isinstance(charset, str):
        classes = ("", *classes, *([" "] if space else []))
    if not 0 <= blank < len(classes):
        raise ConfigError(f"blank must be a class, 0 to {len(classes) - 1}, not {blank}")
    return CtcText(classes, blank, ignore, time_major)


def text(
    metadata: Mapping[str, str],
    charset: str | Sequence[str] = "character",
    skip: Sequence[int] = (),
    end: int | None = None,
    collapse: bool = False,
    ignore: str = " ",
) -> Text:
    """Make the metric; `charset` is the text of each class, or the metadata's key that lists them, a line each."""
    return Text(_classes(metadata, charset), tuple(skip), end, collapse, ignore)


def _classes(metadata: Mapping[str, str], charset: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(charset, str):
        if charset in metadata:
            return tuple(metadata[charset].splitlines())
        raise ConfigError(
            f"the model's metadata has no '{charset}' with its classes (it has {', '.join(metadata) or 'none'}): give "
            "charset, the text of each class"
        )
    if not charset or not all(isinstance(entry, str) for entry in charset):
        raise ConfigError("charset must be the text of each class, or the key of the model's metadata that lists them")
    return tuple(charset)
