"""What both templates show: a StudyResult as formatted rows, captions and drawings."""

from __future__ import annotations

from dataclasses import dataclass

from calib.report import evidence_words as words
from calib.report import text
from calib.report.candidates import CandidateRow, candidate_rows, candidates_figure
from calib.report.cautions import cautions
from calib.report.evidence import EvidenceView, evidence_view
from calib.report.quality import QualityView, quality_view
from calib.report.slices import SlicesView, slices_view
from calib.report.svg import Captioned, Drawing
from calib.report.tensors import TensorView, tensor_view
from calib.report.terms import terms
from calib.study.result import Candidate, LayerPrecision, StudyResult


@dataclass(frozen=True, slots=True)
class StratumRow:
    """A line of the table of both sets."""

    stratum: str
    calibration: int
    evaluation: int


@dataclass(frozen=True, slots=True)
class View:
    """Everything the templates show beside the result itself."""

    metric: str
    direction: str
    best: Candidate
    baseline: Candidate
    cautions: tuple[str, ...]
    evidence: EvidenceView
    terms: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]  # column order: the budget metric first
    candidates: tuple[CandidateRow, ...]
    candidates_caption: str
    candidates_figure: Captioned
    slices: SlicesView
    no_flips: str  # said where there are none
    lead: str  # how flips are ordered, where they are
    precision: str
    exceptions: tuple[LayerPrecision, ...]  # layers that are not INT8, or were built otherwise
    tensors: tuple[TensorView, ...]
    quality: QualityView | None
    strata: tuple[StratumRow, ...]

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """All figures, in the order of the page."""
        evidence = (self.evidence.figure.drawing,) if self.evidence.figure else ()
        quality = self.quality.drawings if self.quality else ()
        tensors = tuple(tensor.drawing for tensor in self.tensors)
        return (self.candidates_figure.drawing, *evidence, *self.slices.drawings, *quality, *tensors)


def view(result: StudyResult) -> View:
    """Format a result."""
    baseline = next(c for c in result.candidates if c.kind == "baseline")
    best = next((c for c in result.candidates if c.name == result.verdict.candidate), baseline)
    metrics = (result.budget_metric, *(m for m in best.metrics if m != result.budget_metric))
    series = {c.name: i for i, c in enumerate(c for c in result.candidates if c.kind == "candidate")}
    return View(
        metric=text.title(result.budget_metric),
        direction="higher" if result.higher_is_better[result.budget_metric] else "lower",
        best=best,
        baseline=baseline,
        cautions=cautions(result, best),
        evidence=evidence_view(result, baseline, best),
        terms=terms(result),
        metrics=metrics,
        candidates=candidate_rows(result, metrics, baseline, best),
        candidates_caption=_caption(result, best),
        candidates_figure=candidates_figure(result, best),
        slices=slices_view(result, baseline, best),
        no_flips="No flips were recorded."
        if best.broken is not None
        else f"No sample is broken or fixed: {words.NO_RIGHT}.",
        lead=", those first whose right answer lost most of its margin over the others"
        if any(flip.lost is not None for flip in result.flips)
        else "",
        precision=_precision(result),
        exceptions=tuple(row for row in result.precision if row.reason or row.asked != "int8"),
        tensors=tuple(tensor_view(i, tensor, series) for i, tensor in enumerate(result.tensors, 1)),
        quality=quality_view(result.quality, best.name) if result.quality else None,
        strata=tuple(
            StratumRow(s, result.calibration.by_stratum.get(s, 0), result.evaluation.by_stratum.get(s, 0))
            for s in dict.fromkeys((*result.calibration.by_stratum, *result.evaluation.by_stratum))
        ),
    )


def _caption(result: StudyResult, best: Candidate) -> str:
    levels = [c.interval.level for c in result.candidates if c.interval is not None]
    intervals = f", with their {words.level(levels[0])} interval" if levels else ""
    samples = text.plural(result.evaluation.samples, "sample")
    sentence = f"{samples}; differences are to FP32 on the same samples{intervals}."
    bound, deciding = result.evidence.bound, words.deciding(result.evidence)
    if bound is None or deciding is None or bound.candidates < 2:
        return sentence
    return (
        f"{sentence} {best.name}, the best of {bound.candidates}, is judged by its {words.level(deciding.level)} interval, "
        f"{text.span(deciding)}."
    )


def _precision(result: StudyResult) -> str:
    int8 = sum(row.asked == "int8" for row in result.precision)
    planned = (
        f"{int8} of {text.plural(len(result.precision), 'layer')} of {result.verdict.candidate} are planned in INT8"
    )
    if result.built is None:
        return f"{planned}. What TensorRT builds of it was not verified."
    built = result.built
    return (
        f"{planned}, and {built.builder} builds {built.int8_built} of them in INT8: {built.kernels} kernels, "
        f"{built.kernels_fp32} for the FP32 model, built in {text.seconds(built.seconds)}."
    )
