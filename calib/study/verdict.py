"""The verdict: is the best INT8 model within the budget, and is that shown or only seen?"""

from __future__ import annotations

from collections.abc import Sequence

from calib.study.result import Candidate, Verdict


def decide(candidates: Sequence[Candidate], metric: str, max_drop: float, *, higher_is_better: bool) -> Verdict:
    """Return the verdict on the candidate that loses least.

    It passes when the whole confidence interval of the drop lies within the budget: a mean within it may be luck.
    """
    sign = -1.0 if higher_is_better else 1.0
    best = min((c for c in candidates if c.kind == "candidate"), key=lambda c: sign * c.delta)
    assert best.interval is not None  # only the baseline has none
    least, worst = sorted((sign * best.interval.low, sign * best.interval.high))
    label = metric.upper() if metric.islower() and len(metric) <= 4 else metric
    level = f"{best.interval.level:.0%}"
    measured = (
        f"{label} changes by {best.delta:+.4f} against FP32 ({level} interval {best.interval.low:+.4f} to "
        f"{best.interval.high:+.4f}); the budget allows {max_drop:g}."
    )
    if worst <= max_drop:
        headline, why = (
            f"INT8 ({best.name}) keeps {label} within {max_drop:g} of FP32",
            "The whole interval is within it.",
        )
    elif least <= max_drop:
        headline = f"Not shown: INT8 ({best.name}) may cost more {label} than the budget of {max_drop:g}"
        why = "The interval crosses it: more evaluation samples, or fewer INT8 layers, are needed."
    else:
        headline = f"INT8 ({best.name}) loses more {label} than the budget of {max_drop:g}"
        why = "With every planned layer in INT8 this model does not meet it: keep the most sensitive layers in float."
    flips = (
        f"{best.broken} samples that FP32 gets right are wrong in INT8, {best.fixed} the other way round; "
        f"{best.agreement:.1%} of predictions are equal."
    )
    controls = [c for c in candidates if c.kind == "control"]
    control = [f"Calibrated on uniform noise instead ({c.name}), {label} changes by {c.delta:+.4f}." for c in controls]
    return Verdict(worst <= max_drop, best.name, headline, (measured, why, flips, *control))
