"""Metrics: from a model's outputs and the right answers to a score for every sample.

A score is a numerator and a denominator, so that a set's value is the ratio of the sums: edits over characters for CER,
1 over 1 for a right answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from rapidfuzz.distance import Levenshtein

from calib import config
from calib.errors import CalibError, ConfigError, DataError

Outputs = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class SampleScore:
    """One sample's prediction, as text for people, and (numerator, denominator) by score name."""

    prediction: str
    values: Mapping[str, tuple[float, float]]


@runtime_checkable
class Metric(Protocol):
    """Scores a batch.

    Attributes:
        higher_is_better: by score name; the first one is the one that a budget speaks of.
    """

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        ...

    def score(self, outputs: Outputs, targets: Sequence[str]) -> Sequence[SampleScore]:
        """Return one score a sample; `outputs` are [n, ...] and there are n targets."""
        ...


@dataclass(frozen=True, slots=True)
class CtcText:
    """Text recognition with CTC, decoded greedily: CER and exact lines.

    The only output is [n, T, classes]. CER is edits (Levenshtein) over the characters of the target. An empty target
    counts edits over no characters.

    Attributes:
        charset: text of each class; class `blank` is CTC's blank.
        blank: index of the blank.
        ignore: characters that are taken out of both texts before they are compared.
    """

    charset: tuple[str, ...]
    blank: int = 0
    ignore: str = " "
    higher_is_better: Mapping[str, bool] = field(default_factory=lambda: {"cer": False, "exact": True})

    def score(self, outputs: Outputs, targets: Sequence[str]) -> list[SampleScore]:
        """Decode and compare a batch.

        Raises:
            DataError: the output is not [n, T, classes] with the charset's number of classes.
        """
        (probabilities,) = outputs.values() if len(outputs) == 1 else (np.zeros(0),)
        if probabilities.ndim != 3 or probabilities.shape[2] != len(self.charset):
            raise DataError(
                f"metric ctc-text needs one output [n, T, {len(self.charset)}] and the model gave "
                + ", ".join(f"{name} {list(array.shape)}" for name, array in outputs.items())
            )
        drop = str.maketrans("", "", self.ignore)
        result = []
        for classes, target in zip(probabilities.argmax(axis=2), targets, strict=True):
            changed = np.r_[True, classes[1:] != classes[:-1]]
            text = "".join(self.charset[index] for index in classes[changed & (classes != self.blank)])
            found, right = text.translate(drop), target.translate(drop)
            edits = Levenshtein.distance(found, right)
            scores = {"cer": (float(edits), float(len(right))), "exact": (float(found == right), 1.0)}
            result.append(SampleScore(text, scores))
        return result


def _ctc_text(
    metadata: Mapping[str, str], charset: str = "character", space: bool = True, ignore: str = " "
) -> CtcText:
    """PaddleOCR's convention: the ONNX metadata lists the classes after the blank, a line each, and then a space."""
    if charset not in metadata:
        raise ConfigError(
            f"the model's metadata has no '{charset}' with its classes (it has {', '.join(metadata) or 'none'})"
        )
    return CtcText(("", *metadata[charset].splitlines(), *([" "] if space else [])), ignore=ignore)


_BY_NAME = {"ctc-text": _ctc_text}


def make(name: str, options: Mapping[str, Any], model_metadata: Mapping[str, str], base: Path | None = None) -> Metric:
    """Return a metric: a built-in by name, or what the factory "module:attribute" makes of the options.

    Raises:
        ConfigError: no such metric, options that it does not take, or an object that is not a Metric.
    """
    try:
        if ":" in name:
            metric = config.resolve(name, base)(**options)
        elif name in _BY_NAME:
            return _BY_NAME[name](model_metadata, **options)
        else:
            raise ConfigError(f"no metric is called '{name}'; known are {', '.join(_BY_NAME)} and module:attribute")
    except CalibError:
        raise
    except TypeError as error:
        raise ConfigError(f"metric {name} does not take these options: {error}") from error
    except Exception as error:  # the user's factory may raise anything
        raise ConfigError(f"metric {name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(metric, Metric):
        raise ConfigError(
            f"{name} gave a {type(metric).__name__}, which has no higher_is_better and score(outputs, targets)"
        )
    return metric
