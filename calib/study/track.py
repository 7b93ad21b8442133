"""A finished study as tracked runs: one for the study, a nested one for FP32 and each candidate."""

from __future__ import annotations

from calib import files
from calib.study.config import Study
from calib.study.result import Candidate, StudyResult
from calib.study.run import Finished
from calib.tracking import TrackedRun, Tracker

_FORMAT = "calib-tracking"
_KEY_LENGTH = 250  # of an MLflow metric


def record(study: Study, finished: Finished, tracker: Tracker) -> None:
    """Record a study, once: tracking.json remembers what was recorded where.

    Raises:
        CalibError: the tracking server cannot be reached or refuses.
    """
    path = finished.folder / "tracking.json"
    digest = files.sha256(finished.folder / "study.json")
    if path.exists():
        known = files.read_json(path, _FORMAT, 1)
        if (known["uri"], known["study_sha256"]) == (tracker.uri, digest):
            return
    parent = _parent(study, finished)
    run_id = tracker.record(
        finished.result.name, parent, [_nested(finished, row) for row in finished.result.candidates]
    )
    files.write_json(path, _FORMAT, 1, {"uri": tracker.uri, "run_id": run_id, "study_sha256": digest})


def _parent(study: Study, finished: Finished) -> TrackedRun:
    result = finished.result
    best = next(row for row in result.candidates if row.name == result.verdict.candidate)
    artifacts = [study.path, study.recipe, finished.folder / "study.json", finished.folder / "report"]
    parameters = {
        **_shared(result),
        "budget.metric": result.budget_metric,
        "budget.max_drop": f"{result.max_drop:g}",
        "calibration.samples": str(result.calibration.samples),
        "evaluation.samples": str(result.evaluation.samples),
        **{f"version.{name}": version for name, version in result.environment.items()},
    }
    tags = {
        "calib.run": result.run,
        "calib.decision": result.verdict.decision,
        "calib.verdict": result.verdict.headline,
        "calib.passed": str(result.verdict.passed),
    }
    seconds = {f"seconds.{stage.replace(' ', '_')}": value for stage, value in result.seconds.items()}
    return TrackedRun(
        result.run, parameters, {**_metrics(result, best), **_evidence(result), **seconds}, tags, artifacts
    )


def _evidence(result: StudyResult) -> dict[str, float]:
    """What the verdict rests on: the bound that decides, and what the samples could have shown."""
    found, name = result.evidence, result.budget_metric
    metrics = (
        {} if found.bound is None else {f"{name}.drop_least": found.bound.least, f"{name}.drop_most": found.bound.most}
    )
    return metrics | ({f"{name}.detectable": found.power.detectable} if found.power else {})


def _nested(finished: Finished, row: Candidate) -> TrackedRun:
    result = finished.result
    parameters = {
        **_shared(result),
        "kind": row.kind,
        "calibrator": row.calibrator or "none",
        "int8_layers": str(row.int8_layers),
        "layers": str(row.total_layers),
        "onnx_sha256": row.sha256,
    }
    folder = finished.folder / "candidates" / row.name
    artifacts = [path for path in sorted(folder.iterdir()) if path.name != "evaluation.json" or result.include_samples]
    return TrackedRun(row.name, parameters, _metrics(result, row), {"calib.run": result.run}, artifacts)


def _shared(result: StudyResult) -> dict[str, str]:
    return {
        "model": result.model.source,
        "model_sha256": result.model.sha256,
        "calibration_sha256": result.calibration.sha256,
        "evaluation_sha256": result.evaluation.sha256,
        "runtime": result.runtime,
    }


def _metrics(result: StudyResult, row: Candidate) -> dict[str, float]:
    """MLflow's names: letters, digits and a few signs; a slice's value is made to fit."""
    metrics = dict(row.metrics)
    if row.interval is not None:
        metrics |= {
            f"{result.budget_metric}.delta": row.delta,
            f"{result.budget_metric}.delta_low": row.interval.low,
            f"{result.budget_metric}.delta_high": row.interval.high,
        }
    metrics |= {"agreement": row.agreement, "size_bytes": row.size_bytes}
    metrics |= {name: count for name in ("broken", "fixed") if (count := getattr(row, name)) is not None}
    for column, slices in row.slices.items():
        for value, score in slices.items():
            key = f"{result.budget_metric}.{column}.{value}"
            metrics["".join(c if c.isalnum() or c in "-_. " else "_" for c in key)[:_KEY_LENGTH]] = score.value
    return {name: float(value) for name, value in metrics.items()}
