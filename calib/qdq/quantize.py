"""From a float model, a plan and scales to the model that TensorRT builds."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from calib import profiles
from calib.errors import DataError
from calib.graph import lint
from calib.graph.lint import Finding
from calib.plan import Plan, Precision
from calib.qdq import fp16
from calib.qdq import rest as rests
from calib.qdq.placement import Placement, Read, place
from calib.qdq.write import WeightForm, Writer
from calib.scales import PREPARATION_KEY, Scales


@dataclass(frozen=True, slots=True)
class Form:
    """How a quantized model is written.

    Attributes:
        rest: type of what is not INT8; FP16 only where it is safe.
        weights: "int8", a quarter of the size; "qdq" for TensorRT 8, which takes weights in float with Q and DQ.
    """

    rest: Literal["fp16", "fp32"] = "fp16"
    weights: WeightForm = "int8"


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized model and what was decided on the way.

    Attributes:
        model: with Q/DQ, and casts where FP16 and FP32 meet.
        form: how it is written.
        placement: which layers are in INT8, and why others are not.
        reads: the placement's reads that were written.
        shared: the placement's groups that got one scale.
        kept: why, by node name, for each node that stays in FP32 where FP16 was asked for.
        findings: what lint says of the model: warnings, and operators that TensorRT needs a plugin for.
    """

    model: ir.Model
    form: Form
    placement: Placement
    reads: tuple[Read, ...]
    shared: tuple[tuple[str, ...], ...]
    kept: Mapping[str, str]
    findings: tuple[Finding, ...]


def quantize(model: ir.Model, plan: Plan, scales: Scales, form: Form) -> Quantized:
    """Return a quantized copy of a normalized model; the model itself is left as it is.

    Raises:
        ConfigError: the plan names a layer that the model does not have.
        DataError: a planned layer's activation has no scale, or FP16 is asked for and the scales hold no ranges.
        ModelError: TensorRT would refuse the result.
    """
    result = model.clone()
    placement = place(result, plan)
    half = form.rest == "fp16" or Precision.FP16 in placement.types.values()
    if half and not scales.ranges:
        raise DataError(
            "the scales hold no ranges, so what FP16 can hold is not known (an imported calibration cache has none): "
            "give a calibration set (--data), or keep the rest in FP32 (--rest fp32)"
        )
    writer = Writer(result, scales, form.weights, fp16.round_scale if half else lambda scale: scale)
    nodes = {str(node.name): node for node in result.graph}
    for layer in placement.int8:
        writer.quantize_layer(nodes[layer.name], layer)
    reads = tuple(_agreeing(placement.reads, nodes, scales))
    for read in reads:
        writer.quantize_input(nodes[read.node], read.index, read.tensor)
    kept = rests.mix(result, Precision(form.rest), placement.types, scales.ranges) if half else {}
    writer.remove_unread()
    if scales.profile:
        result.metadata_props[profiles.METADATA_KEY] = profiles.encode(scales.profile)
    if scales.origin.preparation:
        result.metadata_props[PREPARATION_KEY] = json.dumps(scales.origin.preparation)
    shared = tuple(
        group for group in placement.shared if len({scales.activations.get(tensor) for tensor in group}) == 1
    )
    return Quantized(result, form, placement, reads, shared, kept, lint.passed(result))


def _agreeing(reads: Iterable[Read], nodes: Mapping[str, ir.Node], scales: Scales) -> Iterator[Read]:
    """Yield the reads that gain something.

    Those are not: of a tensor without a scale (zero throughout, or not in an imported cache), and those of a Concat whose
    inputs got other scales than its output (rules 6 and 7).
    """
    for read in reads:
        if read.tensor not in scales.activations:
            continue
        node = nodes[read.node]
        tensors = {str(value.name) for value in (*node.inputs, *node.outputs) if value is not None}
        values = {float(scales.activations[tensor]) for tensor in tensors if tensor in scales.activations}
        if read.rule != 7 or len(values) == 1:
            yield read
