"""What the report shows of slices: on whom the best candidate is worse, and how every candidate does there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from calib.evidence.result import Evidence, SliceEvidence
from calib.report import evidence_words as words
from calib.report import text
from calib.report.figures import ForestRow, forest, signed_budget, values
from calib.report.quality_words import chance
from calib.report.svg import Captioned, Drawing
from calib.study.result import Candidate, StudyResult

_FIGURE_ROWS = 24
_OPEN = {"column": 24}  # rows that are not folded away
_OPEN_OTHERS = 12
_TITLES = {
    "column": "columns",
    "pair": "pairs of columns",
    "class": "classes",
    "region": "regions, found automatically on one half of the samples and tested on the other",
}


@dataclass(frozen=True, slots=True)
class SliceRow:
    """A line of the table of slices."""

    name: str
    samples: str
    groups: int  # 0 where samples are their own
    baseline: str
    value: str
    delta: str
    interval: str  # or why there is none
    adjusted: str
    status: text.Status


@dataclass(frozen=True, slots=True)
class SliceGroup:
    """The slices of one kind, those that lose most first."""

    title: str
    rows: tuple[SliceRow, ...]


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A line of the table of every candidate on every slice."""

    name: str
    baseline: str
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SlicesView:
    """Everything that the section on slices shows."""

    sentences: tuple[str, ...]
    first: tuple[SliceGroup, ...]
    rest: tuple[SliceGroup, ...]  # folded away
    left: int  # number of rows in the rest
    figure: Captioned | None
    values: tuple[ValueRow, ...]
    compared: tuple[str, ...]  # names of ValueRow.others
    values_figure: Captioned | None

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """The figures, in the order of the page."""
        return tuple(f.drawing for f in (self.figure, self.values_figure) if f is not None)


def slices_view(result: StudyResult, baseline: Candidate, best: Candidate) -> SlicesView:
    """Format what is known of slices."""
    found = result.evidence
    by_kind = [(kind, tuple(rows)) for kind, rows in groupby(found.slices, key=lambda s: s.kind)]
    opened = [(kind, rows, _OPEN.get(kind, _OPEN_OTHERS)) for kind, rows in by_kind]
    compared = [c for c in result.candidates if c.kind != "baseline"]
    where = [(column, value) for column, scores in best.slices.items() for value in scores]
    sentences = (words.worst(found), words.also_worse(found), words.corrected(found))
    return SlicesView(
        sentences=tuple(filter(None, sentences)),
        first=tuple(SliceGroup(_TITLES[kind], _rows(rows[:most])) for kind, rows, most in opened),
        rest=tuple(SliceGroup(_TITLES[kind], _rows(rows[most:])) for kind, rows, most in opened if rows[most:]),
        left=sum(len(rows[most:]) for _, rows, most in opened),
        figure=_figure(result, found, best) if found.slices else None,
        values=tuple(
            ValueRow(
                f"{column} = {value}",
                _shown(_value(baseline, column, value)),
                tuple(_shown(_value(c, column, value)) for c in compared),
            )
            for column, value in where
        ),
        compared=tuple(c.name for c in compared),
        values_figure=_values_figure(result, where, baseline) if where else None,
    )


def _rows(found: Sequence[SliceEvidence]) -> tuple[SliceRow, ...]:
    return tuple(map(_row, found))


def _row(found: SliceEvidence) -> SliceRow:
    difference = found.difference
    return SliceRow(
        name=found.name,
        samples=f"{difference.samples:,}",
        groups=0 if difference.groups == difference.samples else difference.groups,
        baseline=text.number(difference.baseline),
        value=text.number(difference.value),
        delta=text.signed(difference.delta),
        interval=text.span(difference.interval) if difference.interval else f"{text.DASH} {difference.why}".rstrip(),
        adjusted=text.DASH if found.adjusted is None else chance(found.adjusted),
        status=words.slice_status(found),
    )


def _figure(result: StudyResult, found: Evidence, best: Candidate) -> Captioned:
    metric, shown = text.title(result.budget_metric), found.slices[:_FIGURE_ROWS]
    overall = found.overall
    lines = [
        ForestRow.of(
            s.name, s.difference.value, s.difference.delta, s.difference.interval, words.slice_status(s),
            faint=s.verdict == "too few",
        )
        for s in shown
    ]  # fmt: skip
    whole = ForestRow.of(
        "all samples", overall.value, overall.delta, words.deciding(found), words.status(result, best), strong=True
    )
    drawing = forest(
        "slices",
        [whole, *lines],
        metric=metric,
        budget=signed_budget(result),
        description=text.plain(f"{metric} of {best.name} minus FP32's on each slice. {words.worst(found)}"),
    )
    left_out = (
        f" The first {len(shown)} of {len(found.slices)} slices are drawn." if len(shown) < len(found.slices) else ""
    )
    return Captioned(
        drawing,
        f"{best.name} on each slice, with its interval{words.longer(found, 'all samples')}: one to the worse side of “all "
        "samples” loses more than the average tells, and one whose line crosses the budget may. The budget was set for all "
        f"samples; on a slice it is a guide.{left_out}",
    )


def _values_figure(result: StudyResult, where: Sequence[tuple[str, str]], baseline: Candidate) -> Captioned:
    metric, shown = text.title(result.budget_metric), where[:_FIGURE_ROWS]
    left_out = f" The first {len(shown)} of {len(where)} slices are drawn." if len(shown) < len(where) else ""
    candidates = [c for c in result.candidates if c.kind == "candidate"]
    drawing = values(
        "slice-values",
        [f"{column} = {value}" for column, value in shown],
        [_value(baseline, *place) for place in shown],
        {c.name: [_value(c, *place) for place in shown] for c in candidates},
        metric=metric,
        description=f"{metric} of every candidate on each slice",
    )
    return Captioned(
        drawing,
        f"{metric} of FP32 (tick) and of every candidate on the slices of single columns. Look for a slice where the marks "
        f"spread: there the choice of calibrator matters. FP16 and controls are only in the table.{left_out}",
    )


def _value(candidate: Candidate, column: str, value: str) -> float | None:
    score = candidate.slices.get(column, {}).get(value)
    return score.value if score else None


def _shown(value: float | None) -> str:
    return text.DASH if value is None else text.number(value)
