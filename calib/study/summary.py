"""From a run's artefacts to the StudyResult: what is said, and on what evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib import environment, files
from calib.data.sets import SampleSet
from calib.errors import ConfigError
from calib.evaluate import Evaluation
from calib.evidence.difference import difference
from calib.evidence.tests import decisions
from calib.graph import layers as graph_layers
from calib.graph import load as graph_load
from calib.qdq import Decisions
from calib.statistics import Statistics
from calib.study import evidenced, flips, precision, tensors, verdict
from calib.study.config import Study, StudyConfig
from calib.study.evaluated import Evaluated
from calib.study.folder import RunFolder
from calib.study.result import Candidate, ModelInfo, SetInfo, SliceScore, StudyResult

_NORMALIZATION = "calib-normalization"


@dataclass(frozen=True, slots=True)
class Normalization:
    """What normalization changed, and the largest output difference that was measured after it."""

    steps: tuple[str, ...]
    max_error: float

    def save(self, path: Path) -> None:
        """Write normalization.json."""
        files.write_json(path, _NORMALIZATION, 1, {"steps": list(self.steps), "max_error": self.max_error})

    @classmethod
    def load(cls, path: Path) -> Normalization:
        """Read normalization.json."""
        document = files.read_json(path, _NORMALIZATION, 1)
        return cls(tuple(document["steps"]), float(document["max_error"]))


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a summary is made of."""

    model: ir.Model  # normalized
    normalization: Normalization
    calibration: SampleSet
    evaluation: SampleSet
    seen: Mapping[str, Statistics]
    agreement: bool  # whether the metric compares with FP32 alone
    evaluated: Sequence[Evaluated]  # the baseline first


def check(declared: StudyConfig, directions: Mapping[str, bool], samples: SampleSet) -> None:
    """Check what the summary will look up, before the long stages.

    Raises:
        ConfigError: the budget names a score that the metric does not give, or a slice is no column of the samples.
    """
    if declared.budget.metric not in directions:
        raise ConfigError(
            f"the budget's metric '{declared.budget.metric}' is not one of {declared.metric.name}'s: {', '.join(directions)}"
        )
    columns = list(dict.fromkeys(key for entry in samples.entries for key in entry.metadata))
    for column in declared.report.slices:
        if column not in columns:
            raise ConfigError(f"report.slices: the samples have no column '{column}' (they have {', '.join(columns)})")


def summarize(study: Study, place: RunFolder, found: Inputs, *, tracking_uri: str, command: str) -> StudyResult:
    """Return everything that the study found; `check` has passed."""
    declared = study.config
    budget = declared.budget
    directions = found.evaluated[0].evaluation.higher_is_better
    columns = slices(declared, found.evaluation)
    comparison = _Comparison(declared, found, columns, place.seconds)
    candidates = tuple(comparison.candidate(item) for item in found.evaluated)
    best = comparison.best()
    evidence = evidenced.evidence(declared, found.evaluation, columns, found.evaluated, best)
    placed = Decisions.load(place.candidate(best.name) / "quantization.json")
    decision = verdict.decide(candidates, evidence, kept_in_float=placed.kept_by_plan)
    return StudyResult(
        name=declared.name,
        description=declared.description,
        created=place.created,
        run=place.path.name,
        command=command,
        model=_model_info(study, found),
        recipe=found.calibration.recipe,
        calibration=_set_info(found.calibration),
        evaluation=_set_info(found.evaluation),
        budget_metric=budget.metric,
        higher_is_better=dict(directions),
        max_drop=budget.max_drop,
        runtime=found.evaluated[0].evaluation.runtime,
        candidates=candidates,
        evidence=evidence,
        tensors=tensors.most_clipped(
            place,
            found.model,
            found.seen,
            [item.name for item in found.evaluated if item.kind in ("candidate", "control")],
        ),
        flips=flips.find(place, declared.report, budget.metric, found.evaluation, found.evaluated[0].evaluation, best),
        precision=precision.planned(graph_layers.find(found.model), placed),
        quality=None,
        built=None,
        verdict=decision,
        include_samples=declared.report.include_samples,
        seconds=place.seconds,
        environment=environment.describe(),
        notes=_notes(study, found, placed),
        tracking_uri=tracking_uri,
    )


def slices(declared: StudyConfig, samples: SampleSet) -> tuple[str, ...]:
    """Return the metadata columns whose values are looked at apart."""
    return declared.report.slices or samples.stratify


