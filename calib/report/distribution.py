"""The distribution of a tensor with the candidates' thresholds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from calib.report.panel import SERIES, plain
from calib.report.svg import INK, drawing

_WIDTH, _HEIGHT = 5.0, 2.45  # inches
_BINS = 120


@dataclass(frozen=True, slots=True)
class Threshold:
    """A vertical line of a histogram."""

    key: str  # one letter, repeated in the table beside the figure
    at: float
    series: int | None  # index of its colour; None for a control


@drawing
def histogram(
    name: str, edges: Sequence[float], share: Sequence[float], thresholds: Sequence[Threshold], *, description: str
) -> tuple[str, str, Figure]:
    """Draw a tensor's distribution of log2 |x| with each candidate's threshold.

    Args:
        name: of the drawing.
        edges: n + 1 ascending edges, log2.
        share: of the values in each of n bins.
        thresholds: lines to draw.
        description: for readers who do not see the figure.

    Returns:
        The drawing.
    """
    lines = [(math.log2(line.at), line) for line in thresholds if line.at > 0 and math.isfinite(line.at)]
    edges, share, left = _rebin(edges, share)
    right = max([edges[-1], *(x for x, _ in lines)]) + 0.4
    left = min([left, *(x - 0.4 for x, _ in lines)])
    figure = Figure(figsize=(_WIDTH, _HEIGHT))
    axes = figure.add_axes((0.6 / _WIDTH, 0.45 / _HEIGHT, (_WIDTH - 0.75) / _WIDTH, (_HEIGHT - 0.85) / _HEIGHT))
    plain(axes, ("left", "bottom"))
    floor = min([s for s in share if s > 0] or [1e-6]) / 2
    axes.stairs(share, edges, baseline=floor, fill=True, color=INK, alpha=0.28, linewidth=0)
    axes.set_yscale("log")
    axes.set_ylim(floor, max([*share, 10 * floor]) * 2)
    axes.set_xlim(left, right)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(_power))
    axes.set_xlabel("log₂ |x|")
    axes.set_ylabel("share of values")
    places = [(x - left) / (right - left) for x, _ in lines]
    for (_, line), at, label in zip(lines, places, _spread(places, 0.042), strict=True):
        colour, _, dash = (INK, "", ":") if line.series is None else SERIES[line.series % len(SERIES)]
        style: dict[str, Any] = {"transform": axes.transAxes, "color": colour, "clip_on": False}
        axes.plot([at, at], [0, 1.02], linestyle=dash, linewidth=1.4, **style)
        axes.plot([at, label], [1.02, 1.09], linewidth=0.7, **style)
        axes.text(label, 1.1, line.key, ha="center", va="bottom", fontsize=8.5, fontweight="bold", **style)
    return name, description, figure


def _power(value: float, _position: int | None) -> str:
    exponent = str(round(math.log10(value)))
    return "1" if exponent == "0" else "10" + exponent.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _rebin(edges: Sequence[float], share: Sequence[float]) -> tuple[list[float], list[float], float]:
    """Merge neighbouring bins until few enough are left to draw, and find where the left tail starts to matter."""
    bins = [(a, b, s) for a, b, s in zip(edges, edges[1:], share, strict=False) if math.isfinite(a) and b > a]
    if not bins:
        return [0.0, 1.0], [0.0], 0.0
    step = -(-len(bins) // _BINS)
    merged = [bins[i : i + step] for i in range(0, len(bins), step)]
    below, left = 0.0, merged[0][0][0]
    for group in merged:
        left = group[0][0]
        below += sum(s for _, _, s in group)
        if below > 0.001:
            break
    return [*(g[0][0] for g in merged), merged[-1][-1][1]], [sum(s for _, _, s in g) for g in merged], left


def _spread(positions: Sequence[float], gap: float) -> list[float]:
    """Move labels apart by as little as lets each have `gap`, within 0 and 1 (pool adjacent violators)."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    pools: list[list[float]] = []
    for rank, index in enumerate(order):
        pools.append([positions[index] - rank * gap])
        while len(pools) > 1 and statistics.fmean(pools[-2]) > statistics.fmean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    spread = [statistics.fmean(pool) for pool in pools for _ in pool]
    result = [0.0] * len(positions)
    for rank, index in enumerate(order):
        result[index] = min(spread[rank] + rank * gap, 1 - (len(order) - 1 - rank) * gap)
    return result
