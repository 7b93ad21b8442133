"""What the evidence says: numbers with their uncertainty, and on whom a model is worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval."""

    low: float
    high: float
    level: float  # e.g. 0.95


@dataclass(frozen=True, slots=True)
class Difference:
    """What a model scores minus what the baseline scores, on the same samples, in the score's own unit."""

    samples: int
    groups: int  # what was drawn whole: samples, or groups of them
    changed: int  # of those, how many score otherwise in the two models
    baseline: float
    value: float
    delta: float  # value - baseline
    interval: Interval | None
    standard_error: float  # of delta; 0 where nothing changed
    why: str  # why there is no interval; "" where there is one


@dataclass(frozen=True, slots=True)
class Decisions:
    """Right and wrong in both models, and McNemar's exact test of whether they err equally often."""

    both_right: int
    broken: int  # right in the baseline, wrong in the model
    fixed: int
    both_wrong: int
    p_value: float  # two-sided


@dataclass(frozen=True, slots=True)
class Bound:
    """The question of a budget: is the drop shown to be smaller than the margin? The upper end of an interval answers."""

    margin: float  # how much worse the model may be, in the score's unit
    drop: float  # how much worse it is in this sample; negative where it is better
    least: float  # lower end of the drop's interval
    most: float  # upper end
    level: float  # of the interval: 0.95, or nearer to 1 where the best of several candidates was chosen
    candidates: int  # among which it was chosen
    shown: Literal["within", "beyond", "open"]


@dataclass(frozen=True, slots=True)
class Power:
    """What this sample could have shown, and what the margin needs."""

    power: float  # e.g. 0.8: how often it should be shown
    detectable: float  # smallest drop that would be shown to be one
    needed_if_equal: int | None  # samples that show the margin if the model is as good as the baseline
    needed_as_seen: int | None  # if it is as much worse as it seems; None where no number would do
    samples: int  # that there are


@dataclass(frozen=True, slots=True)
class SliceEvidence:
    """One subset of the samples.

    `verdict` is one of

    - "worse": shown to be worse than the baseline, after correction for all slices, and by more than the margin
    - "slightly worse": shown to be worse, by no more than the margin
    - "within": the whole interval of the drop lies within the margin
    - "open": neither is shown
    - "too few": fewer samples than a verdict needs; no test was made
    """

    kind: Literal["column", "pair", "class", "region"]
    name: str  # "device = fax", "device = fax, kind = letter", "x: edges < 0.03"
    difference: Difference
    p_value: float | None  # one-sided, of no drop; None where no test was made
    adjusted: float | None  # after Holm's correction over all tested slices
    verdict: Literal["worse", "slightly worse", "within", "open", "too few"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of one model against the baseline."""

    candidate: str
    metric: str
    aggregate: str
    higher_is_better: bool
    overall: Difference
    bound: Bound | None  # None where there is no interval
    decisions: Decisions | None  # None where the metric knows no right and wrong
    p_value: float | None  # one-sided, of no drop, over all samples
    power: Power | None  # None where there is no interval
    slices: tuple[SliceEvidence, ...]  # columns, pairs, classes, regions; by drop within each, the largest first
    tested: int  # slices that were corrected for together
    notes: tuple[str, ...]  # what was left out, and why
