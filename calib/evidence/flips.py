"""Flips: samples that are right in one model and wrong in the other, those that lost most first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from calib.aggregates import Terms
from calib.evaluate import Evaluation


@dataclass(frozen=True, slots=True)
class FlipRow:
    """A sample that is right in the baseline and wrong in the model ("broken"), or the other way round ("fixed").

    Attributes:
        kind: broken or fixed.
        position: in the set.
        sample: its id.
        sha256: of its inputs.
        margin_was: in the baseline; None where the metric has none.
        margin_now: in the model.
    """

    kind: Literal["broken", "fixed"]
    position: int
    sample: str
    sha256: str
    margin_was: float | None
    margin_now: float | None

    @property
    def lost(self) -> float | None:
        """Margin in the baseline minus margin in the model; None where the metric has no margin."""
        return None if self.margin_was is None or self.margin_now is None else self.margin_was - self.margin_now


def rank(was: Evaluation, now: Evaluation, score: str) -> list[FlipRow]:
    """Return all flips, broken ones first; none where the metric knows no right and wrong.

    Of the broken those that lost most margin come first, of the fixed those that gained most; where the metric has no margin
    by how much `score` changed, and where that is equal in the order of the set.

    Args:
        was: what the baseline scored.
        now: what the model scored on the same samples, in the same order.
        score: that the budget speaks of.
    """
    before, after = was.right(), now.right()
    if before is None or after is None:
        return []
    sign = 1 if was.higher_is_better[score] else -1
    result: list[FlipRow] = []
    kinds: tuple[tuple[Literal["broken", "fixed"], int], ...] = (("broken", 1), ("fixed", -1))
    for kind, direction in kinds:
        rows = []
        for position in np.flatnonzero(before & ~after if kind == "broken" else ~before & after).tolist():
            one, two = was.samples[position], now.samples[position]
            row = FlipRow(kind, position, was.ids[position], was.digests[position], one.margin, two.margin)
            changed = _change(was.aggregates[score], one.values[score], two.values[score], sign * direction)
            rows.append((row.lost is None, -direction * (row.lost or 0.0), -changed, row))
        result += [row for *_, row in sorted(rows, key=lambda entry: entry[:3])]
    return result


def _change(aggregate: str, one: Terms, two: Terms, sign: int) -> float:
    """How much a sample's parts changed for the worse (sign 1: less is worse); elsewhere how far its terms moved."""
    if aggregate in ("ratio", "root"):
        return sign * float(one[0] - two[0])
    if len(one) != len(two):  # boxes: another number of them
        return float(abs(len(one) - len(two)))
    return float(np.abs(np.subtract(one, two)).sum())
