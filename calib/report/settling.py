"""Figures of how scales settle as samples are added."""

from __future__ import annotations

import math
import statistics
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullLocator

from calib.quality.result import Curve, Sufficiency
from calib.report.panel import WIDTH, plain, shorten
from calib.report.quality_figures import percents, samples_axis
from calib.report.quality_words import about
from calib.report.svg import BLUE, GREEN, INK, ORANGE, PAPER, SKY, drawing

_SHOWN = 6  # panels
_ACROSS = 3
_FARTHEST = 64  # times the set: a farther estimate would squeeze what is known
_LARGEST = 1000.0  # percent


@drawing
def deviations(name: str, found: Sufficiency, *, description: str) -> tuple[str, str, Figure]:
    """Draw how far off scales may be against the number of samples: the worst tensor and the middle one.

    Args:
        name: of the drawing.
        found: what was judged.
        description: for readers who do not see the figure.

    Returns:
        The drawing.
    """
    height = 2.9
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((0.75 / WIDTH, 0.5 / height, (WIDTH - 1.1) / WIDTH, (height - 0.95) / height))
    plain(axes, ("left", "bottom"))
    limit, floor = 100 * found.tolerance, 100 * found.tolerance / 100
    columns = list(zip(*(curve.deviation for curve in found.curves), strict=True))
    worst, middle = ([max(100 * f(c), floor) for c in columns] for f in (max, statistics.median))
    several = len(found.curves) > 2
    bottom = min(middle[-1] if several else worst[-1], limit) / 2
    samples_axis(axes, found.sizes)
    axes.set_yscale("log")
    axes.axhspan(bottom, limit, color=GREEN, alpha=0.1, linewidth=0)
    axes.axhline(limit, color=GREEN, linewidth=1, linestyle=(0, (4, 2)))
    style: dict[str, Any] = {"markersize": 5, "markeredgewidth": 1.3, "clip_on": False}
    handles: list[Line2D | Patch] = []
    if several:
        axes.plot(
            found.sizes, middle, color=SKY, linestyle="--", marker="v", markerfacecolor=PAPER, linewidth=1.4, **style
        )
        handles.append(Line2D([], [], color=SKY, marker="v", markerfacecolor=PAPER, linestyle="--", linewidth=1.4,
                              markersize=5, label="the middle one"))  # fmt: skip
    axes.plot(found.sizes, worst, color=BLUE, marker="o", linewidth=1.8, **style)
    _mark_enough(axes, found, worst[-1])
    axes.set_ylim(bottom, max(*worst, 2 * limit) * 1.25)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_minor_locator(NullLocator())
    percents(axes, signed=False)
    axes.set_ylabel("a scale may be off by")
    axes.set_xlabel("samples")
    handles.insert(0, Line2D([], [], color=BLUE, marker="o", linewidth=1.8, markersize=5, label="the worst tensor"))
    handles.append(Patch(color=GREEN, alpha=0.2, linewidth=0, label=f"within {limit:g} %"))
    _legend(figure, handles)
    return name, description, figure


def _mark_enough(axes: Axes, found: Sufficiency, worst: float) -> None:
    """Mark where all scales are within the tolerance, or where 1 / sqrt(n) would lead from the `worst` of the set."""
    last, limit = found.sizes[-1], 100 * found.tolerance
    if found.enough is not None:
        axes.axvline(found.enough, color=INK, linewidth=0.8, alpha=0.75)
        _say(axes, f"{found.enough:,}: all within {limit:g} %", found.enough, last)
    elif found.estimate is not None:
        end = min(found.estimate, _FARTHEST * last)
        at = max(worst * math.sqrt(last / end), limit)
        axes.plot([last, end], [worst, at], color=BLUE, linestyle=":", linewidth=1.4)
        if end == found.estimate:
            axes.plot([end], [at], marker="D", markersize=5, markeredgewidth=1.3, color=BLUE, markerfacecolor=PAPER)
        _say(axes, f"about {about(found.estimate)} by extrapolation", end, end)


def _say(axes: Axes, words: str, at: float, last: float) -> None:
    """Write above the axes where something is reached, to the left of it where the axes end."""
    right = at >= last
    axes.annotate(words, (at, 1), (0 if right else 3, 2), xycoords=("data", "axes fraction"), fontsize=8,
                  textcoords="offset points", ha="right" if right else "left", va="bottom")  # fmt: skip


