"""The single steps, from files to artefacts, for the commands that do one thing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from calib import calibrators, environment, evaluate, files, metrics, observe, plan, qdq, scales
from calib.calibrators import Calibrator
from calib.data import sets
from calib.data.sets import SampleSet
from calib.errors import DataError
from calib.evaluate import Evaluation
from calib.graph import layers as graph_layers
from calib.graph import load as graph_load
from calib.graph import normalize
from calib.graph.layers import Layer
from calib.plan import Plan
from calib.progress import Progress
from calib.runtime import ort
from calib.scales import Origin, Scales
from calib.statistics import Statistics


def inspect(path: Path) -> dict[str, Any]:
    """Return what a model is and which layers it has: all that can be said without data.

    Raises:
        ModelError: not a float ONNX model, or its opset cannot be raised.
    """
    published = graph_load.load(path)
    normalized = normalize.normalize(published)
    model = normalized.model
    return {
        "inputs": graph_load.signature(model.graph.inputs),
        "outputs": graph_load.signature(model.graph.outputs),
        "opset": graph_load.opset(published),
        "parameters": graph_load.parameters(model),
        "normalization": list(normalized.steps),
        "layers": [
            {
                "name": layer.name,
                "operator": layer.op_type,
                "activations": list(layer.activations),
                "weights": [
                    f"{w.tensor} {list(graph_layers.weight_values(model, w.tensor).shape)}" for w in layer.weights
                ],
            }
            for layer in graph_layers.find(model)
        ],
    }


def calibrate(
    model_path: Path, data: Path, calibrator: Calibrator, plan_path: Path | None, *, batch_size: int, progress: Progress
) -> Scales:
    """Return the scales of a float model from a set.

    Raises:
        CalibError: the model, the set or the plan is wrong.
    """
    model, samples = normalize.normalize(graph_load.load(model_path)).model, sets.read(data)
    chosen = load_plan(plan_path)
    tensors = graph_layers.activations(qdq.int8_layers(model, chosen))
    with progress.stage(f"Observing {len(tensors)} tensors", len(samples)) as advance:
        histograms = observe.observe(model, samples, tensors, batch_size=batch_size, progress=advance)
    seen = {tensor: Statistics(histogram) for tensor, histogram in histograms.items()}
    if calibrator.needs_linear:
        with progress.stage("Second pass", len(samples)) as advance:
            linear = observe.observe_linear(model, samples, histograms, batch_size=batch_size, progress=advance)
        seen = {tensor: Statistics(histograms[tensor], linear[tensor]) for tensor in tensors}
    origin = Origin(calibrator.name, graph_load.sha256(model_path), samples.sha256, environment.deciding_versions())
    return scales_from(model, chosen, seen, calibrator, origin)


def scales_from(
    model: ir.Model, chosen: Plan, seen: Mapping[str, Statistics], calibrator: Calibrator, origin: Origin
) -> Scales:
    """Return the scales of a normalized model: of the planned layers' activations, and of their weights.

    Raises:
        DataError: a planned activation was zero throughout.
    """
    layers = qdq.int8_layers(model, chosen)
    amax = calibrators.calibrate({tensor: seen[tensor] for tensor in graph_layers.activations(layers)}, calibrator)
    activations = {tensor: scales.scale_of(value) for tensor, value in amax.items()}
    return Scales(activations, graph_layers.weight_scales(model, layers), origin)


def quantize(model_path: Path, scales_path: Path, plan_path: Path | None, out: Path) -> tuple[Layer, ...]:
    """Write the Q/DQ model and return its INT8 layers.

    Raises:
        CalibError: the model, scales or plan is wrong, or the scales are another model's.
    """
    found, digest = scales.load(scales_path), graph_load.sha256(model_path)
    if found.origin.model_sha256 not in ("", digest):
        raise DataError(
            f"{scales_path} was made for the model with sha256 {found.origin.model_sha256[:12]} and {model_path} has "
            f"{digest[:12]}: calibrate this model"
        )
    model, chosen = normalize.normalize(graph_load.load(model_path)).model, load_plan(plan_path)
    quantized = qdq.quantize(model, chosen, found)
    with files.replacing(out) as temporary:
        ir.save(quantized, temporary)
    return qdq.int8_layers(model, chosen)


def score(
    model: Path, data: Path, metric: str, against: Path | None, *, batch_size: int, progress: Progress
) -> dict[str, Any]:
    """Return the scores of a model, and of another on the same samples with the paired interval of the difference.

    Raises:
        CalibError: a model, the set or the metric is wrong.
    """
    samples = sets.read(data)
    first = _evaluate(model, samples, metric, batch_size, progress)
    answer: dict[str, Any] = {"model": str(model), "samples": len(samples), "runtime": first.runtime, "scores": {}}
    other = _evaluate(against, samples, metric, batch_size, progress) if against else None
    groups = samples.column(samples.group) if samples.group else None
    for name in first.higher_is_better:
        row: dict[str, Any] = {"value": first.value(name)}
        if other is not None:
            interval = evaluate.paired_interval(other.ratios(name), first.ratios(name), groups)
            row |= {"against": other.value(name), "delta": first.value(name) - other.value(name), "interval": interval}
        answer["scores"][name] = row
    return answer


def load_plan(path: Path | None) -> Plan:
    """Return the plan of a file, or that of all layers in INT8."""
    return plan.load(path) if path else Plan()


def _evaluate(model: Path, samples: SampleSet, metric: str, batch_size: int, progress: Progress) -> Evaluation:
    with progress.stage(f"Evaluating {model.name}", len(samples)) as advance, ort.OrtRunner(model) as runner:
        scorer = metrics.make(metric, {}, runner.metadata)
        return evaluate.evaluate(
            runner, samples, scorer, model_sha256=graph_load.sha256(model), batch_size=batch_size, progress=advance
        )
