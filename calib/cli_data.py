"""What `calib data check` and `calib data compare` print."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calib.quality.result import Comparison, Coverage, Drift, Duplicates, Quality, ScaleDifference, Sufficiency
from calib.report import quality_words as words
from calib.report import text

_COLOURS: dict[words.Tone, str] = {"good": "green", "open": "yellow", "bad": "red", "neutral": "dim"}
_ROWS = 5


def print_quality(quality: Quality, console: Console) -> None:
    """Print what was judged of a calibration set: the tables first, then one line for each question."""
    if quality.sufficiency is not None:
        console.print(_settling(quality.sufficiency))
    if quality.coverage:
        console.print(_clipping(quality.coverage))
    for drift in quality.drift:
        console.print(_shifts(drift))
        for line in (*drift.reasons, *drift.notes):
            console.print(f" {escape(text.plain(line))}", highlight=False)
        console.print()
    for both in quality.duplicates:
        if both.pairs:
            console.print(_pairs(both))
    for note in quality.notes:
        console.print(f"[yellow]note[/]    {escape(text.plain(note))}", highlight=False)
    console.print(_answers(words.answers(quality)))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print which scales differ between two sets, and which of the two clips less."""
    first, second = (escape(text.plain(name)) for name in (comparison.first, comparison.second))
    shown = comparison.differences[: 2 * _ROWS]
    table = _table("tensor", "1st scale", "2nd scale", "2nd / 1st", "noise", "1st clips", "2nd clips")
    for row in shown:
        beyond = _beyond_noise(row)
        cells = (
            f"{row.first:.4g}", f"{row.second:.4g}", words.times(row.ratio), f"±{words.share(row.noise)}",
            text.rare(row.clipped_first), text.rare(row.clipped_second),
        )  # fmt: skip
        table.add_row(_name(row.tensor), *cells, style="bold" if beyond else "")
    console.print(f"1st {first}\n2nd {second}", highlight=False)
    console.print(table)
    count = len(comparison.differences)
    if count > len(shown):
        console.print(f"  {count - len(shown)} more tensors differ less", highlight=False)
    off = comparison.beyond_noise
    differ = f"{off} of {text.plural(count, 'scale')} ({comparison.calibrator}) differ by more than resampling explains"
    chance = f"; by chance about {round(count / 20)} would" if off and count >= 20 else ""
    console.print(escape(differ + chance), highlight=False)
    shares = f"{text.rare(comparison.clipped_first)} against {text.rare(comparison.clipped_second)}"
    where = f"on {text.plural(comparison.evaluation, 'evaluation sample')}: {shares} of all values"
    if comparison.less_clipping == "equal":
        console.print(f"[bold]Both clip alike[/] {where}", highlight=False)
    else:
        which = first if comparison.less_clipping == "first" else second
        console.print(f"[bold]The {comparison.less_clipping} clips less[/] ({which}) {where}", highlight=False)


def _beyond_noise(row: ScaleDifference) -> bool:
    return abs(row.ratio - 1) > row.noise


def _answers(answers: Sequence[words.Answer]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for answer in answers:
        colour = _COLOURS[answer.tone]
        table.add_row(f"[bold {colour}]{answer.word}[/]", escape(text.plain(answer.sentence)))
    return table


def _settling(found: Sufficiency) -> Table:
    table = _table("tensor", *(f"{size:,}" for size in found.sizes), f"within {words.share(found.tolerance)} from")
    table.title = escape(f"How far a scale ({found.calibrator}) may be off with so many samples")
    for curve in found.curves[:_ROWS]:
        enough = f"{curve.enough:,}" if curve.enough is not None else f"more than {found.sizes[-1]:,}"
        table.add_row(_name(curve.tensor), *map(words.share, curve.deviation), enough)
    _more(table, len(found.curves) - _ROWS, "tensors need fewer")
    return table


def _clipping(found: Sequence[Coverage]) -> Table:
    table = _table("scales", "samples", "clipped", "worst off", "tensor", "clipped there", "unusual samples")
    for column in table.columns[3:5]:
        column.justify, column.overflow = "left", "fold"
    table.title = "What the scales clip (5 % of the samples are unusual by chance)"
    for part in found:
        worst = words.worst_of(part)
        ends = ("", "", "", "")
        if worst is not None:
            ends = (
                escape(text.plain(words.slice_name(worst))), _name(worst.tensor, 40), text.rare(worst.share),
                text.percent(worst.unusual),
            )  # fmt: skip
        table.add_row(escape(text.plain(part.scales)), str(part.samples), text.rare(part.overall), *ends)
    return table


def _shifts(found: Drift) -> Table:
    table = _table("feature of a sample", "effect", "median", "p", "tail", "p", "")
    table.title = escape(
        text.plain(f"{found.other} ({found.samples[1]:,} samples) against the calibration set ({found.samples[0]:,})")
    )
    told = found.classifier
    rows = [("all together, by a classifier", told.effect, "", told.p, told.tail)]
    for shift in words.ranked(found)[:_ROWS]:
        label = f"{_short(shift.tensor, 44)}, {words.feature(shift)}"
        rows.append((label, shift.effect, words.times(shift.ratio), shift.p, shift.tail))
    for label, effect, median, p, tail in rows:
        beyond = (abs(effect) > found.limit and p <= found.level) or words.tail_beyond(tail, found)
        table.add_row(
            escape(label), words.effect(effect), median, words.chance(p), words.effect(words.signed_tail(tail)),
            words.chance(tail.p), "beyond" if beyond else "", style="red" if beyond else "",
        )  # fmt: skip
    _more(table, len(found.shifts) - _ROWS, "shift less")
    return table


def _pairs(found: Duplicates) -> Table:
    table = _table("kind", "calibration", text.plain(found.other), "similarity")
    for column in table.columns[1:3]:
        column.justify, column.overflow = "left", "fold"
    table.title = escape(text.plain(f"On both sides, by {found.method}"))
    for pair in found.pairs[:_ROWS]:
        ids = (escape(text.plain(one)) for one in (pair.calibration, pair.other))
        table.add_row(pair.kind, *ids, f"{pair.similarity:.3f}")
    _more(table, found.exact + found.near - len(found.pairs[:_ROWS]), "pairs")
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    table.add_column(escape(first), overflow="fold")
    for title in others:
        table.add_column(escape(title), justify="right")
    return table


def _more(table: Table, count: int, what: str) -> None:
    if count > 0:
        table.add_row(f"[dim]{count} more {what}[/]")


def _short(name: str, limit: int) -> str:
    name = text.plain(name)
    return name if len(name) <= limit else f"…{name[1 - limit :]}"


def _name(name: str, limit: int = 44) -> str:
    return escape(_short(name, limit))
