"""What a comparison of two runs found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calib.evidence.result import Decisions, Difference


@dataclass(frozen=True, slots=True)
class Change:
    """Something that both runs say of themselves, in words; it differs where the two texts do."""

    what: str
    before: str
    after: str

    @property
    def differs(self) -> bool:
        """Whether it changed."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class LayerChange:
    """A layer of the best candidates."""

    layer: str
    before: str  # "int8", "fp16", "fp32", or "" where the run has no such layer
    after: str


@dataclass(frozen=True, slots=True)
class Layers:
    """The layers whose precision differs."""

    compared: int  # layers of either run
    changed: tuple[LayerChange, ...]  # in the order of the graph, those of the run before first


@dataclass(frozen=True, slots=True)
class ScaleChange:
    """A tensor whose scale changed; of a weight's channels the one that changed most."""

    tensor: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """How many times larger it became."""
        return self.after / self.before


@dataclass(frozen=True, slots=True)
class Scales:
    """The scales of two candidates."""

    before: str  # name of the candidate
    after: str
    compared: int  # tensors that have a scale in both
    limit: float  # change of a scale from which it counts, as a share
    changed: tuple[ScaleChange, ...]  # the largest change first
    only_before: tuple[str, ...]  # tensors
    only_after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scores:
    """The best candidates on the samples that both runs evaluated.

    Attributes:
        metric: the score that is compared; "" where none is.
        higher_is_better: direction of the score.
        margin: of the later run, in the score's unit.
        before: samples of the run before.
        after: samples of the later run.
        compared: samples of both, by what they hold and, where there are right answers, by these too.
        relabelled: samples that both hold with another right answer; they are left out.
        best: later best candidate minus the one before; None where nothing is compared.
        decisions: right and wrong in the best candidate before and in the later one; None where the metric knows none.
        fp32: later FP32 model minus the one before.
        outcome: of `best`.
        sentences: what it means.
    """

    metric: str
    higher_is_better: bool
    margin: float
    before: int
    after: int
    compared: int
    relabelled: int
    best: Difference | None
    decisions: Decisions | None
    fp32: Difference | None
    outcome: Literal["better", "worse", "no difference shown", "not compared"]
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed between two runs, and whether it matters."""

    before: str  # folder
    after: str
    changes: tuple[Change, ...]  # also of what is equal
    layers: Layers
    scales: Scales
    scores: Scores
