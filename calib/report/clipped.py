"""What the report shows of clipping on other data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calib.quality.result import Clip, Coverage
from calib.report import quality_words as words
from calib.report import text
from calib.report.quality_figures import ClipMark, Standing, clipping
from calib.report.svg import Captioned

_ROWS = 10  # of the table of tensors
_FIGURE_ROWS = 24


@dataclass(frozen=True, slots=True)
class ClipRow:
    """A line of a table of clipped shares."""

    where: str
    missing: bool
    more: bool
    tensor: str
    samples: int
    share: str
    calibration: str
    unusual: str
    overshoot: str


@dataclass(frozen=True, slots=True)
class ScalesRow:
    """A line of the table of all scales."""

    scales: str
    shown: bool
    samples: int
    overall: str
    where: str
    tensor: str
    share: str


@dataclass(frozen=True, slots=True)
class CoverageView:
    """Do the scales hold other data?"""

    source: Coverage
    figure: Captioned
    slices: tuple[ClipRow, ...]
    tensors: tuple[ClipRow, ...]
    rest: str


def coverage_view(index: int, found: Coverage) -> CoverageView:
    """Format what some scales clip; `index` is its place among several, from 1."""
    rest = found.tensors[_ROWS:]
    return CoverageView(
        source=found,
        figure=_figure(index, found),
        slices=tuple(_clip_row(clip, found) for clip in found.slices),
        tensors=tuple(_clip_row(clip, found) for clip in found.tensors[:_ROWS]),
        rest=f"Of the other {text.plural(len(rest), 'tensor')} {text.rare(max(c.share for c in rest))} is clipped at most."
        if rest
        else "",
    )


def scales_rows(found: Sequence[Coverage], shown: Sequence[Coverage]) -> tuple[ScalesRow, ...]:
    """Format all scales in short, where there are several to compare; those `shown` are told of in full."""
    return tuple(_scales_row(part, shown=part in shown) for part in found) if len(found) > 1 else ()


def _figure(index: int, found: Coverage) -> Captioned:
    every = found.slices or found.tensors
    shown = every[:_FIGURE_ROWS]
    marks = [_clip_mark(clip, found) for clip in shown]
    if found.slices:
        what = f"What {found.scales} clips in each slice, of the tensor worst off there; small dots are other tensors"
        unit, whole = "slice", found.tensors[0]
        standing = _standing(whole, found)
        marks.insert(
            0, ClipMark("all samples", whole.share, whole.calibration, standing, (), whole.tensor, strong=True)
        )
    else:
        what, unit = f"What {found.scales} clips of each tensor, worst first", "tensor"
    more = sum(map(words.clips_more, every))
    seen = (
        f"In {text.plural(more, unit)} more samples are clipped than the calibration set lets expect."
        if more
        else f"No {unit} has more clipped samples than the calibration set lets expect."
    )
    drawn = f" The {len(shown)} worst of {len(every)} are drawn." if len(shown) < len(every) else ""
    drawing = clipping(
        f"quality-clipped-{index}",
        marks,
        note="worst tensor" if found.slices else "",
        description=text.plain(f"Share of the values that {found.scales} clips. {seen}"),
    )
    counted = any(clip.calibration is not None for clip in every)
    ticks = " The line from a tick is the difference to the calibration set." if counted else ""
    return Captioned(drawing, f"{what}. {seen}{ticks} The shaded column is exactly zero.{drawn}")


def _standing(clip: Clip, found: Coverage) -> Standing:
    return "missing" if words.is_missing(clip, found) else "more" if words.clips_more(clip) else "usual"


def _clip_mark(clip: Clip, found: Coverage) -> ClipMark:
    if not clip.column:
        return ClipMark(clip.tensor, clip.share, clip.calibration, _standing(clip, found), (), "")
    others = tuple(
        other.share
        for other in found.worst
        if (other.column, other.value) == (clip.column, clip.value) and other.tensor != clip.tensor
    )
    return ClipMark(
        words.slice_name(clip), clip.share, clip.calibration, _standing(clip, found), others, clip.tensor
    )  # fmt: skip


def _clip_row(clip: Clip, found: Coverage) -> ClipRow:
    return ClipRow(
        where=words.slice_name(clip),
        missing=words.is_missing(clip, found),
        more=words.clips_more(clip),
        tensor=clip.tensor,
        samples=clip.samples,
        share=text.rare(clip.share),
        calibration=text.DASH if clip.calibration is None else text.rare(clip.calibration),
        unusual=text.percent(clip.unusual),
        overshoot=words.times(clip.overshoot),
    )


def _scales_row(found: Coverage, *, shown: bool) -> ScalesRow:
    worst = words.worst_of(found)
    return ScalesRow(
        found.scales, shown, found.samples, text.rare(found.overall),
        words.slice_name(worst) if worst else text.DASH, worst.tensor if worst else text.DASH,
        text.rare(worst.share) if worst else text.DASH,
    )  # fmt: skip
