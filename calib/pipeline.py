"""The single steps, from files to artefacts, for the commands that do one thing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import onnx_ir as ir

from calib import calibrators, environment, evaluate, metrics, observe, plan, qdq, scales
from calib.calibrators import Calibrator
from calib.data import sets
from calib.data.batch import Samples
from calib.data.sets import SampleSet
from calib.errors import DataError
from calib.evaluate import Evaluation
from calib.evidence.difference import difference
from calib.evidence.tests import decisions
from calib.graph import layers as graph_layers
from calib.graph import load as graph_load
from calib.graph import normalize
from calib.graph import save as graph_save
from calib.plan import Plan
from calib.progress import Progress
from calib.qdq import Form, Quantized
from calib.runtime import ort
from calib.scales import PREPARATION_KEY, Origin, Scales
from calib.statistics import Observed


def calibrate(
    model_path: Path, data: Path, calibrator: Calibrator, plan_path: Path | None, *, batch_size: int, progress: Progress
) -> Scales:
    """Return the scales of a float model from a set, with the ranges that an FP16 rest needs.

    Raises:
        CalibError: the model, the set or the plan is wrong.
    """
    model, samples = normalize.normalize(graph_load.load(model_path)).model, sets.read(data)
    chosen = load_plan(plan_path)
    tensors, ranged = qdq.place(model, chosen).tensors, qdq.unranged(model)
    with progress.stage(f"Observing {len(tensors)} tensors", len(samples)) as advance:
        seen = observe.observe(model, samples, tensors, ranged, batch_size=batch_size, progress=advance)
    if calibrator.needs_linear:
        seen = second_pass(model, samples, seen, batch_size, progress)
    origin = origin_of(calibrator, graph_load.sha256(model_path), samples)
    return scales_from(model, chosen, seen, calibrator, origin)


def second_pass(model: ir.Model, samples: SampleSet, seen: Observed, batch_size: int, progress: Progress) -> Observed:
    """Return the same with the linear histograms that some calibrators need."""
    with progress.stage("Second pass", len(samples)) as advance:
        return observe.observe_linear(model, samples, seen, batch_size=batch_size, progress=advance)


def origin_of(calibrator: Calibrator, model_sha256: str, samples: Samples) -> Origin:
    """Return what scales of this calibrator, model and set are bound to."""
    preparation = samples.preparation if isinstance(samples, SampleSet) else {}
    return Origin(calibrator.name, model_sha256, samples.sha256, environment.deciding_versions(), preparation)


def scales_from(model: ir.Model, chosen: Plan, seen: Observed, calibrator: Calibrator, origin: Origin) -> Scales:
    """Return the scales of a normalized model: of the planned layers' activations, and of their weights.

    Raises:
        DataError: a planned activation was zero throughout.
    """
    placement = qdq.place(model, chosen)
    needed = set(graph_layers.activations(placement.int8))
    tensors = [t for t in placement.tensors if t in needed or seen.tensors[t].histogram.amax > 0]  # a read is optional
    amax = calibrators.calibrate({tensor: seen.tensors[tensor] for tensor in tensors}, calibrator)
    amax = qdq.unify(amax, placement.shared)
    activations = {tensor: scales.scale_of(value) for tensor, value in amax.items()}
    weights = graph_layers.weight_scales(model, placement.int8)
    return Scales(activations, weights, origin, seen.ranges, seen.profile)


def quantize(
    model_path: Path,
    scales_path: Path,
    plan_path: Path | None,
    form: Form,
    data: Path | None,
    out: Path,
    progress: Progress,
) -> Quantized:
    """Write the Q/DQ model and return it.

    Args:
        model_path: the float model.
        scales_path: scales.json.
        plan_path: plan.toml; all in INT8 by default.
        form: how it is written.
        data: set on which ranges and shapes are observed where the scales hold none (an imported calibration cache).
        out: where to write the model.
        progress: told of the observing.

    Raises:
        CalibError: the model, scales or plan is wrong, or the scales are another model's.
    """
    found, digest = scales.load(scales_path), graph_load.sha256(model_path)
    if found.origin.model_sha256 not in ("", digest):
        raise DataError(
            f"{scales_path} was made for the model with sha256 {found.origin.model_sha256[:12]} and {model_path} has "
            f"{digest[:12]}: calibrate this model"
        )
    model = normalize.normalize(graph_load.load(model_path)).model
    if data and not found.ranges:
        samples = sets.read(data)
        with progress.stage("Observing ranges", len(samples)) as advance:
            seen = observe.observe(model, samples, (), qdq.unranged(model), batch_size=1, progress=advance)
        found = replace(found, ranges=seen.ranges, profile=seen.profile)
    quantized = qdq.quantize(model, load_plan(plan_path), found, form)
    graph_save.save(quantized.model, out)
    return quantized


def score(
    model: Path,
    data: Path,
    metric: str,
    options: Mapping[str, Any],
    against: Path | None,
    *,
    batch_size: int,
    progress: Progress,
) -> tuple[Evaluation, dict[str, Any]]:
    """Return the evaluation of a model, and a machine's answer that compares it with another on the same samples.

    Args:
        model: the model.
        data: set.
        metric: built-in or "module:attribute".
        options: of the metric.
        against: model to compare with; an Agreement takes it for the FP32 model.
        batch_size: samples a batch.
        progress: told of the evaluating.

    Returns:
        The model's evaluation, and the answer: by score the value, the other's, the paired difference with its 95 % interval and
        how many samples (or groups) changed; with right and wrong in both.

    Raises:
        CalibError: a model, the set, the metric or its options are wrong.
    """
    samples = sets.read(data)
    first = _evaluate(model, samples, metric, options, against, batch_size, progress)
    other = _evaluate(against, samples, metric, options, against, batch_size, progress) if against else None
    answer: dict[str, Any] = {"model": str(model), "samples": len(samples), "runtime": first.runtime, "scores": {}}
    groups = samples.groups()
    for name, kind in first.aggregates.items():
        answer["scores"][name] = {"value": first.value(name)}
        if other is not None:
            found = difference(kind, other.terms(name), first.terms(name), groups)
            answer["scores"][name] |= {
                "against": found.baseline,
                "delta": found.delta,
                "interval": [found.interval.low, found.interval.high] if found.interval else None,
                "changed": found.changed,
                "why": found.why,
            }
    if other is not None:
        counted = decisions(other.right(), first.right())
        answer["decisions"] = asdict(counted) if counted else None
    return first, answer


def load_plan(path: Path | None) -> Plan:
    """Return the plan of a file, or that of all layers in INT8."""
    return plan.load(path) if path else Plan()


def _evaluate(
    model: Path,
    samples: SampleSet,
    metric: str,
    options: Mapping[str, Any],
    against: Path | None,
    batch_size: int,
    progress: Progress,
) -> Evaluation:
    with ExitStack() as stack:
        runner = stack.enter_context(ort.OrtRunner(model))
        _check_preparation(model, runner.metadata, samples)
        scorer = metrics.make(metric, options, runner.metadata)
        reference: ort.OrtRunner | None = None
        if isinstance(scorer, metrics.Agreement) and against:
            reference = runner if against == model else stack.enter_context(ort.OrtRunner(against))
        advance = stack.enter_context(progress.stage(f"Evaluating {model.name}", len(samples)))
        return evaluate.evaluate(
            runner,
            samples,
            scorer,
            model_sha256=graph_load.sha256(model),
            batch_size=batch_size,
            reference=reference,
            progress=advance,
        )


def _check_preparation(model: Path, metadata: Mapping[str, str], samples: SampleSet) -> None:
    """Refuse a set that is prepared otherwise than the calibration set of a quantized model was."""
    calibrated = json.loads(metadata.get(PREPARATION_KEY, "{}"))
    if calibrated and samples.preparation and calibrated != dict(samples.preparation):
        keys = sorted(k for k in {*calibrated, *samples.preparation} if calibrated.get(k) != samples.preparation.get(k))
        raise DataError(
            f"{samples.where} is prepared otherwise than what {model} was calibrated on ({', '.join(keys)} differ): build "
            "the set with the same recipe, or calibrate again"
        )
