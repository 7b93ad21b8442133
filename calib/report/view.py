"""What both templates show: a StudyResult as formatted rows, captions and drawings."""

from __future__ import annotations

from dataclasses import dataclass

from calib.report import text
from calib.report.figures import ForestRow, forest, values
from calib.report.quality import QualityView, quality_view
from calib.report.quality_words import cautions
from calib.report.svg import Captioned, Drawing
from calib.report.tensors import TensorView, tensor_view
from calib.study.result import Candidate, Interval, LayerPrecision, SliceScore, StudyResult

_FIGURE_ROWS = 24
_FEW = 30  # samples; below it a slice's interval is itself rough


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """A line of the table of candidates."""

    source: Candidate
    status: text.Status
    metrics: tuple[str, ...]
    best: bool
    size_ratio: str


@dataclass(frozen=True, slots=True)
class SliceRow:
    """A line of the table of slices."""

    column: str
    value: str
    samples: int
    few: bool
    baseline: str
    score: SliceScore
    status: text.Status
    others: tuple[str, ...]  # each candidate and control, in order


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
    status: text.Status
    level: str
    metrics: tuple[str, ...]  # column order: the budget metric first
    candidates: tuple[CandidateRow, ...]
    candidates_figure: Captioned
    cautions: tuple[str, ...]
    controls: tuple[str, ...]
    slices: tuple[SliceRow, ...]
    slice_figures: tuple[Captioned, ...]
    compared: tuple[str, ...]  # names of SliceRow.others
    precision: str
    exceptions: tuple[LayerPrecision, ...]  # layers that are not INT8, or were built otherwise
    tensors: tuple[TensorView, ...]
    quality: QualityView | None
    strata: tuple[StratumRow, ...]

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """All figures, in the order of the page."""
        tensors = tuple(tensor.drawing for tensor in self.tensors)
        quality = self.quality.drawings if self.quality else ()
        return (self.candidates_figure.drawing, *(f.drawing for f in self.slice_figures), *quality, *tensors)


