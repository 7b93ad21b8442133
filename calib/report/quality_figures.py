"""Figures of a calibration set: how its scales settle, what they clip elsewhere, where other data differs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullFormatter, NullLocator

from calib.report.panel import WIDTH, column, handle, legend, panel, shorten
from calib.report.svg import BLUE, INK, ORANGE, PAPER, RED, drawing

Standing = Literal["usual", "more", "missing"]

_STANDINGS: dict[Standing, tuple[str, str, str, str]] = {  # colour, marker, fill, words
    "usual": (BLUE, "o", BLUE, "as expected"),
    "more": (ORANGE, "o", PAPER, "more than expected"),
    "missing": (RED, "s", RED, "not in the calibration set"),
}
_KINDS = {"classifier": "D", "input": "s", "activation": "o"}
_SMALLEST = -6  # log10 of a share; below it is drawn there


@dataclass(frozen=True, slots=True)
class ClipMark:
    """One line of the figure of clipped shares."""

    label: str
    share: float
    calibration: float | None
    standing: Standing
    others: tuple[float, ...]  # shares of other tensors in the same slice
    note: str  # to the right of it
    strong: bool = False


@drawing
def clipping(name: str, rows: Sequence[ClipMark], *, note: str, description: str) -> tuple[str, str, Figure]:
    """Draw shares of clipped values on a log axis that has a place of its own for zero.

    Args:
        name: of the drawing.
        rows: from top to bottom.
        note: heading of the rows' notes; "" where there are none.
        description: for readers who do not see the figure.

    Returns:
        The drawing.
    """
    figure, axes = panel([row.label for row in rows], right=2.6 if note else 0.85, above=0.62)
    shares = [s for row in rows for s in (row.share, row.calibration, *row.others) if s]
    low = min(max(math.floor(math.log10(min(shares, default=1e-3))), _SMALLEST), -2)
    high = max(math.ceil(math.log10(max(shares, default=1e-3))), low + 1)
    zero = low - 0.8
    axes.set_xlim(zero - 0.25, high + 0.1)
    axes.axvspan(zero - 0.25, low - 0.3, color=INK, alpha=0.06, linewidth=0)
    axes.hlines(range(len(rows)), 0, 1, transform=axes.get_yaxis_transform(), color=INK, alpha=0.13, linewidth=0.6)
    inches = axes.get_position().width * WIDTH * (high - low) / (high - zero)
    ticks = range(high, low - 1, -max(1, math.ceil(0.62 * (high - low) / inches)))
    axes.set_xticks([zero, *ticks], ["0", *(f"{10.0 ** (tick + 2):.15g} %" for tick in ticks)])
    for y, row in enumerate(rows):
        colour, marker, fill, _ = _STANDINGS[row.standing]
        at = _place(row.share, low, zero)
        axes.plot([_place(s, low, zero) for s in row.others], [y] * len(row.others), linestyle="none", marker="o",
                  markersize=3, color=INK, alpha=0.35, markeredgewidth=0)  # fmt: skip
        if row.calibration is not None:
            before = _place(row.calibration, low, zero)
            axes.plot([before, at], [y, y], color=colour, linewidth=1.4, alpha=0.7)
            axes.plot([before], [y], marker="|", markersize=9, color=INK, markeredgewidth=1.3, clip_on=False)
        axes.plot([at], [y], marker=marker, markersize=7 if row.strong else 5.5, color=colour, markerfacecolor=fill,
                  markeredgewidth=1.4, clip_on=False, zorder=3)  # fmt: skip
    column(axes, 10, [_percent(row.share) for row in rows], "clipped")
    if note:
        column(axes, 58, [shorten(row.note, 23) for row in rows], note)
    axes.set_xlabel("share of the values that is clipped")
    used = [standing for standing in _STANDINGS if any(row.standing == standing for row in rows)]
    handles = [handle(words, c, m, f) for c, m, f, words in map(_STANDINGS.__getitem__, used)]
    if any(row.calibration is not None for row in rows):
        handles.append(handle("on the calibration set", INK, "|", INK))
    legend(figure, handles)
    return name, description, figure


def _place(value: float, low: int, zero: float) -> float:
    return max(math.log10(value), low) if value > 0 else zero


def _percent(value: float) -> str:
    if value <= 0:
        return "0"
    return "< 0.0001 %" if value < 1e-6 else f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


@dataclass(frozen=True, slots=True)
class ShiftMark:
    """One line of the figure of shifts."""

    label: str
    effect: float  # of typical values
    beyond: bool
    tail: float  # effect in the tail, negative for the lower one
    tail_beyond: bool
    kind: Literal["input", "activation", "classifier"]
    ratio: str
    p: str


@drawing
def shifts(
    name: str, rows: Sequence[ShiftMark], *, limit: float, tail_limit: float, other: str, description: str
) -> tuple[str, str, Figure]:
    """Draw the sizes of shifts between two sets, typical and in the tail, with the limits on either side.

    Args:
        name: of the drawing.
        rows: from top to bottom.
        limit: of an effect.
        tail_limit: of an effect in the tail.
        other: name of the other set.
        description: for readers who do not see the figure.

    Returns:
        The drawing.
    """
    figure, axes = panel([row.label for row in rows], right=1.45, above=0.62)
    axes.set_xlim(-1.04, 1.04)
    for side in (-1, 1):
        axes.axvspan(*sorted((side * limit, side * 1.04)), color=RED, alpha=0.06, linewidth=0)
        axes.axvline(side * limit, color=RED, linewidth=1, linestyle=(0, (4, 2)))
        if tail_limit < 1:
            axes.axvline(side * tail_limit, color=RED, linewidth=0.8, linestyle=":")
    axes.axvline(0, color=INK, linewidth=0.8, alpha=0.75)
    axes.hlines(range(len(rows)), 0, 1, transform=axes.get_yaxis_transform(), color=INK, alpha=0.13, linewidth=0.6)
    for x, label, shift, align in ((limit, "limit", -1, "right"), (tail_limit, "of the tail", 1, "left")):
        if x < 1:
            axes.annotate(label, (x, 1), (shift, 2), xycoords=("data", "axes fraction"), ha=align, va="bottom",
                          textcoords="offset points", fontsize=8, color=RED)  # fmt: skip
    for y, row in enumerate(rows):
        tail = RED if row.tail_beyond else INK
        axes.plot([row.tail], [y], marker=">" if row.tail > 0 else "<", markersize=5.5, color=tail, clip_on=False,
                  markerfacecolor=tail if row.tail_beyond else PAPER, alpha=1 if row.tail_beyond else 0.6)  # fmt: skip
        colour = RED if row.beyond else BLUE
        axes.plot([0, row.effect], [y, y], color=colour, linewidth=1.6)
        axes.plot([row.effect], [y], marker=_KINDS[row.kind], markersize=5.5, color=colour, markeredgewidth=1.4,
                  clip_on=False, zorder=3)  # fmt: skip
    column(axes, 12, [row.ratio for row in rows], "median")
    column(axes, 58, [row.p for row in rows], "p")
    axes.xaxis.set_major_locator(MultipleLocator(0.5))
    axes.set_xlabel(f"smaller in {shorten(other, 24)}  ←  effect  →  larger in {shorten(other, 24)}")
    handles = [handle(kind, INK, mark, INK) for kind, mark in _KINDS.items() if any(row.kind == kind for row in rows)]
    handles.append(handle("in the tail", INK, ">", PAPER))
    if any(row.beyond or row.tail_beyond for row in rows):
        handles.append(handle("red: beyond its limit, and not chance", RED, "o", RED))
    legend(figure, handles)
    return name, description, figure


def samples_axis(axes: Axes, sizes: Sequence[int], every: int = 1) -> None:
    """Make x a log2 axis of numbers of samples; `every` n-th size, counted from the last, has a label."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    shown = sizes[::-1][::every]
    axes.set_xticks(list(shown), [f"{size:,}" for size in shown])


def percents(axes: Axes, *, signed: bool) -> None:
    """Label y as relative deviations in percent."""
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:{'+' if signed and value else ''}g} %".replace("-", "\u2212"))
    )
    axes.yaxis.set_minor_formatter(NullFormatter())
