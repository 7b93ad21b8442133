"""What a metric is: per-sample scores are the currency, a set's value is made of them by an aggregate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Outputs = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class SampleScore:
    """One sample's scores.

    Attributes:
        prediction: as text for people; two predictions are equal where their texts are.
        values: by score name the terms that `calib.aggregates` describes; (numerator, denominator) for a ratio.
        right: whether the prediction is right; None where the task knows no right and wrong.
        margin: how far the right answer is ahead of the others, in a unit of the metric's own; it falls as the model gets
            less sure of it and orders the samples that broke. None where the metric has none.
    """

    prediction: str
    values: Mapping[str, tuple[float, ...]]
    right: bool | None = None
    margin: float | None = None


@runtime_checkable
class Metric(Protocol):
    """Scores a batch against the right answers.

    Attributes:
        higher_is_better: by score name; the first one is the one that a budget speaks of.

    A metric whose scores are not all ratios says so in `aggregates: Mapping[str, str]`, by score name.
    """

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        ...

    def score(self, outputs: Outputs, targets: Sequence[str]) -> Sequence[SampleScore]:
        """Return one score a sample; `outputs` are [n, ...] and there are n targets."""
        ...


@runtime_checkable
class Agreement(Protocol):
    """Scores a batch against the FP32 model's outputs on the same samples, where there are no right answers.

    Attributes:
        higher_is_better: by score name, as a Metric's.
    """

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        ...

    def compare(self, outputs: Outputs, reference: Outputs) -> Sequence[SampleScore]:
        """Return one score a sample; both are [n, ...]."""
        ...


def aggregates_of(metric: Metric | Agreement) -> dict[str, str]:
    """Return the aggregate of each score of a metric."""
    declared: Mapping[str, str] = getattr(metric, "aggregates", {})
    return {score: declared.get(score, "ratio") for score in metric.higher_is_better}
