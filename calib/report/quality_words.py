"""What was found about a calibration set, in words: the same in the report and on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from calib.quality.drift import TAIL_LIMIT
from calib.quality.result import Clip, Coverage, Drift, Duplicates, Quality, Shift, Sufficiency, Tail
from calib.report import text

Tone = Literal["good", "open", "bad", "neutral"]

_UNUSUAL = 0.2  # share of samples clipped more than 95 % of the calibration samples are; 5 % is what chance gives
_LEAST = 5  # such samples; fewer are chance among many tensors and slices
_LISTED = 6


@dataclass(frozen=True, slots=True)
class Answer:
    """One question about the set, a verdict of a word or two, and a sentence that says why."""

    question: str
    tone: Tone
    word: str
    sentence: str


def answers(quality: Quality, scales: str = "") -> tuple[Answer, ...]:
    """Answer each question in the order in which a reader asks them.

    Args:
        quality: what was judged.
        scales: whose clipping is told of; where there are none of that name, the first.

    Returns:
        At least one answer for each part, also for what was not asked.
    """
    told = chosen(quality.coverage, scales)
    return (
        _enough(quality.samples, quality.sufficiency),
        *(
            map(_held, told)
            if told
            else [_not_asked("Do the scales hold other data?", "What the scales clip of other data")]
        ),
        *(
            map(_alike, quality.drift)
            if quality.drift
            else [_not_asked("Do the sets look alike?", "Whether the set looks like other data")]
        ),
        *(
            map(_apart, quality.duplicates)
            if quality.duplicates
            else [_not_asked("Is a sample on both sides?", "Whether a sample is on both sides")]
        ),
    )


def cautions(quality: Quality, scales: str) -> tuple[str, ...]:
    """Return what the reader of a verdict must know of the data behind it."""
    found = []
    enough = quality.sufficiency
    if enough is not None and enough.enough is None:
        found.append(_enough(quality.samples, enough).sentence)
    missing = list(dict.fromkeys(name for part in chosen(quality.coverage, scales) for name in part.uncovered))
    if missing:
        found.append(f"Not one calibration sample is of {listed(missing)}: the scales never saw such data.")
    found += [_alike(drift).sentence for drift in quality.drift if drift.beyond]
    for both in quality.duplicates:
        if both.exact or both.near:
            found.append(f"{_shared(both)} What is found on such samples is too good.")
    return tuple(found)


def chosen(coverage: Sequence[Coverage], scales: str) -> tuple[Coverage, ...]:
    """Return the coverage of some scales; of the first where there is none by that name."""
    name = scales if any(part.scales == scales for part in coverage) else next((c.scales for c in coverage), "")
    return tuple(part for part in coverage if part.scales == name)


def clips_more(clip: Clip) -> bool:
    """Whether more is clipped than the calibration set lets expect, in more samples than chance explains."""
    return clip.unusual >= _UNUSUAL and round(clip.unusual * clip.samples) >= _LEAST and clip.overshoot > 1


def is_missing(clip: Clip, coverage: Coverage) -> bool:
    """Whether the calibration set holds no sample of a clip's slice."""
    return slice_name(clip) in coverage.uncovered


def slice_name(clip: Clip) -> str:
    """Name a clip's samples: "device = fax", or all."""
    return f"{clip.column} = {clip.value}" if clip.column else "all samples"


def worst_of(coverage: Coverage) -> Clip | None:
    """Return the slice worst off; without slices the tensor worst off."""
    return next(iter(coverage.slices or coverage.tensors), None)


def beyond(shift: Shift, drift: Drift) -> bool:
    """Whether typical values are further apart than the limit, and not by chance."""
    return abs(shift.effect) > drift.limit and shift.p <= drift.level


def tail_beyond(tail: Tail, drift: Drift) -> bool:
    """Whether more samples than the limit allows are unlike the calibration set, and not by chance."""
    return tail.effect > TAIL_LIMIT * drift.limit and tail.p <= drift.level


def signed_tail(tail: Tail) -> float:
    """Return a tail's effect, negative for the lower tail."""
    return tail.effect if tail.side == "upper" else -tail.effect


def ranked(drift: Drift) -> list[Shift]:
    """Return the shifts, those first that are furthest beyond a limit."""

    def strength(shift: Shift) -> float:
        tail = shift.tail.effect / TAIL_LIMIT if tail_beyond(shift.tail, drift) else 0.0
        return max(abs(shift.effect), tail)

    return sorted(drift.shifts, key=strength, reverse=True)


def feature(shift: Shift) -> str:
    """Name what was compared: the largest or the mean of |x|, sample by sample."""
    return "largest |x|" if shift.feature == "amax" else "mean |x|"


def share(value: float) -> str:
    """Format a relative deviation: two digits, so that 0.4 % and 40 % both can be read."""
    return f"{100 * value:.2g} %" if 0 < 100 * value < 10 else f"{100 * value:,.0f} %"


def effect(value: float) -> str:
    """Format an effect size with its sign."""
    return f"{value:+.2f}".replace("-", text.MINUS)