@drawing
def bands(name: str, found: Sufficiency, *, description: str) -> tuple[str, str, Figure]:
    """Draw the worst tensors' scales, and their largest values, relative to those of the whole set.

    Within the tolerance y is linear, beyond it logarithmic, so that 1 % and 100 % can both be seen.

    Args:
        name: of the drawing.
        found: what was judged.
        description: for readers who do not see the figure.

    Returns:
        The drawing.
    """
    shown = found.curves[:_SHOWN]
    across, down = min(_ACROSS, len(shown)), -(-len(shown) // _ACROSS)
    height = 0.42 + 1.85 * down
    figure = Figure(figsize=(WIDTH, height))
    limit, amax = 100 * found.tolerance, found.calibrator != "max"
    ends = [100 * abs(x - 1) for c in shown for line in _lines(c, amax=amax) for x in line]
    reach = min(max(*ends, 3 * limit), _LARGEST) * 1.2
    every = 1 if len(found.sizes) <= 4 else 2
    step = (WIDTH - 0.6) / max(across, 2)
    for index, curve in enumerate(shown):
        x, y = 0.6 + step * (index % _ACROSS), height - 0.72 - 1.85 * (index // _ACROSS) - 1.1
        axes = figure.add_axes((x / WIDTH, y / height, (step - 0.2) / WIDTH, 1.1 / height))
        _panel(axes, curve, found, amax=amax, reach=reach)
        samples_axis(axes, found.sizes, every)
        percents(axes, signed=True)
        if index % across:
            axes.tick_params(labelleft=False)
    handles: list[Line2D | Patch] = [Patch(color=BLUE, alpha=0.4, linewidth=0, label="scale, where 95 % lie")]
    if amax:
        label = "largest value, where 95 % lie"
        handles.append(Line2D([], [], color=ORANGE, linestyle="--", linewidth=1.2, label=label))
    handles.append(Patch(color=GREEN, alpha=0.25, linewidth=0, label=f"±{limit:g} % of the whole set's"))
    _legend(figure, handles)
    return name, description, figure


def _lines(curve: Curve, *, amax: bool) -> tuple[tuple[float, ...], ...]:
    lines = (curve.scale_low, curve.scale_high)
    return (*lines, curve.amax_low, curve.amax_high) if amax else lines


def _panel(axes: Axes, curve: Curve, found: Sufficiency, *, amax: bool, reach: float) -> None:
    plain(axes, ("left", "bottom"))
    limit = 100 * found.tolerance
    axes.set_yscale("symlog", linthresh=limit, linscale=0.6)
    axes.set_ylim(-min(reach, 130.0), reach)
    axes.axhspan(-limit, limit, color=GREEN, alpha=0.16, linewidth=0)
    lines = [[100 * (x - 1) for x in line] for line in _lines(curve, amax=amax)]
    axes.fill_between(found.sizes, lines[0], lines[1], color=BLUE, alpha=0.28, linewidth=0)
    for line in lines[:2]:
        axes.plot(found.sizes, line, color=BLUE, linewidth=1.3)
    for line in lines[2:]:
        axes.plot(found.sizes, line, color=ORANGE, linewidth=1.2, linestyle="--")
    axes.axhline(0, color=INK, linewidth=0.6, alpha=0.6)
    if curve.enough is not None:
        axes.axvline(curve.enough, color=INK, linewidth=0.8, linestyle=":")
    powers = [limit * 10**k for k in range(6) if limit * 10**k <= reach]
    axes.set_yticks([*(-p for p in powers if p <= 100), 0, *powers])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize=8)
    within = f"within {limit:g} % from {curve.enough:,} on" if curve.enough else f"may be off by {_digits(curve)}"
    axes.annotate(shorten(curve.tensor, 31), (0, 1), (0, 15), xycoords="axes fraction", textcoords="offset points",
                  va="bottom", fontsize=8.5)  # fmt: skip
    axes.annotate(within, (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points", va="bottom",
                  fontsize=8, alpha=0.75)  # fmt: skip


def _digits(curve: Curve) -> str:
    value = 100 * curve.deviation[-1]
    return f"{value:.2g} %" if value < 10 else f"{value:.0f} %"


def _legend(figure: Figure, handles: list[Any]) -> None:
    figure.legend(handles=handles, loc="upper left", ncols=len(handles), frameon=False, fontsize=8.5, handletextpad=0.5,
                  columnspacing=1.6, borderaxespad=0.1, borderpad=0.1, handlelength=1.6)  # fmt: skip
