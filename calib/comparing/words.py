"""What a comparison says, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from calib.comparing.result import Scores
from calib.evidence.result import Difference
from calib.study.verdict import title

Outcome = Literal["better", "worse", "no difference shown"]


def outcome(found: Difference, *, higher_is_better: bool) -> Outcome:
    """Return what an interval shows; only one that lies wholly on one side of 0 shows a difference."""
    if found.interval is None or found.interval.low <= 0 <= found.interval.high:
        return "no difference shown"
    return "better" if (found.interval.low > 0) == higher_is_better else "worse"


def sentences(found: Scores) -> tuple[str, ...]:
    """Return what the scores of two runs mean, where they were compared."""
    assert found.best is not None
    assert found.fp32 is not None
    return tuple(
        filter(None, (_shown(found, found.best), _decisions(found), _fp32(found, found.fp32), *_samples(found)))
    )


def _shown(found: Scores, best: Difference) -> str:
    label = title(found.metric)
    if best.interval is None:
        return f"no difference shown: {label} changes by {best.delta:+.4f}, and {best.why}"
    least, most = _harm(found, best)
    measured = f"{label} changes by {best.delta:+.4f} {_span(best)}"
    margin = f"the budget of {found.margin:g}"
    if found.outcome == "better":
        return f"better: {measured}"
    if found.outcome == "worse":
        if most <= found.margin:
            return f"worse, but by no more than {margin}: {measured}"
        more = "by more than" if least > found.margin else "perhaps by more than"
        return f"worse, {more} {margin}: {measured}"
    either = max(abs(least), abs(most))
    if not best.changed:
        measured = f"no sample of {best.samples:,} scores otherwise"
    matters = (
        f"that is within {margin}, so that it does not matter"
        if most <= found.margin
        else f"that may be more than {margin}"
    )
    return f"no difference shown: at most {either:.4f} either way, and {matters}: {measured}"


def _decisions(found: Scores) -> str:
    told = found.decisions
    if told is None:
        return ""
    return (
        f"Of the samples {told.broken:,} were right before and are wrong after, {told.fixed:,} the other way round "
        f"(McNemar's exact p {told.p_value:.2g})."
    )


def _fp32(found: Scores, fp32: Difference) -> str:
    label = title(found.metric)
    if not fp32.changed:
        return f"FP32 scores the same on every sample ({label} {fp32.value:.4f})."
    which = outcome(fp32, higher_is_better=found.higher_is_better)
    values = f"{label} {fp32.baseline:.4f} before and {fp32.value:.4f} after"
    return f"FP32 itself, {which}: {values}, {fp32.delta:+.4f} {_span(fp32)}."


def _samples(found: Scores) -> Iterator[str]:
    left = [
        f"{count:,} {where}"
        for count, where in (
            (found.before - found.compared - found.relabelled, "before alone"),
            (found.after - found.compared - found.relabelled, "after alone"),
            (found.relabelled, "in both with another right answer"),
        )
        if count
    ]
    if left:
        yield f"Left out, as they have no counterpart: samples that are {', '.join(left)}."


def _harm(found: Scores, one: Difference) -> tuple[float, float]:
    assert one.interval is not None
    ends = (one.interval.low, one.interval.high)
    low, high = sorted(-end for end in ends) if found.higher_is_better else ends
    return low, high


def _span(one: Difference) -> str:
    groups = f" in {one.groups:,} groups" if one.groups != one.samples else ""
    samples = f"{one.samples:,} samples{groups}"
    if one.interval is None:
        return f"(no interval, {samples})"
    low, high = one.interval.low, one.interval.high
    return f"({100 * one.interval.level:g} % interval {low:+.4f} to {high:+.4f}, {samples})"
