"""What the report shows of the candidates: a table, and their differences to FP32 as a figure."""

from __future__ import annotations

from dataclasses import dataclass

from calib.report import evidence_words as words
from calib.report import text
from calib.report.figures import ForestRow, forest, signed_budget
from calib.report.svg import Captioned
from calib.study.result import Candidate, StudyResult

_KINDS = {"baseline": "", "reference": "reference", "candidate": "", "control": "control"}


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """A line of the table of candidates."""

    source: Candidate
    label: str  # "control", "reference" or ""
    status: text.Status
    metrics: tuple[str, ...]
    best: bool
    delta: str
    interval: str  # or why there is none
    agreement: str
    flips: str  # broken / fixed
    size_ratio: str


def candidate_rows(
    result: StudyResult, metrics: tuple[str, ...], baseline: Candidate, best: Candidate
) -> tuple[CandidateRow, ...]:
    """Format every candidate; `metrics` are in the order of the columns."""
    return tuple(_row(result, candidate, metrics, baseline, best) for candidate in result.candidates)


def _row(
    result: StudyResult, candidate: Candidate, metrics: tuple[str, ...], baseline: Candidate, best: Candidate
) -> CandidateRow:
    first = candidate.kind == "baseline"
    known = candidate.broken is not None and candidate.fixed is not None
    why = result.evidence.overall.why if candidate is best else ""
    return CandidateRow(
        source=candidate,
        label=_KINDS[candidate.kind],
        status=words.status(result, candidate),
        metrics=tuple(text.number(candidate.metrics[m]) if m in candidate.metrics else text.DASH for m in metrics),
        best=candidate is best,
        delta=text.DASH if first else text.signed(candidate.delta),
        interval=""
        if first
        else text.span(candidate.interval)
        if candidate.interval
        else f"{text.DASH} {why}".rstrip(),
        agreement=text.DASH if first else text.percent(candidate.agreement),
        flips=text.DASH if first or not known else f"{candidate.broken} / {candidate.fixed}",
        size_ratio=f"{candidate.size_bytes / baseline.size_bytes:.2f}\u00d7" if baseline.size_bytes else text.DASH,
    )


def candidates_figure(result: StudyResult, best: Candidate) -> Captioned:
    """Draw each candidate's difference to FP32 with its interval."""
    metric = text.title(result.budget_metric)
    statuses = [words.status(result, c) for c in result.candidates if c.kind == "candidate"]
    rows = [
        ForestRow.of(
            c.name, c.metrics[result.budget_metric], c.delta,
            words.deciding(result.evidence) if c is best else c.interval, words.status(result, c),
            control=c.kind == "control", strong=c is best,
        )
        for c in result.candidates
    ]  # fmt: skip
    within, unshown = statuses.count("within"), statuses.count("unshown")
    tail = f"; {unshown} {'crosses' if unshown == 1 else 'cross'} it, which shows nothing either way" if unshown else ""
    caption = (
        f"{metric} of each candidate minus FP32's, with its interval{words.longer(result.evidence, best.name)}. "
        f"{within} of {len(statuses)} candidates {'lies' if within == 1 else 'lie'} wholly on the good side of the "
        f"budget{tail}. {best.name} is the best at {text.signed(best.delta)}. An arrow marks a value beyond the axis."
    )
    description = "; ".join(f"{row.label} {row.value}" for row in rows)
    drawing = forest(
        "candidates",
        rows,
        metric=metric,
        budget=signed_budget(result),
        description=f"{metric}: {text.plain(description)}",
    )
    return Captioned(drawing, caption)
