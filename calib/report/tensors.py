"""The most clipped tensors: a drawing and a small table for each."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass

from calib.report import text
from calib.report.distribution import Threshold, histogram
from calib.report.panel import series_colour
from calib.report.svg import Drawing
from calib.study.result import TensorRange


@dataclass(frozen=True, slots=True)
class ThresholdRow:
    """What one candidate does to a tensor."""

    key: str
    colour: str  # CSS
    candidate: str
    threshold: str
    clipped: str
    sqnr: str
    best: bool


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor's figure and table."""

    source: TensorRange
    amax: str
    zeros: str
    consumers: str
    drawing: Drawing
    caption: str
    rows: tuple[ThresholdRow, ...]


def tensor_view(index: int, tensor: TensorRange, series: Mapping[str, int]) -> TensorView:
    """Format one tensor.

    Args:
        index: its place in the report, from 1.
        tensor: what the study measured.
        series: index of each candidate's colour; a name without one is a control.

    Returns:
        Its view.
    """
    keys = dict(zip(tensor.thresholds, _letters(len(tensor.thresholds)), strict=True))
    best = max(tensor.sqnr_db, key=tensor.sqnr_db.__getitem__, default="")
    drawing = histogram(
        f"tensor-{index:02d}",
        tensor.edges_log2,
        tensor.share,
        [Threshold(keys[name], value, series.get(name)) for name, value in tensor.thresholds.items()],
        description=text.plain(f"Distribution of log2 |x| of {tensor.tensor} with each candidate's threshold"),
    )
    return TensorView(
        source=tensor,
        amax=text.compact(tensor.amax),
        zeros=text.rare(tensor.zeros),
        consumers=", ".join(tensor.consumers),
        drawing=drawing,
        caption=_caption(tensor, best),
        rows=tuple(
            ThresholdRow(
                key=keys[name],
                colour=series_colour(series.get(name)),
                candidate=name,
                threshold=f"{value:#.4g}",
                clipped=text.rare(tensor.clipped[name]) if name in tensor.clipped else text.DASH,
                sqnr=text.decibel(tensor.sqnr_db[name]) if name in tensor.sqnr_db else text.DASH,
                best=name == best,
            )
            for name, value in tensor.thresholds.items()
        ),
    )


def _caption(tensor: TensorRange, best: str) -> str:
    if not best:
        return "Values to the right of a line are clipped by that candidate."
    worst = min(tensor.sqnr_db, key=tensor.sqnr_db.__getitem__)
    lead = f"Values to the right of a line are clipped. {best} keeps most of the signal"
    gap = tensor.sqnr_db[best] - tensor.sqnr_db[worst]
    return f"{lead}, {text.decibel(gap)} more than {worst}." if gap > 0 else f"{lead}."


def _letters(count: int) -> list[str]:
    alphabet = string.ascii_uppercase
    return [alphabet[i % 26] + (str(i // 26) if i >= 26 else "") for i in range(count)]
