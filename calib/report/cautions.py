"""What a reader of the verdict alone would miss."""

from __future__ import annotations

from calib.report import evidence_words as words
from calib.report import quality_words
from calib.study.result import Candidate, StudyResult


def cautions(result: StudyResult, best: Candidate) -> tuple[str, ...]:
    """Return a sentence for each."""
    return (
        *_undecided(result, best),
        *_slices(result, best),
        *_controls(result, best),
        *_strata(result),
        *(quality_words.cautions(result.quality, best.name) if result.quality else ()),
    )


def _undecided(result: StudyResult, best: Candidate) -> list[str]:
    status = words.status(result, best)
    if not result.verdict.passed or status == "within":
        return []
    if status == "unknown":
        return [f"The study passed {best.name}, but it has no interval: chance is not ruled out."]
    return [f"The study passed {best.name}, but its interval is not wholly within the budget: that is not shown."]


def _slices(result: StudyResult, best: Candidate) -> list[str]:
    few = [s.name for s in result.evidence.slices if s.kind in ("column", "class") and s.verdict == "too few"]
    if not result.verdict.passed or not few:
        return []
    return [f"The study passed {best.name}, but has too few samples for a verdict on: {words.listed_slices(few)}."]


def _controls(result: StudyResult, best: Candidate) -> list[str]:
    if best.kind != "candidate":
        return []
    lost = words.harm(result.evidence, best.delta)
    return [
        f"The control {control.name} does no worse than {best.name}: on this evaluation set the calibration data makes no "
        "visible difference."
        for control in result.candidates
        if control.kind == "control" and words.harm(result.evidence, control.delta) <= lost
    ]


def _strata(result: StudyResult) -> list[str]:
    missing = [s for s in result.evaluation.by_stratum if not result.calibration.by_stratum.get(s)]
    told = result.quality is not None and any(part.uncovered for part in result.quality.coverage)
    if not result.calibration.by_stratum or not missing or told:
        return []
    return [f"Not one calibration sample comes from: {', '.join(missing)}."]
