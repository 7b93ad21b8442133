"""The verdict: what to deploy, with the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from calib.evidence.result import Bound, Evidence, SliceEvidence
from calib.study.result import Candidate, Verdict


def decide(candidates: Sequence[Candidate], evidence: Evidence, *, kept_in_float: int) -> Verdict:
    """Return the verdict on the candidate that the evidence is about.

    INT8 is deployed when the whole interval of its drop lies within the margin (non-inferiority: a mean within it may be
    luck) and it is shown to be worse by more than the margin on no slice. What is not shown is not deployed.

    Args:
        candidates: all models of the study.
        evidence: of the best candidate.
        kept_in_float: number of its layers that the plan keeps out of INT8.
    """
    bound, label = evidence.bound, title(evidence.metric)
    worse = [piece for piece in evidence.slices if piece.verdict == "worse"]
    name, best = evidence.candidate, next(c for c in candidates if c.name == evidence.candidate)
    if bound is None:
        headline = f"Not enough data: nothing can be said of what INT8 ({name}) costs in {label}"
        return _verdict("not enough data", name, headline, [evidence.overall.why], evidence, candidates)
    measured = _measured(evidence, bound, best)
    if bound.shown == "open":
        headline = f"Not shown: INT8 ({name}) may cost more {label} than the budget of {bound.margin:g}"
        return _verdict("not enough data", name, headline, [measured, _needed(evidence)], evidence, candidates)
    if bound.shown == "beyond":
        headline = f"INT8 ({name}) loses more {label} than the budget of {bound.margin:g}"
        why = "The whole interval lies beyond it: keep the most sensitive layers in float."
        return _fall_back(headline, [measured, why], evidence, candidates)
    if worse:
        headline = f"INT8 ({name}) keeps {label} within {bound.margin:g} of FP32 overall, but not on {worse[0].name}"
        return _fall_back(headline, [measured, *map(_on_slice, worse)], evidence, candidates)
    headline = f"INT8 ({name}) keeps {label} within {bound.margin:g} of FP32"
    within = [measured, "The whole interval lies within it."]
    if kept_in_float:
        layers = "1 layer that the plan keeps" if kept_in_float == 1 else f"{kept_in_float} layers that the plan keeps"
        within.append(f"This holds with {layers} in float.")
    decision = "deploy with layers in FP16" if kept_in_float else "deploy"
    return _verdict(decision, name, headline, within, evidence, candidates)


def with_latencies(verdict: Verdict, int8_ms: float, fp16_ms: float) -> Verdict:
    """Return the verdict once latencies are known: INT8 that gains none over FP16 is not worth its loss.

    Args:
        verdict: from the scores alone.
        int8_ms: latency of the INT8 engine, in milliseconds.
        fp16_ms: of the FP16 engine, measured alike.
    """
    times = f"INT8 takes {int8_ms:g} ms and FP16 {fp16_ms:g} ms"
    if not verdict.passed or int8_ms < fp16_ms:
        return replace(verdict, reasons=(*verdict.reasons, f"{times}."))
    headline = f"INT8 ({verdict.candidate}) gains no latency over FP16"
    return replace(
        verdict,
        decision="keep FP16",
        passed=False,
        headline=headline,
        reasons=(f"{times}: there is nothing to pay for with accuracy.", *verdict.reasons),
    )


def title(metric: str) -> str:
    """Return a metric's name for reading: cer -> CER, exact_match -> exact match."""
    return metric.upper() if len(metric) <= 3 else metric.replace("_", " ")


def _measured(evidence: Evidence, bound: Bound, best: Candidate) -> str:
    sign = -1 if evidence.higher_is_better else 1
    low, high = sorted((sign * bound.least, sign * bound.most))
    chosen = f", as it is the best of {bound.candidates} on these samples" if bound.candidates > 1 else ""
    return (
        f"{title(evidence.metric)} changes by {best.delta:+.4f} against FP32 ({100 * bound.level:.3g} % interval {low:+.4f} to "
        f"{high:+.4f}{chosen}); the budget allows {bound.margin:g}."
    )


