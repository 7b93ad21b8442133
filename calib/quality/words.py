"""Drift in words that a person on call understands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from calib.quality.result import Classifier, Shift

LISTED = 5  # reasons of one kind
FEATURES = {"amax": "largest |x|", "mean": "mean |x|"}


def reasons(shifts: Sequence[Shift], told: Classifier, limits: tuple[float, float], level: float) -> Iterator[str]:
    """Yield what is beyond the limits, in words; nothing where nothing is."""
    limit, beyond = limits
    moved = [shift for shift in shifts if abs(shift.effect) > limit and shift.p <= level]
    for shift in moved[:LISTED]:
        yield (
            f"{_named(shift)} is typically {shift.ratio:.3g} times the calibration set's; "
            f"Cliff's delta {short(shift.effect, '+')}, p {short(shift.p)}"
        )
    if len(moved) > LISTED:
        yield f"so do {len(moved) - LISTED} more of {len(shifts)} features: their typical values are others"
    strange = [shift for shift in shifts if shift.tail.effect > beyond and shift.tail.p <= level and shift not in moved]
    strange.sort(key=lambda shift: -shift.tail.effect)
    for shift in strange[:LISTED]:
        side = "high" if shift.tail.side == "upper" else "low"
        yield (
            f"{_named(shift)} is unusually {side} in {shift.tail.other:.0%} of the samples and in "
            f"{shift.tail.calibration:.0%} of the calibration set's; tail effect {short(shift.tail.effect, '+')}, "
            f"p {short(shift.tail.p)}"
        )
    if len(strange) > LISTED:
        yield f"so are {len(strange) - LISTED} more of {len(shifts)} features in a part of the samples"
    if told.effect > limit and told.p <= level:
        yield (
            f"a classifier tells the samples apart: AUC {short((told.effect + 1) / 2)} on samples that it was not "
            f"trained on, p {short(told.p)}; it follows {', '.join(told.features[:3])}"
        )
    if told.tail.effect > beyond and told.tail.p <= level:
        yield (
            f"a classifier finds a kind of sample that the calibration set lacks: {told.tail.other:.0%} of the samples "
            f"look like it and {told.tail.calibration:.0%} of the calibration set's, p {short(told.tail.p)}; it follows "
            f"{', '.join(told.features[:3])}"
        )


def within(shifts: Sequence[Shift], limit: float, level: float) -> Iterator[str]:
    """Yield what differs by more than chance and no more than the limit."""
    small = [shift for shift in shifts if shift.p <= level and abs(shift.effect) <= limit]
    if small:
        yield (
            f"{len(small)} of {len(shifts)} features differ by more than chance and within the limit; the most: "
            f"{_named(small[0])}, Cliff's delta {short(small[0].effect, '+')}"
        )


def _named(shift: Shift) -> str:
    return f"{shift.kind} {shift.tensor}: its {FEATURES[shift.feature]}"


def short(value: float, sign: str = "") -> str:
    """Return .62, +.62, .0005 or 1.0."""
    text = f"{value:{sign}.2g}" if abs(value) < 0.01 else f"{value:{sign}.2f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text
