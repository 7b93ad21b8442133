"""The verdict says what the whole evidence says, and not more."""

from dataclasses import replace

import pytest

from calib.evidence.result import (
    Bound,
    Decisions,
    Difference,
    Evidence,
    Interval,
    Power,
    SliceEvidence,
)
from calib.study.result import Candidate, Verdict
from calib.study.verdict import decide, with_latencies

MARGIN = 0.005
SHOWN = {"within": (-0.001, 0.004), "open": (-0.001, 0.015), "beyond": (0.006, 0.015)}


def model(name: str, kind: str, low: float, high: float, up: bool) -> Candidate:
    sign = -1 if up else 1
    ends = sorted((sign * low, sign * high))
    delta = sign * (low + high) / 2
    interval = Interval(ends[0], ends[1], 0.95)
    return Candidate(name, kind, "", 1, 1, 1, "", {"cer": 0.0}, delta, interval, {}, 0.9, 3, 1, 0.0)  # type: ignore[arg-type]


def piece(verdict: str, delta: float, name: str = "device = fax", kind: str = "column") -> SliceEvidence:
    found = Difference(100, 100, 12, 0.02, 0.02 + delta, delta, Interval(delta - 0.01, delta + 0.01, 0.95), 0.005, "")
    return SliceEvidence(kind, name, found, 0.001, 0.004, verdict)  # type: ignore[arg-type]


def evidence(shown: str, *slices: SliceEvidence, up: bool = False) -> Evidence:
    least, most = SHOWN[shown]
    sign = -1 if up else 1
    drop = (least + most) / 2
    ends = sorted((sign * least, sign * most))
    overall = Difference(400, 400, 20, 0.02, 0.02, sign * drop, Interval(ends[0], ends[1], 0.95), 0.004, "")
    bound = Bound(MARGIN, drop, least, most, 0.99, 5, shown)  # type: ignore[arg-type]
    power = Power(0.8, 0.01, 900, 1200 if drop < MARGIN else None, 400)
    return Evidence("mse", "cer", "ratio", up, overall, bound, Decisions(1, 3, 1, 1, 0.6), 0.1, power, slices, 1, ())


def verdict(
    shown: str, *slices: SliceEvidence, half: str | None = "within", kept: int = 0, up: bool = False
) -> Verdict:
    models = [model("fp32", "baseline", 0, 0, up), model("mse", "candidate", *SHOWN[shown], up)]
    if half:
        models.insert(1, model("fp16", "reference", *SHOWN[half], up))
    return decide(models, evidence(shown, *slices, up=up), kept_in_float=kept)


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize(
    ("shown", "half", "kept", "decision", "headline"),
    [
        ("within", "within", 0, "deploy", "keeps CER within 0.005"),
        ("within", None, 0, "deploy", "keeps CER within 0.005"),
        ("within", "within", 3, "deploy with layers in FP16", "keeps CER within 0.005"),
        ("open", "within", 0, "not enough data", "Not shown: INT8 (mse) may cost more"),
        ("beyond", "within", 0, "keep FP16", "INT8 (mse) loses more CER"),
        ("beyond", "open", 0, "keep FP32", "INT8 (mse) loses more CER"),
        ("beyond", "beyond", 0, "keep FP32", "INT8 (mse) loses more CER"),
        ("beyond", None, 0, "keep FP32", "INT8 (mse) loses more CER"),
    ],
)
def test_the_interval_decides(shown: str, half: str | None, kept: int, decision: str, headline: str, up: bool) -> None:
    found = verdict(shown, half=half, kept=kept, up=up)
    assert found.decision == decision
    assert found.passed is decision.startswith("deploy")
    assert headline in found.headline
    assert "99 % interval" in found.reasons[0]
    assert "best of 5" in found.reasons[0]


def test_a_slice_that_is_shown_worse_is_not_deployed() -> None:
    found = verdict("within", piece("worse", 0.03), piece("within", 0.0, "device = scanner"))
    assert (found.decision, found.passed) == ("keep FP16", False)
    assert "overall, but not on device = fax" in found.headline
    assert any("worse on device = fax: +0.0300" in reason and "p 0.004" in reason for reason in found.reasons)


@pytest.mark.parametrize("word", ["slightly worse", "within", "open", "too few"])
def test_a_slice_of_which_less_is_shown_is_named_and_does_not_decide(word: str) -> None:
    found = verdict("within", piece(word, 0.03))
    assert found.decision == "deploy"
    assert any("device = fax loses most" in reason for reason in found.reasons) is (word != "too few")


def test_the_slice_that_loses_most_is_named_in_the_scores_direction() -> None:
    slices = (piece("open", -0.03, "device = fax"), piece("open", 0.02, "device = phone"))
    assert any("device = fax loses most" in reason for reason in verdict("open", *slices, up=True).reasons)
    assert any("device = phone loses most" in reason for reason in verdict("open", *slices).reasons)


def test_what_is_not_shown_says_what_would_show_it() -> None:
    power = Power(0.8, 0.01, 900, 1200, 400)
    models = [model("fp32", "baseline", 0, 0, False), model("mse", "candidate", *SHOWN["open"], False)]
    known = decide(models, replace(evidence("open"), power=power), kept_in_float=0)
    assert any("about 1,200 independent samples" in reason for reason in known.reasons)
    none = decide(models, replace(evidence("open"), power=replace(power, needed_as_seen=None)), kept_in_float=0)
    assert any("more samples alone will hardly help" in reason for reason in none.reasons)


def test_without_an_interval_there_is_not_enough_data() -> None:
    nothing = replace(evidence("within"), bound=None, power=None)
    why = replace(nothing.overall, interval=None, why="all samples belong to one group")
    models = [model("fp32", "baseline", 0, 0, False), model("mse", "candidate", 0, 0, False)]
    found = decide(models, replace(nothing, overall=why), kept_in_float=0)
    assert found.decision == "not enough data"
    assert "one group" in found.reasons[0]


@pytest.mark.parametrize(
    ("shown", "int8", "fp16", "decision"),
    [("within", 1.0, 2.0, "deploy"), ("within", 2.0, 2.0, "keep FP16"), ("within", 3.0, 2.0, "keep FP16"),
     ("open", 3.0, 2.0, "not enough data")],
)  # fmt: skip
def test_int8_that_gains_no_latency_is_not_deployed(shown: str, int8: float, fp16: float, decision: str) -> None:
    found = with_latencies(verdict(shown), int8, fp16)
    assert found.decision == decision
    assert found.passed is (decision == "deploy")
    assert any(f"INT8 takes {int8:g} ms and FP16 {fp16:g} ms" in reason for reason in found.reasons)
