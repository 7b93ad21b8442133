"""The report's figures, as functions from plain rows to drawings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from calib.evidence.result import Interval
from calib.report import text
from calib.report.panel import SERIES, column, handle, legend, panel, shorten
from calib.report.svg import BLUE, INK, ORANGE, PAPER, RED, drawing
from calib.study.result import StudyResult

MARKS: dict[text.Status, tuple[str, str, str]] = {  # colour, marker, fill
    "baseline": (INK, "|", INK),
    "within": (BLUE, "o", BLUE),
    "unshown": (ORANGE, "o", PAPER),
    "slightly": (ORANGE, "s", ORANGE),
    "worse": (RED, "s", RED),
    "over": (RED, "s", RED),
    "few": (INK, "o", PAPER),
    "unknown": (INK, "o", PAPER),
}


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One line of a forest plot."""

    label: str
    delta: float
    low: float | None
    high: float | None
    status: text.Status
    value: str  # the metric, formatted
    control: bool = False
    strong: bool = False
    faint: bool = False

    @classmethod
    def of(
        cls, label: str, value: float, delta: float, interval: Interval | None, status: text.Status, **flags: bool
    ) -> ForestRow:
        """Format a row."""
        low, high = (None, None) if interval is None else (interval.low, interval.high)
        return cls(label, delta, low, high, status, text.number(value), **flags)


def signed_budget(result: StudyResult) -> float:
    """Return the difference that is just acceptable; its sign says which way is worse."""
    return -result.max_drop if result.higher_is_better[result.budget_metric] else result.max_drop


@drawing
def forest(
    name: str, rows: Sequence[ForestRow], *, metric: str, budget: float, description: str
) -> tuple[str, str, Figure]:
    """Draw differences to FP32 with their intervals, FP32 as a line at 0 and the budget as another.

    Args:
        name: of the drawing.
        rows: from top to bottom.
        metric: its name for reading.
        budget: the difference that is just acceptable; its sign says which way is worse.
        description: for readers who do not see the figure.

    Returns:
        The drawing.
    """
    figure, axes = panel([row.label for row in rows], right=1.65, above=0.62)
    low, high = _limits(rows, budget)
    axes.set_xlim(low, high)
    edge = high if budget > 0 else low
    axes.axvspan(min(budget, edge), max(budget, edge), color=RED, alpha=0.07, linewidth=0)
    axes.axvline(0, color=INK, linewidth=0.8, alpha=0.75)
    axes.axvline(budget, color=RED, linewidth=1, linestyle=(0, (4, 2)))
    # The two lines may be close together, so their names stand on their outer sides.
    for x, label, colour, side in (
        (0.0, "FP32", INK, "right" if budget > 0 else "left"),
        (budget, "budget", RED, "left" if budget > 0 else "right"),
    ):
        axes.annotate(
            label, (x, 1), (2 if side == "left" else -2, 2), xycoords=("data", "axes fraction"),
            textcoords="offset points", ha=side, va="bottom", fontsize=8, color=colour,
        )  # fmt: skip
    for y, row in enumerate(rows):
        _draw_row(axes, y, row, low, high)
    column(axes, 12, [row.value for row in rows], metric)
    column(axes, 62, ["" if row.status == "baseline" else text.signed(row.delta) for row in rows], "difference")
    axes.set_xlabel(f"{metric} minus FP32's ({'higher' if budget > 0 else 'lower'} is worse)")
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    legend(figure, _forest_handles(rows))
    return name, description, figure


def _forest_handles(rows: Sequence[ForestRow]) -> list[Line2D]:
    handles = []
    for status, mark in MARKS.items():
        if status != "baseline" and any(row.status == status and not row.control for row in rows):
            handles.append(handle(text.STATUS_WORDS[status], *mark))
    if any(row.control for row in rows):
        handles.append(handle("control", INK, "D", PAPER))
    return handles


def _draw_row(axes: Axes, y: int, row: ForestRow, low: float, high: float) -> None:
    colour, marker, fill = (INK, "D", PAPER) if row.control else MARKS[row.status]
    alpha = 0.7 if row.control else 0.55 if row.faint else 1.0
    if row.low is not None and row.high is not None:
        axes.plot([max(row.low, low), min(row.high, high)], [y, y], color=colour, linewidth=1.6, alpha=alpha)
    if not low <= row.delta <= high:
        marker, fill = (">" if row.delta > high else "<"), colour
    at = min(max(row.delta, low), high) if math.isfinite(row.delta) else high
    size = 9 if marker == "|" else 7 if row.strong else 5.5
    axes.plot(
        [at], [y], marker=marker, markersize=size, color=colour, markerfacecolor=fill, markeredgewidth=1.4,
        linestyle="none", alpha=alpha, clip_on=False, zorder=3,
    )  # fmt: skip


def _limits(rows: Sequence[ForestRow], budget: float) -> tuple[float, float]:
    """Return axis limits that one ruined candidate cannot stretch until the others are one dot."""
    ends = [x for row in rows for x in (row.delta, row.low, row.high) if x is not None and math.isfinite(x)]
    reach = [max(abs(row.delta), abs(row.high or 0)) for row in rows if row.status != "baseline"]
    cap = max(4 * abs(budget), 5 * statistics.median([x for x in reach if math.isfinite(x)] or [0.0]))
    inside = [0.0, budget, *(x for x in ends if abs(x) <= cap)]
    pad = 0.07 * (max(inside) - min(inside)) or 1e-4
    return min(inside) - pad, max(inside) + pad


@drawing
def values(
    name: str,
    labels: Sequence[str],
    baseline: Sequence[float | None],
    series: Mapping[str, Sequence[float | None]],
    *,
    metric: str,
    description: str,
) -> tuple[str, str, Figure]:
    """Draw the metric of each slice: a tick for FP32 and a mark for each candidate.

    Args:
        name: of the drawing.
        labels: of the slices, from top to bottom.
        baseline: FP32's value for each slice.
        series: candidate -> its value for each slice.
        metric: its name for reading.
        description: for readers who do not see the figure.

    Returns:
        The drawing.
    """
    figure, axes = panel(labels, right=0.3, above=0.45)
    shown = [v for line in (baseline, *series.values()) for v in line if v is not None and math.isfinite(v)]
    if shown and min(shown) > 0 and max(shown) / min(shown) > 30:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.hlines(range(len(labels)), 0, 1, transform=axes.get_yaxis_transform(), color=INK, alpha=0.13, linewidth=0.6)
    handles = [handle("FP32", INK, "|", INK)]
    for index, (candidate, line) in enumerate(series.items()):
        colour, marker, _ = SERIES[index % len(SERIES)]
        fill = colour if index < len(SERIES) else "none"
        _scatter(axes, line, colour, marker, fill)
        handles.append(handle(shorten(candidate, 22), colour, marker, fill))
    _scatter(axes, baseline, INK, "|", INK)
    axes.set_xlabel(metric)
    legend(figure, handles)
    return name, description, figure


def _scatter(axes: Axes, line: Sequence[float | None], colour: str, marker: str, fill: str) -> None:
    points = [(v, y) for y, v in enumerate(line) if v is not None and math.isfinite(v)]
    axes.plot(
        [x for x, _ in points], [y for _, y in points], marker=marker, color=colour, markerfacecolor=fill,
        linestyle="none", markersize=12 if marker == "|" else 5.5, markeredgewidth=1.6 if marker == "|" else 1.1,
        alpha=0.9,
    )  # fmt: skip