def chance(p: float) -> str:
    """Format a p value."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def times(ratio: float) -> str:
    """Format a ratio, which may have any magnitude."""
    if not math.isfinite(ratio):
        return "∞"
    return f"{ratio:.2f}\u00d7" if 0.1 <= ratio < 100 else f"{ratio:.2g}\u00d7"


def about(count: int) -> str:
    """Format an estimated number: two digits are all that it is worth."""
    return f"{float(f'{count:.2g}'):,.0f}"


def listed(names: Sequence[str]) -> str:
    """Join a few names; of many say how many more there are."""
    if len(names) > _LISTED:
        return f"{', '.join(names[:_LISTED])} and {len(names) - _LISTED} more"
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def _not_asked(question: str, what: str) -> Answer:
    return Answer(question, "neutral", "not judged", f"{what} was not judged.")


def _enough(samples: int, found: Sufficiency | None) -> Answer:
    question = "Are there enough samples?"
    if found is None:
        return _not_asked(question, "Whether there are enough samples")
    limit, count = share(found.tolerance), len(found.curves)
    every = f"every scale ({found.calibrator}, {text.plural(count, 'tensor')})"
    if found.enough is not None:
        lead = (
            f"All {samples:,} samples are needed, and they are enough: with them"
            if found.enough == found.sizes[-1]
            else f"{found.enough:,} of the {samples:,} samples would do: from there on"
        )
        return Answer(question, "good", "enough", f"{lead} {every} is within {limit} of what endless data would give.")
    worst = found.curves[0]
    off = sum(curve.deviation[-1] > found.tolerance for curve in found.curves)
    sentence = (
        f"With {samples:,} samples {off} of {text.plural(count, 'scale')} ({found.calibrator}) may be off by more than "
        f"{limit}; the worst is {worst.tensor}, by {share(worst.deviation[-1])}."
    )
    if found.estimate is not None:
        return Answer(question, "open", "more needed", f"{sentence} About {about(found.estimate)} samples would do.")
    grown = max(found.curves, key=lambda curve: curve.growth)
    why = (
        f": the scale of {grown.tensor} still grows, by about {share(grown.growth)} when the set is doubled"
        if grown.growth > found.tolerance / 2
        else ""
    )
    return Answer(question, "open", "more needed", f"{sentence} How many would do cannot be said{why}.")


def _held(found: Coverage) -> Answer:
    question = "Do the scales hold other data?"
    clipped = f"{text.rare(found.overall)} of all values" if found.overall else "nothing"
    sentence = f"Of the {text.plural(found.samples, 'sample')} of {found.other} {found.scales} clips {clipped}."
    worst = worst_of(found)
    if worst is not None and worst.share > 0:
        sentence += f" {_worst(worst)}"
    if found.uncovered:
        missing = f"Not one calibration sample is of {listed(found.uncovered)}."
        return Answer(question, "bad", "slice missing", f"{sentence} {missing}")
    if any(map(clips_more, (*found.slices, *found.tensors))):
        return Answer(question, "open", "clips more", sentence)
    return Answer(question, "good", "held", sentence)


def _worst(worst: Clip) -> str:
    where = f"{slice_name(worst)}, with " if worst.column else ""
    before = "" if worst.calibration is None else f" (calibration: {text.rare(worst.calibration)})"
    sentence = f"Worst off is {where}{text.rare(worst.share)} of {worst.tensor} clipped{before}."
    if clips_more(worst):
        sentence += (
            f" {text.percent(worst.unusual)} of {'its' if worst.column else 'the'} samples lose more of it than 95 % of "
            "the calibration samples do."
        )
    return sentence


def _alike(found: Drift) -> Answer:
    question = f"Does it look like {found.other}?"
    if found.beyond:
        more = f" (and {len(found.reasons) - 1} more)" if len(found.reasons) > 1 else ""
        why = f": {found.reasons[0]}{more}" if found.reasons else ""
        return Answer(question, "bad", "drift", f"The calibration set and {found.other} differ{why}.")
    told = found.classifier
    sentence = f"No difference to {found.other} is beyond the limit of {found.limit:g}: "
    if found.shifts:
        shift = found.shifts[0]
        sentence += (
            f"the largest shift is that of {shift.tensor}, {feature(shift)}, {effect(shift.effect)} "
            f"(p {chance(shift.p)}), and "
        )
    sentence += f"a classifier that should tell the sets apart reaches {told.effect:.2f} of 1 (p {chance(told.p)})."
    if found.detectable > found.limit:
        few = f" So few samples show nothing below {found.detectable:.2f}: a difference is not ruled out."
        return Answer(question, "open", "not shown", sentence + few)
    return Answer(question, "good", "alike", sentence)


def _apart(found: Duplicates) -> Answer:
    question = f"Is a sample also in {found.other}?"
    if not found.exact and not found.near:
        return Answer(question, "good", "none", f"No sample is also in {found.other}, not even nearly.")
    return Answer(question, "bad" if found.exact else "open", "duplicates", _shared(found))


def _shared(found: Duplicates) -> str:
    exact, near = found.exact, found.near
    if not exact:
        return f"{text.plural(near, 'calibration sample')} {'is' if near == 1 else 'are'} nearly in {found.other} too."
    also = f", and {near:,} nearly" if near else ""
    return f"{text.plural(exact, 'calibration sample')} {'is' if exact == 1 else 'are'} in {found.other} too{also}."