class _Comparison:
    """Every model against the same baseline, on the same samples, groups and slices."""

    def __init__(
        self, declared: StudyConfig, found: Inputs, columns: Sequence[str], seconds: Mapping[str, float]
    ) -> None:
        samples = found.evaluation
        self._metric = declared.budget.metric
        self._level = declared.evidence.level
        self._evaluated = found.evaluated
        self._baseline = found.evaluated[0].evaluation
        self._seconds = seconds
        self._groups = samples.groups()
        self._columns = {column: np.asarray(samples.column(column)) for column in columns}

    def best(self) -> Evaluated:
        """Return the candidate that loses least."""
        sign = -1 if self._baseline.higher_is_better[self._metric] else 1
        tried = [item for item in self._evaluated if item.kind == "candidate"]
        return min(tried, key=lambda item: sign * item.evaluation.value(self._metric))

    def candidate(self, item: Evaluated) -> Candidate:
        """Compare one model."""
        other, is_baseline = item.evaluation, item.kind == "baseline"
        counted = decisions(self._baseline.right(), other.right())
        predictions = [
            one.prediction == two.prediction for one, two in zip(self._baseline.samples, other.samples, strict=True)
        ]
        total = self._score(other, np.ones(len(predictions), np.bool_), is_baseline)
        return Candidate(
            name=item.name,
            kind=item.kind,
            calibrator=item.calibrator,
            int8_layers=item.int8_layers,
            total_layers=item.total_layers,
            size_bytes=graph_load.size(item.path),
            sha256=other.model_sha256,
            metrics={score: other.value(score) for score in other.higher_is_better},
            delta=total.delta,
            interval=total.interval,
            slices={
                column: {
                    value: self._score(other, labels == value, is_baseline)
                    for value in sorted(set(labels.tolist()))
                    if self._counts(other, labels == value)
                }
                for column, labels in self._columns.items()
            },
            agreement=float(np.mean(predictions)),
            broken=counted.broken if counted else None,
            fixed=counted.fixed if counted else None,
            seconds=self._seconds.get(f"evaluate {item.name}", 0.0),
        )

    def _counts(self, other: Evaluation, where: npt.NDArray[np.bool_]) -> bool:
        """Whether the score is defined on the samples; a slice of empty targets has no CER, one of one class no AUROC."""
        return not any(np.isnan(one.value(self._metric, where)) for one in (self._baseline, other))

    def _score(self, other: Evaluation, where: npt.NDArray[np.bool_], is_baseline: bool) -> SliceScore:
        if is_baseline:
            return SliceScore(int(where.sum()), other.value(self._metric, where), 0.0, None)
        found = difference(
            other.aggregates[self._metric],
            self._baseline.terms(self._metric, where),
            other.terms(self._metric, where),
            [group for group, chosen in zip(self._groups, where, strict=True) if chosen] if self._groups else None,
            self._level,
        )
        return SliceScore(found.samples, found.value, found.delta, found.interval)


def _model_info(study: Study, found: Inputs) -> ModelInfo:
    published = graph_load.load(study.model)
    return ModelInfo(
        source=study.config.model.path,
        sha256=graph_load.sha256(study.model),
        size_bytes=graph_load.size(study.model),
        opset=graph_load.opset(published),
        normalized_opset=graph_load.opset(found.model),
        inputs=graph_load.signature(found.model.graph.inputs),
        outputs=graph_load.signature(found.model.graph.outputs),
        parameters=graph_load.parameters(found.model),
        layers=dict(Counter(layer.op_type for layer in graph_layers.find(found.model))),
        normalization=found.normalization.steps,
        normalization_max_error=found.normalization.max_error,
    )


def _set_info(samples: SampleSet) -> SetInfo:
    strata = dict(Counter(samples.strata())) if samples.stratify else {}
    groups = len(set(samples.groups() or ()))
    return SetInfo(len(samples), samples.sha256, dict(sorted(strata.items())), groups)


def _notes(study: Study, found: Inputs, decisions: Decisions) -> tuple[str, ...]:
    notes = []
    for reason, count in Counter(decisions.left.values()).items():
        notes.append(f"{count} {'layer stays' if count == 1 else 'layers stay'} in float: {reason}")
    if decisions.kept:
        node, reason = next(iter(decisions.kept.items()))
        more = f"; {len(decisions.kept) - 1} more nodes likewise (quantization.json)" if len(decisions.kept) > 1 else ""
        notes.append(f"node {node} stays in FP32: {reason}{more}")
    notes.extend(decisions.findings)
    if not found.evaluation.target and not found.agreement:
        notes.append(
            "the recipe names no target column, so scores compare with nothing: only agreement with FP32 counts"
        )
    if not study.config.report.include_samples:
        notes.append("texts and images of samples are left out of the run: report.include_samples is not set")
    return tuple(notes)
