"""How to read the report: its terms, each in a sentence or two."""

from __future__ import annotations

from calib.report import evidence_words as words
from calib.study.result import StudyResult

_CHOSEN = (
    (
        "Best of several",
        "The best candidate was chosen on the samples that judge it, which flatters it. Its verdict rests on an interval "
        "that is longer by as much as the choice can flatter (Bonferroni).",
    ),
)


def terms(result: StudyResult) -> tuple[tuple[str, str], ...]:
    """Return each term with its explanation, in the order in which a reader meets them."""
    unit = words.unit(result.evidence)
    bound = result.evidence.bound
    controls = ", ".join(c.name for c in result.candidates if c.kind == "control")
    return (
        (
            "Budget",
            "How much worse than FP32 a model may be: the margin of a non-inferiority test. The model passes when the whole "
            "interval of its drop lies within it and no slice is worse. An interval that crosses it is “not shown”: no pass.",
        ),
        (
            "Interval",
            "The differences to FP32 that are plausible: a paired bootstrap (BCa) over "
            + ("groups, all samples of a group together" if unit == "group" else "samples")
            + f", with two {unit}s added, a typical changed one and its mirror image, for changes too rare to be seen in so few.",
        ),
        *(_CHOSEN if bound is not None and bound.candidates > 1 else ()),
        (
            "Flip",
            "A sample that is right in FP32 and wrong in INT8 (broken), or the other way round (fixed). McNemar's exact test "
            "asks whether chance alone splits them so unevenly.",
        ),
        (
            "Slice",
            "Worse: a drop that chance does not explain, and larger than the budget; slightly worse: no larger. Within: its "
            "whole interval is within the budget. Not shown: neither. Too few: no test was made.",
        ),
        (
            "Adjusted p",
            "The chance of such a drop on a slice where INT8 is no worse, raised by Holm's correction, because of many slices "
            "a few look bad by chance. A dash: not tested, since too little changed there.",
        ),
        ("Agreement", "The share of samples whose prediction is exactly FP32's, right or wrong."),
        ("SQNR", "Signal to quantization noise of one tensor, in decibels: 6 dB more halve the error."),
        (
            "Control",
            f"{controls}: scales made from the wrong data on purpose; an evaluation that cannot tell them apart from the "
            "candidates is blind."
            if controls
            else "None in this study.",
        ),
    )
