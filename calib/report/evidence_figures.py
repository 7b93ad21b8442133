"""The figure of the evidence: what another number of samples would show."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from calib.evidence.result import Bound, Power
from calib.report import text
from calib.report.figures import MARKS
from calib.report.panel import WIDTH, legend, plain
from calib.report.svg import BLUE, INK, ORANGE, RED, drawing

_HEIGHT = 2.9  # inches
_REACH = 300  # times as many samples as there are: no axis goes further


@drawing
def sample_size(
    name: str, power: Power, bound: Bound, status: text.Status, *, metric: str, unit: str, description: str
) -> tuple[str, str, Figure]:
    """Draw the drop that would still be plausible against the number of samples, with the budget and this study.

    Both curves follow from `calib.evidence.power.required`: at n samples the upper end of the interval lies, as often as
    power.power says, below drop + detectable * sqrt(samples / n).

    Args:
        name: of the drawing.
        power: what the study's samples could show.
        bound: the study's drop with its interval, and the budget.
        status: of the candidate.
        metric: its name for reading.
        unit: of the number of samples, "sample" or "group".
        description: for readers who do not see the figure.

    Returns:
        The drawing.
    """
    figure = Figure(figsize=(WIDTH, _HEIGHT))
    axes = figure.add_axes((0.75 / WIDTH, 0.5 / _HEIGHT, (WIDTH - 1.55) / WIDTH, (_HEIGHT - 1.05) / _HEIGHT))
    plain(axes, ("left", "bottom"))
    left, right, bottom, top = _limits(power, bound)
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.axhspan(bound.margin, top, color=RED, alpha=0.07, linewidth=0)
    axes.axhline(bound.margin, color=RED, linewidth=1, linestyle=(0, (4, 2)))
    axes.axhline(0, color=INK, linewidth=0.8, alpha=0.75)
    for y, label, colour in ((bound.margin, "budget", RED), (0.0, "FP32", INK)):
        axes.annotate(
            label, (1, y), (4, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
            va="center_baseline", fontsize=8, color=colour,
        )  # fmt: skip
    counts = np.geomspace(left, right, 120)
    reach = power.detectable * np.sqrt(power.samples / counts)
    equal = axes.plot(counts, reach, color=BLUE, linewidth=1.8, label="if as good as FP32")
    lines = [*equal]
    if bound.drop > 0:
        lines += axes.plot(
            counts,
            bound.drop + reach,
            color=ORANGE,
            linewidth=1.8,
            linestyle=(0, (5, 1.5)),
            label="if it loses what it seems to",
        )
    _needed(axes, bound.margin, ((power.needed_if_equal, BLUE), (power.needed_as_seen, ORANGE)), right)
    colour, marker, fill = MARKS[status]
    axes.plot(
        [power.samples] * 2, [max(bound.least, bottom), min(bound.most, top)], color=colour, linewidth=2.2, zorder=3
    )
    lines += axes.plot(
        [power.samples], [bound.drop], marker=marker, markersize=6.5, color=colour, markerfacecolor=fill,
        markeredgewidth=1.4, linestyle="none", zorder=4, label=f"this study, {text.plural(power.samples, unit)}",
    )  # fmt: skip
    axes.set_xlabel(f"{unit}s")
    axes.annotate(
        f"drop of {metric}",
        (0, 1),
        (-46, 5),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=8.5,
        va="bottom",
    )
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    legend(figure, lines, length=2.2)
    return name, description, figure


def _needed(axes: Axes, margin: float, marks: Sequence[tuple[int | None, str]], right: float) -> None:
    """Mark where the curves reach the margin."""
    for count, colour in marks:
        if count is not None and count < right:
            axes.plot([count], [margin], marker="o", markersize=4.5, color=colour, zorder=4)
            axes.annotate(
                f"{count:,}",
                (count, margin),
                (3, 3),
                textcoords="offset points",
                fontsize=8.5,
                color=colour,
                va="bottom",
            )


def _limits(power: Power, bound: Bound) -> tuple[float, float, float, float]:
    """Return the axes' ends: the study stands inside, and so does what the margin needs, unless it is out of reach."""
    wanted = [count for count in (power.needed_if_equal, power.needed_as_seen) if count is not None]
    near = [count for count in wanted if count <= _REACH * power.samples]
    left = max(2.0, min([power.samples, *near]) / 3)
    right = 2.5 * max([2 * power.samples, *near])
    bottom, top = min(0.0, bound.least), max(1.8 * bound.margin, 1.15 * bound.most, 1.3 * power.detectable)
    pad = 0.05 * (top - bottom) if math.isfinite(top - bottom) else 0.0
    return left, right, bottom - pad, top