def _needed(evidence: Evidence) -> str:
    power, crosses = evidence.power, "The interval crosses the budget"
    if power is None:
        return f"{crosses}."
    if power.needed_as_seen is not None:
        return (
            f"{crosses}: if INT8 is as it seems, about {power.needed_as_seen:,} independent samples or groups would show it "
            f"(there are {power.samples:,})."
        )
    equal = (
        f" Were INT8 as good as FP32, {power.needed_if_equal:,} samples or groups would do."
        if power.needed_if_equal
        else ""
    )
    return f"{crosses}, and the loss that is seen reaches it: more samples alone will hardly help.{equal}"


def _on_slice(piece: SliceEvidence) -> str:
    assert piece.adjusted is not None  # only a tested slice is called worse
    return f"It is worse on {piece.name}: {_span(piece)}; p {piece.adjusted:.2g} after correction for all slices."


def _span(piece: SliceEvidence) -> str:
    found = piece.difference
    interval = found.interval
    between = f"{100 * interval.level:.3g} % interval {interval.low:+.4f} to {interval.high:+.4f}, " if interval else ""
    return f"{found.delta:+.4f} ({between}{found.samples:,} samples)"


def _fall_back(headline: str, reasons: list[str], evidence: Evidence, candidates: Sequence[Candidate]) -> Verdict:
    """FP16 is kept where it is shown to be within the budget, else FP32."""
    assert evidence.bound is not None  # INT8 was judged by it
    half = next((c for c in candidates if c.kind == "reference"), None)
    if half is None:
        why = "FP16 was not asked for (quantize.rest), so it was not evaluated."
        return _verdict("keep FP32", evidence.candidate, headline, [*reasons, why], evidence, candidates)
    ends = (half.interval.low, half.interval.high) if half.interval else (float("-inf"), float("inf"))
    most = -ends[0] if evidence.higher_is_better else ends[1]
    span = f" ({ends[0]:+.4f} to {ends[1]:+.4f})" if half.interval else ""
    if most <= evidence.bound.margin:
        why = f"FP16 stays within the budget: it changes by {half.delta:+.4f}{span}."
        return _verdict("keep FP16", evidence.candidate, headline, [*reasons, why], evidence, candidates)
    why = f"FP16 is not shown to stay within the budget either: it changes by {half.delta:+.4f}{span}."
    return _verdict("keep FP32", evidence.candidate, headline, [*reasons, why], evidence, candidates)


def _verdict(
    decision: str, name: str, headline: str, reasons: list[str], evidence: Evidence, candidates: Sequence[Candidate]
) -> Verdict:
    best = next(c for c in candidates if c.name == name)
    label = title(evidence.metric)
    flips = f"{best.agreement:.1%} of predictions are equal."
    if evidence.decisions is not None:
        broken, fixed = evidence.decisions.broken, evidence.decisions.fixed
        flips = (
            f"{broken} samples that FP32 gets right are wrong in INT8, {fixed} the other way round (McNemar's exact p "
            f"{evidence.decisions.p_value:.2g}); {flips}"
        )
    controls = [
        f"Calibrated on uniform noise instead ({c.name}), {label} changes by {c.delta:+.4f}."
        for c in candidates
        if c.kind == "control"
    ]
    lost = _loses_most(evidence)
    passed = decision.startswith("deploy")
    return Verdict(decision, passed, name, headline, (*reasons, *lost, flips, *controls))  # type: ignore[arg-type]  # one of them


def _loses_most(evidence: Evidence) -> list[str]:
    """Name the slice of a single column that loses most, among those with enough samples."""
    sign = -1 if evidence.higher_is_better else 1
    known = [piece for piece in evidence.slices if piece.kind == "column" and piece.verdict != "too few"]
    if not known:
        return []
    worst = max(known, key=lambda piece: sign * piece.difference.delta)
    return [f"Of the slices {worst.name} loses most: {_span(worst)}."]
