"""What the evidence says, in words: the same in the report and on the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from calib.evidence.result import Bound, Evidence, Interval, SliceEvidence
from calib.report import text
from calib.report.quality_words import Tone, chance
from calib.study.result import Candidate, StudyResult

DECISION_TONES: dict[str, Tone] = {
    "deploy": "good",
    "deploy with layers in FP16": "good",
    "not enough data": "open",
    "keep FP16": "bad",
    "keep FP32": "bad",
}
_LISTED = 6
NO_RIGHT = "this metric knows no right and wrong"

_BOUNDS: dict[Literal["within", "beyond", "open"], text.Status] = {
    "within": "within",
    "beyond": "over",
    "open": "unshown",
}
_SLICES: dict[str, text.Status] = {
    "worse": "worse",
    "slightly worse": "slightly",
    "within": "within",
    "open": "unshown",
    "too few": "few",
}
_SHOWN = {
    "worse": "worse than FP32 even after correction, and by more than the budget",
    "slightly worse": "worse than FP32 even after correction, but by no more than the budget",
    "within": "within the budget",
    "open": "shown neither to be worse nor to be within the budget",
}


def status(result: StudyResult, candidate: Candidate) -> text.Status:
    """Say where a candidate stands against the budget; of the best one the bound decides, which knows it was chosen."""
    if candidate.kind == "baseline":
        return "baseline"
    if candidate.name == result.evidence.candidate:
        return "unknown" if result.evidence.bound is None else bound_status(result.evidence.bound)
    up = result.higher_is_better[result.budget_metric]
    return text.judge(candidate.delta, candidate.interval, max_drop=result.max_drop, higher_is_better=up)


def bound_status(found: Bound) -> text.Status:
    """Return how the answer to the budget's question is shown."""
    return _BOUNDS[found.shown]


def slice_status(found: SliceEvidence) -> text.Status:
    """Return how a slice's verdict is shown."""
    return _SLICES[found.verdict]


def level(value: float) -> str:
    """Format a level of confidence: 95 %, 99 %, 99.2 %."""
    return f"{100 * value:.3g} %"


def unit(evidence: Evidence) -> str:
    """Name what was drawn whole, and what a number of samples counts."""
    return "sample" if evidence.overall.groups == evidence.overall.samples else "group"


def harm(evidence: Evidence, delta: float) -> float:
    """Return how much worse a difference is; negative where it is better."""
    return -delta if evidence.higher_is_better else delta


def deciding(evidence: Evidence) -> Interval | None:
    """Return the interval of the difference to FP32 by which the best candidate is judged."""
    found = evidence.bound
    if found is None:
        return None
    ends = (-found.most, -found.least) if evidence.higher_is_better else (found.least, found.most)
    return Interval(*ends, found.level)


def bound(evidence: Evidence) -> str:
    """Answer whether the drop is shown to be smaller than the budget, and by which interval."""
    found = evidence.bound
    if found is None:
        return f"Whether the drop lies within the budget cannot be said: {evidence.overall.why}."
    margin, which = text.number(found.margin), f"{level(found.level)} interval"
    if found.shown == "beyond":
        answer = (
            f"At least {text.number(found.least)} is lost (lower end of the {which}): beyond the budget of {margin}."
        )
    elif found.shown == "open":
        answer = (
            f"The drop lies between {text.signed(found.least)} and {text.signed(found.most)} ({which}), on both sides of "
            f"the budget of {margin}: neither is shown."
        )
    elif found.most > 0:
        answer = f"At most {text.number(found.most)} is lost (upper end of the {which}): within the budget of {margin}."
    else:
        answer = f"Nothing is lost: the whole {which} of the drop is at or below 0, within the budget of {margin}."
    return f"{answer} {chosen(evidence)}".rstrip()


def chosen(evidence: Evidence) -> str:
    """Say why the interval that decides is longer than the others; "" where it is not."""
    found = evidence.bound
    if found is None or found.candidates < 2:
        return ""
    return f"The best of {found.candidates} was chosen on these samples, so its interval is at {level(found.level)}."


