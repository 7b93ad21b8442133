"""What the report shows of a calibration set: answers in words, rows of tables, figures with captions."""

from __future__ import annotations

from dataclasses import dataclass

from calib.quality.drift import TAIL_LIMIT
from calib.quality.result import Curve, Drift, Duplicates, Quality, Shift, Sufficiency
from calib.report import quality_words as words
from calib.report import text
from calib.report.clipped import CoverageView, ScalesRow, coverage_view, scales_rows
from calib.report.panel import shorten
from calib.report.quality_figures import ShiftMark, shifts
from calib.report.settling import bands, deviations
from calib.report.svg import Captioned, Drawing

_ROWS = 10  # of a table of tensors
_SHIFTS = 12
_PAIRS = 10  # that are not folded away


@dataclass(frozen=True, slots=True)
class CurveRow:
    """A line of the table of tensors that need most samples."""

    tensor: str
    scale: str
    first: str
    last: str
    growth: str
    enough: str


@dataclass(frozen=True, slots=True)
class SizeView:
    """Are there enough samples?"""

    source: Sufficiency
    figures: tuple[Captioned, ...]
    first: int  # smallest size
    rows: tuple[CurveRow, ...]
    rest: str


@dataclass(frozen=True, slots=True)
class DriftView:
    """Does another set look the same?"""

    source: Drift
    figure: Captioned


@dataclass(frozen=True, slots=True)
class DuplicatesView:
    """What is on both sides?"""

    source: Duplicates
    first: tuple[tuple[str, str, str, str], ...]
    more: tuple[tuple[str, str, str, str], ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class QualityView:
    """Everything that the section on the calibration set shows."""

    answers: tuple[words.Answer, ...]
    size: SizeView | None
    coverage: tuple[CoverageView, ...]
    scales: tuple[ScalesRow, ...]  # where there are several to compare
    drift: tuple[DriftView, ...]
    duplicates: tuple[DuplicatesView, ...]
    notes: tuple[str, ...]

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """All figures, in the order of the page."""
        figures = [*(self.size.figures if self.size else ()), *(c.figure for c in self.coverage)]
        return tuple(figure.drawing for figure in (*figures, *(d.figure for d in self.drift)))


def quality_view(quality: Quality, scales: str) -> QualityView:
    """Format what was judged.

    Args:
        quality: the judgement.
        scales: name of the best candidate's, whose clipping is shown in full.

    Returns:
        Its view.
    """
    told = words.chosen(quality.coverage, scales)
    return QualityView(
        answers=words.answers(quality, scales),
        size=_size(quality.sufficiency) if quality.sufficiency and quality.sufficiency.curves else None,
        coverage=tuple(coverage_view(i, part) for i, part in enumerate(told, 1) if part.tensors),
        scales=scales_rows(quality.coverage, told),
        drift=tuple(_drift(i, part) for i, part in enumerate(quality.drift, 1)),
        duplicates=tuple(map(_duplicates, quality.duplicates)),
        notes=quality.notes,
    )


def _size(found: Sufficiency) -> SizeView:
    limit = words.share(found.tolerance)
    if found.enough is not None:
        end = f"From {found.enough:,} on all are within {limit}."
    elif found.estimate is not None:
        end = f"At {found.sizes[-1]:,} the worst is still beyond {limit}; the dotted line goes on as 1/√n would."
    else:
        end = f"At {found.sizes[-1]:,} the worst is still beyond {limit}, and no further size can be promised."
    lead = (
        "How far a scale may be from that of endless data (for 95 of 100 sets of each size), told by resampling "
        f"{text.plural(found.blocks, 'block')} of the set."
    )
    several = min(len(found.curves), 6)
    which = (
        f"The {several} tensors that need most samples" if several > 1 else "The tensor that needs most samples"
    ) + (": where the scales of other sets of each size would lie" if several > 1 else ": where its scale would lie")
    figures = (
        Captioned(
            deviations("quality-samples", found, description=text.plain(f"{lead} {end}")),
            f"{lead} {end}",
        ),
        Captioned(
            bands("quality-tensors", found, description=text.plain(f"{which}, relative to the whole set")),
            f"{which}, relative to the whole set's. A band that narrows into the green settles; one that only climbs "
            "follows the largest values, and more samples move it on. Beyond the green the axis is logarithmic.",
        ),
    )
    rest = found.curves[_ROWS:]
    return SizeView(
        source=found,
        figures=figures,
        first=found.sizes[0],
        rows=tuple(_curve_row(curve, found) for curve in found.curves[:_ROWS]),
        rest=f"The other {text.plural(len(rest), 'scale')} may be off by {words.share(rest[0].deviation[-1])} at most."
        if rest
        else "",
    )


def _curve_row(curve: Curve, found: Sufficiency) -> CurveRow:
    return CurveRow(
        tensor=curve.tensor,
        scale=f"{curve.scale:#.4g}",
        first=words.share(curve.deviation[0]),
        last=words.share(curve.deviation[-1]),
        growth=words.share(max(curve.growth, 0.0)) if abs(curve.growth) >= 0.0005 else "0",
        enough=f"{curve.enough:,}" if curve.enough is not None else f"more than {found.sizes[-1]:,}",
    )


def _drift(index: int, found: Drift) -> DriftView:
    told = found.classifier
    rows = [
        ShiftMark(
            "all together (classifier)", told.effect, told.effect > found.limit and told.p <= found.level,
            told.tail.effect, words.tail_beyond(told.tail, found), "classifier", "", words.chance(told.p),
        ),
        *(_shift_mark(shift, found) for shift in words.ranked(found)[:_SHIFTS]),
    ]  # fmt: skip
    left = len(found.shifts) - _SHIFTS
    caption = (
        f"From the calibration set ({text.plural(found.samples[0], 'sample')}) to {found.other} ({found.samples[1]:,}). "
        "Lines are shifts of typical values, of the largest or the mean |x| of a sample: 0 where neither set has the "
        "larger ones, ±1 where one always has. A triangle at ±1 says that only the other set has samples so far out. "
        + ("Red is beyond its limit and not chance." if found.beyond else "Nothing is beyond its limit and not chance.")
        + (f" {left} smaller shifts are not drawn." if left > 0 else "")
    )
    drawing = shifts(
        f"quality-drift-{index}",
        rows,
        limit=found.limit,
        tail_limit=TAIL_LIMIT * found.limit,
        other=found.other,
        description=text.plain(f"Shifts from the calibration set to {found.other}"),
    )
    return DriftView(found, Captioned(drawing, caption))


def _shift_mark(shift: Shift, found: Drift) -> ShiftMark:
    label = f"{shorten(shift.tensor, 24)} · {words.feature(shift).removesuffix(' |x|')}"
    tail, strange = words.signed_tail(shift.tail), words.tail_beyond(shift.tail, found)
    return ShiftMark(
        label, shift.effect, words.beyond(shift, found), tail, strange, shift.kind, words.times(shift.ratio),
        words.chance(shift.p),
    )  # fmt: skip


def _duplicates(found: Duplicates) -> DuplicatesView:
    rows = tuple((pair.kind, pair.calibration, pair.other, f"{pair.similarity:.3f}") for pair in found.pairs)
    return DuplicatesView(found, rows[:_PAIRS], rows[_PAIRS:], found.exact + found.near - len(rows))
