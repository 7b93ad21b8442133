"""The parts that the figures share: axes with one labelled line for each row, legends, columns of text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calib.report import text
from calib.report.svg import BLUE, GREEN, ORANGE, PURPLE, SKY

WIDTH = 7.8  # inches
_ROW = 0.29
SERIES = ((BLUE, "o", "-"), (ORANGE, "s", "--"), (GREEN, "^", "-."), (PURPLE, "D", "-"), (SKY, "v", "--"))


def series_colour(index: int | None) -> str:
    """Return the CSS variable of a series' colour, or the ink for a control."""
    if index is None:
        return "currentColor"
    return ("var(--blue)", "var(--orange)", "var(--green)", "var(--purple)", "var(--sky)")[index % len(SERIES)]


def panel(labels: Sequence[str], *, right: float, above: float) -> tuple[Figure, Axes]:
    """Return axes with one labelled line for each row, sized so that every label has room."""
    shown = [shorten(label, 34) for label in labels]
    left = 0.22 + 0.068 * max(map(_columns, shown), default=0)
    body, below = _ROW * max(len(shown), 1), 0.5
    height = body + below + above
    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_axes((left / WIDTH, below / height, (WIDTH - left - right) / WIDTH, body / height))
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_yticks([])
    for y, label in enumerate(shown):
        axes.annotate(
            label, (0, y), (-72 * left, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
            va="center_baseline",
        )  # fmt: skip
    plain(axes, ("bottom",))
    return figure, axes


def plain(axes: Axes, kept: Sequence[str]) -> None:
    """Leave only the `kept` sides of the frame, and no background."""
    axes.patch.set_visible(False)
    axes.figure.patch.set_visible(False)
    for side, spine in axes.spines.items():
        spine.set_visible(side in kept)
    axes.tick_params(labelsize=8.5)


def column(axes: Axes, offset: float, cells: Sequence[str], heading: str) -> None:
    """Write a column of text, one cell for each row, `offset` points to the right of the axes."""
    for y, cell in enumerate(cells):
        axes.annotate(
            cell, (1, y), (offset, 0), xycoords=axes.get_yaxis_transform(), textcoords="offset points",
            va="center_baseline", fontsize=8.5,
        )  # fmt: skip
    axes.annotate(
        heading, (1, 1), (offset, 2), xycoords="axes fraction", textcoords="offset points", va="bottom", fontsize=8,
        alpha=0.75,
    )  # fmt: skip


def handle(label: str, colour: str, marker: str, fill: str) -> Line2D:
    """Return a mark for a legend."""
    return Line2D(
        [], [], color=colour, marker=marker, markerfacecolor=fill, linestyle="none", label=label,
        markersize=9 if marker == "|" else 6, markeredgewidth=1.3,
    )  # fmt: skip


def legend(figure: Figure, handles: list[Line2D], *, length: float = 1) -> None:
    """Put the marks in one row above the figure; lines need more `length` than points."""
    if handles:
        figure.legend(
            handles=handles, loc="upper left", ncols=len(handles), frameon=False, fontsize=8.5,
            handletextpad=0.3, columnspacing=1.4, borderaxespad=0.1, borderpad=0.1, handlelength=length,
        )  # fmt: skip


def _columns(label: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in label)


def shorten(label: str, limit: int) -> str:
    """Cut the middle: names differ at their ends more often than there."""
    label = text.plain(label)
    return label if len(label) <= limit else f"{label[: limit // 2]}…{label[-(limit - limit // 2 - 1) :]}"