def longer(evidence: Evidence, name: str) -> str:
    """Say in a caption that the best candidate's line is the interval that decides; "" where it is as long as the others."""
    found = evidence.bound
    return f" (of {name} the {level(found.level)} one, which decides)" if found and found.candidates > 1 else ""


def decisions(evidence: Evidence) -> str:
    """Say what changed between right and wrong, and whether chance explains the split."""
    found = evidence.decisions
    if found is None:
        return f"{NO_RIGHT.capitalize()}, so no sample is broken or fixed."
    changed = found.broken + found.fixed
    if not changed:
        return "No sample changed between right and wrong."
    sentence = (
        f"{text.plural(changed, 'sample')} changed between right and wrong: {found.broken:,} broken, {found.fixed:,} fixed. "
        "Were both models right equally often, chance would split them at least as unevenly with probability "
        f"{chance(found.p_value)} (McNemar's exact test)."
    )
    if unit(evidence) == "group":
        sentence += " The test takes samples as independent; the interval takes groups whole."
    return sentence


def needed(evidence: Evidence) -> str:
    """Say what these samples could show and how many the margin needs; "" where nothing can be said."""
    found = evidence.power
    if found is None:
        return ""
    often = f"in {10 * found.power:g} of 10 studies like this"
    samples = text.plural(found.samples, unit(evidence))
    sentence = f"The smallest drop that {samples} would show, {often}, is {text.number(found.detectable)}."
    if found.needed_if_equal is None:
        return f"{sentence} No number of samples shows that nothing at all is lost, which a budget of 0 asks for."
    equal = text.plural(found.needed_if_equal, unit(evidence))
    sentence += f" To show as often that the drop is within the budget takes {equal} if INT8 is as good as FP32"
    if found.needed_as_seen is None:
        return f"{sentence}; if it loses what it seems to, no number would do."
    return f"{sentence}, and {found.needed_as_seen:,} if it loses what it seems to."


def loses_most(evidence: Evidence) -> SliceEvidence | None:
    """Return the slice that loses most of those with enough samples: of single columns and classes, else of any kind."""
    enough = [s for s in evidence.slices if s.verdict != "too few" and math.isfinite(s.difference.delta)]
    simple = [s for s in enough if s.kind in ("column", "class")]
    return max(simple or enough, key=lambda s: harm(evidence, s.difference.delta), default=None)


def worst(evidence: Evidence) -> str:
    """Name the slice that loses most, with its interval."""
    found = loses_most(evidence)
    if found is None:
        return "No slice has enough samples for a verdict." if evidence.slices else ""
    if harm(evidence, found.difference.delta) <= 0:
        return "No slice with enough samples loses anything."
    corrected = "" if found.adjusted is None else f", adjusted p {chance(found.adjusted)}"
    return f"Loses most: {found.name}, {_measured(found)}{corrected}: {_SHOWN[found.verdict]}."


def also_worse(evidence: Evidence) -> str:
    """Name the other slices that are shown to be worse by more than the budget; "" where there are none."""
    first = loses_most(evidence)
    names = [s.name for s in evidence.slices if s.verdict == "worse" and s is not first]
    return f"Also worse by more than the budget: {listed_slices(names)}." if names else ""


def listed_slices(names: Sequence[str]) -> str:
    """Join a few names, which may hold commas; of many say how many more there are."""
    more = f"; and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return "; ".join(names[:_LISTED]) + more


def corrected(evidence: Evidence) -> str:
    """Explain the correction for looking at many slices."""
    if not evidence.tested:
        return ""
    if evidence.tested == 1:
        return "One slice was tested, so its p-value needs no correction."
    levels = [d.interval.level for d in (evidence.overall, *(s.difference for s in evidence.slices)) if d.interval]
    alpha = f"{100 * (1 - max(levels, default=0.95)):.3g} %"
    return (
        f"{evidence.tested} slices were tested together, and Holm's correction raises their p-values so that, were INT8 worse "
        f"on none of them, the chance of accusing even one would be at most {alpha}."
    )


def _measured(found: SliceEvidence) -> str:
    difference = found.difference
    interval = f"no interval: {difference.why}" if difference.interval is None else text.span(difference.interval)
    return f"{text.signed(difference.delta)} ({interval}) on {text.plural(difference.samples, 'sample')}"