def view(result: StudyResult) -> View:
    """Format a result."""
    baseline = next(c for c in result.candidates if c.kind == "baseline")
    best = next((c for c in result.candidates if c.name == result.verdict.candidate), baseline)
    metrics = (result.budget_metric, *(m for m in best.metrics if m != result.budget_metric))
    rows = _slice_rows(result, baseline, best)
    intervals = [c.interval for c in result.candidates if c.interval is not None]
    series = {c.name: i for i, c in enumerate(c for c in result.candidates if c.kind == "candidate")}
    return View(
        metric=text.title(result.budget_metric),
        direction="higher" if _up(result) else "lower",
        best=best,
        baseline=baseline,
        status=_judge(result, best.delta, best.interval),
        level=f"{100 * intervals[0].level:g} %" if intervals else "",
        metrics=metrics,
        candidates=tuple(_candidate_row(result, c, metrics, baseline) for c in result.candidates),
        candidates_figure=_candidates_figure(result, best),
        cautions=_cautions(result, best),
        controls=tuple(c.name for c in result.candidates if c.kind == "control"),
        slices=rows,
        slice_figures=_slice_figures(result, rows, baseline, best) if rows else (),
        compared=tuple(c.name for c in result.candidates if c.kind != "baseline"),
        precision=_precision(result),
        exceptions=tuple(row for row in result.precision if row.reason or row.asked != "int8"),
        tensors=tuple(tensor_view(i, tensor, series) for i, tensor in enumerate(result.tensors, 1)),
        quality=quality_view(result.quality, best.name) if result.quality else None,
        strata=tuple(
            StratumRow(s, result.calibration.by_stratum.get(s, 0), result.evaluation.by_stratum.get(s, 0))
            for s in dict.fromkeys((*result.calibration.by_stratum, *result.evaluation.by_stratum))
        ),
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


def _up(result: StudyResult) -> bool:
    return result.higher_is_better[result.budget_metric]


def _budget(result: StudyResult) -> float:
    return -result.max_drop if _up(result) else result.max_drop


def _judge(result: StudyResult, delta: float, interval: Interval | None) -> text.Status:
    return text.judge(delta, interval, max_drop=result.max_drop, higher_is_better=_up(result))


def _harm(result: StudyResult, delta: float) -> float:
    return -delta if _up(result) else delta


def _candidate_row(
    result: StudyResult, candidate: Candidate, metrics: tuple[str, ...], baseline: Candidate
) -> CandidateRow:
    reference = candidate.kind == "baseline"
    return CandidateRow(
        source=candidate,
        status="reference" if reference else _judge(result, candidate.delta, candidate.interval),
        metrics=tuple(text.number(candidate.metrics[m]) if m in candidate.metrics else text.DASH for m in metrics),
        best=candidate.name == result.verdict.candidate,
        size_ratio=f"{candidate.size_bytes / baseline.size_bytes:.2f}\u00d7" if baseline.size_bytes else text.DASH,
    )


def _forest_row(
    label: str, value: float, delta: float, interval: Interval | None, status: text.Status, **flags: bool
) -> ForestRow:
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return ForestRow(label, delta, low, high, status, text.number(value), **flags)


def _candidates_figure(result: StudyResult, best: Candidate) -> Captioned:
    metric = text.title(result.budget_metric)
    rows, statuses = [], []
    for c in result.candidates:
        status = "reference" if c.kind == "baseline" else _judge(result, c.delta, c.interval)
        statuses += [status] if c.kind == "candidate" else []
        rows.append(
            _forest_row(
                c.name, c.metrics[result.budget_metric], c.delta, c.interval, status,
                control=c.kind == "control", strong=c is best,
            )
        )  # fmt: skip
    within, unshown = statuses.count("within"), statuses.count("unshown")
    tail = f"; {unshown} {'crosses' if unshown == 1 else 'cross'} it, which shows nothing either way" if unshown else ""
    caption = (
        f"{metric} of each candidate minus FP32's, with its interval. {within} of {len(statuses)} candidates "
        f"{'lies' if within == 1 else 'lie'} wholly on the good side of the budget line{tail}. "
        f"{best.name} is the best at {text.signed(best.delta)}. An arrow marks a value beyond the axis."
    )
    description = "; ".join(f"{row.label} {row.value}" for row in rows)
    drawing = forest(
        "candidates", rows, metric=metric, budget=_budget(result), description=f"{metric}: {text.plain(description)}"
    )
    return Captioned(drawing, caption)


def _slice_rows(result: StudyResult, baseline: Candidate, best: Candidate) -> tuple[SliceRow, ...]:
    rows = []
    compared = [c for c in result.candidates if c.kind != "baseline"]
    for column, scores in best.slices.items():
        for value, score in scores.items():
            reference = baseline.slices.get(column, {}).get(value)
            found = [c.slices.get(column, {}).get(value) for c in compared]
            rows.append(
                SliceRow(
                    column=column,
                    value=value,
                    samples=score.samples,
                    few=score.samples < _FEW,
                    baseline=text.number(reference.value) if reference else text.DASH,
                    score=score,
                    status=_judge(result, score.delta, score.interval),
                    others=tuple(text.number(s.value) if s else text.DASH for s in found),
                )
            )
    return tuple(rows)


def _slice_figures(
    result: StudyResult, rows: tuple[SliceRow, ...], baseline: Candidate, best: Candidate
) -> tuple[Captioned, ...]:
    metric, shown = text.title(result.budget_metric), rows[:_FIGURE_ROWS]
    left_out = f" The first {len(shown)} of {len(rows)} slices are drawn." if len(shown) < len(rows) else ""
    overall = _forest_row(
        "all samples", best.metrics[result.budget_metric], best.delta, best.interval,
        _judge(result, best.delta, best.interval), strong=True,
    )  # fmt: skip
    labels = [f"{row.column} = {row.value}" for row in shown]
    lines = [
        _forest_row(label, row.score.value, row.score.delta, row.score.interval, row.status)
        for label, row in zip(labels, shown, strict=True)
    ]
    worst = max(rows, key=lambda row: _harm(result, row.score.delta))
    deltas = forest(
        "slices", [overall, *lines], metric=metric, budget=_budget(result),
        description=text.plain(f"{metric} of {best.name} minus FP32's on each slice"),
    )  # fmt: skip
    candidates = [c for c in result.candidates if c.kind == "candidate"]
    everyone = values(
        "slice-values",
        labels,
        [_value(baseline, row) for row in shown],
        {c.name: [_value(c, row) for row in shown] for c in candidates},
        metric=metric,
        description=f"{metric} of every candidate on each slice",
    )
    return (
        Captioned(
            deltas,
            f"{best.name} on each slice: a slice to the worse side of “all samples” loses more than the average tells. "
            f"The worst is {worst.column} = {worst.value} at {text.signed(worst.score.delta)}.{left_out}",
        ),
        Captioned(
            everyone,
            f"{metric} of FP32 (tick) and of every candidate on the same slices. Look for a slice where the marks "
            f"spread: there the choice of calibrator matters. Controls are only in the table.{left_out}",
        ),
    )


def _value(candidate: Candidate, row: SliceRow) -> float | None:
    score = candidate.slices.get(row.column, {}).get(row.value)
    return score.value if score else None


def _cautions(result: StudyResult, best: Candidate) -> tuple[str, ...]:
    """Return what a reader of the verdict alone would miss."""
    found = []
    status = _judge(result, best.delta, best.interval)
    if result.verdict.passed and status != "within":
        found.append(
            f"The study passed {best.name}, but "
            + (
                "it has no interval: chance is not ruled out."
                if status == "unknown"
                else "its interval is not wholly within the budget: that is not shown."
            )
        )
    for control in (c for c in result.candidates if c.kind == "control"):
        if best.kind == "candidate" and _harm(result, control.delta) <= _harm(result, best.delta):
            found.append(
                f"The control {control.name} does no worse than {best.name}: on this evaluation set the calibration "
                "data makes no visible difference."
            )
    missing = [s for s in result.evaluation.by_stratum if not result.calibration.by_stratum.get(s)]
    told = result.quality is not None and any(part.uncovered for part in result.quality.coverage)
    if result.calibration.by_stratum and missing and not told:
        found.append(f"Not one calibration sample comes from: {', '.join(missing)}.")
    return (*found, *(cautions(result.quality, best.name) if result.quality else ()))
