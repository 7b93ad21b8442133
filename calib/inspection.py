"""What a model is, and what each layer will be: all that can be said without data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from calib import plan as plans
from calib import qdq
from calib.errors import ConfigError
from calib.graph import layers as graph_layers
from calib.graph import load as graph_load
from calib.graph import macs, normalize, operators, shapes
from calib.graph.finding import Finding
from calib.graph.lint import lint, reading
from calib.plan import Plan, Precision

_REST = Precision.FP16.value
_FLOATS = {ir.DataType.FLOAT16: "fp16", ir.DataType.BFLOAT16: "bf16"}


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer.

    Attributes:
        name: of the node; a plan can name it, unless it is inside a subgraph.
        operator: ONNX's.
        precision: "int8", "fp16" or "fp32". An "fp16" without a plan's word becomes fp32 where FP16 cannot hold the values.
        reason: why it is not in INT8, "" where it is.
        parameters: numbers in its weight and bias.
        macs: multiply-accumulates, None where sizes are not known.
        activations: tensors among its operands that depend on the data.
        weights: its constant operands, as "name 16x3x3x3".
    """

    name: str
    operator: str
    precision: str
    reason: str
    parameters: int
    macs: int | None
    activations: tuple[str, ...]
    weights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """The nodes of one operator.

    Attributes:
        name: ONNX's, with its domain where that is not the default.
        nodes: how many there are, those of subgraphs too.
        int8: how many of them will be in INT8.
        parameters: numbers in their weights and biases; what nodes share is counted with the first.
        macs: multiply-accumulates outside of subgraphs, None where sizes are not known, or where they are not counted.
    """

    name: str
    nodes: int
    int8: int
    parameters: int
    macs: int | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is known of a model.

    Attributes:
        model: its path.
        quantized: whether it has Q/DQ already.
        inputs: "float32[N, 3, 48, W]" by name, as the model says.
        outputs: the same.
        shapes: of the inputs, where the caller gave them: what the multiply-accumulates are counted for.
        opset: as published.
        normalization: one sentence a step.
        operators: those with the most multiply-accumulates first.
        parameters: numbers in all weights and biases.
        macs: multiply-accumulates, without those of `uncounted`; None where sizes are not known.
        uncounted: operators that multiply in ways that are not counted, or that run a subgraph which does.
        layers: in graph order, those of subgraphs last.
        findings: what TensorRT does not take; for a model with Q/DQ all that lint finds.
    """

    model: str
    quantized: bool
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    shapes: Mapping[str, Sequence[int]]
    opset: int
    normalization: tuple[str, ...]
    operators: tuple[Operator, ...]
    parameters: int
    macs: int | None
    uncounted: tuple[str, ...]
    layers: tuple[Layer, ...]
    findings: tuple[Finding, ...]


def inspect(path: Path, given: Mapping[str, Sequence[int]], plan_path: Path | None) -> Inspection:
    """Return what a model is, and which precision its layers will get, or, where it has Q/DQ, have.

    Args:
        path: of the model.
        given: shape by input, for what the model leaves open.
        plan_path: plan.toml, None for all layers in INT8.

    Raises:
        ModelError: not an ONNX model, or its opset cannot be raised.
        ConfigError: the plan names a layer, or `given` an input, that the model does not have.
    """
    published = graph_load.load(path, quantized=True)
    quantized = any(graph_load.is_quantization(node.op_type) for node in graph_load.all_nodes(published))
    steps: tuple[str, ...] = ()
    if quantized:
        if plan_path:
            raise ConfigError(f"{path} has Q/DQ already, and {plan_path} is a plan for a float model; leave one out")
        normalize.name_nodes(published)
        model = published
        precision = _built(model)
    else:
        normalized = normalize.normalize(published)
        model, steps = normalized.model, normalized.steps
        precision = _planned(model, plans.load(plan_path) if plan_path else Plan())
    sized = shapes.infer(model, given)
    layers = tuple(_layers(sized, precision))
    table = _operators(sized, Counter(layer.operator for layer in layers if layer.precision == "int8"))
    return Inspection(
        model=str(path),
        quantized=quantized,
        inputs=graph_load.signature(published.graph.inputs),
        outputs=graph_load.signature(published.graph.outputs),
        shapes=given,
        opset=graph_load.opset(published),
        normalization=steps,
        operators=table,
        parameters=sum(row.parameters for row in table),
        macs=_total(macs.count(node) for node in sized.graph if macs.is_counted(node)),
        uncounted=tuple(dict.fromkeys(_name(node) for node in sized.graph if not macs.is_counted(node))),
        layers=layers,
        findings=lint(model) if quantized else operators.check(sized),
    )


def _planned(model: ir.Model, plan: Plan) -> dict[str, tuple[str, str]]:
    """Return the precision that each layer of a normalized model will get, and why not INT8, by name."""
    if not graph_layers.find(model):
        plans.apply(plan, ())  # a plan that names layers is wrong
        return {name: (Precision.FP32.value, reason) for name, reason in graph_layers.enclosed(model).items()}
    placement = qdq.place(model, plan)
    result = {layer.name: (Precision.INT8.value, "") for layer in placement.int8}
    enclosed = graph_layers.enclosed(model)
    for name, reason in placement.left.items():
        float_type = Precision.FP32.value if name in enclosed else placement.types.get(name, _REST)
        result[name] = (str(float_type), reason)
    return result


def _built(model: ir.Model) -> dict[str, tuple[str, str]]:
    """Return the precision that each layer of a model with Q/DQ asks for, and why not INT8, by name."""
    result = {}
    for node, first, second in reading.layers(model):
        quantized = [operand.dequantize is not None for operand in (first, second)]
        kind = first.value.dtype
        name = "fp32" if kind is None else _FLOATS.get(kind, "fp32")
        reason = "" if all(quantized) else "only one operand has Q/DQ" if any(quantized) else "no Q/DQ"
        result[str(node.name)] = ("int8", "") if all(quantized) else (name, reason)
    return result


def _layers(model: ir.Model, precision: Mapping[str, tuple[str, str]]) -> Iterator[Layer]:
    nodes = [*model.graph, *(node for graph in model.graph.subgraphs() for node in graph)]
    for node in nodes:
        if str(node.name) in precision and node.op_type in graph_layers.QUANTIZABLE:
            operands = [value for value in node.inputs[:2] if value is not None]
            sources = [macs.source(value) for value in operands]
            constant = [reading.is_constant(value) for value in sources]
            yield Layer(
                str(node.name),
                node.op_type,
                *precision[str(node.name)],
                macs.parameters(macs.weights(node)),
                macs.count(node),
                tuple(str(value.name) for value, fixed in zip(sources, constant, strict=True) if not fixed),
                tuple(_named(value) for value, fixed in zip(sources, constant, strict=True) if fixed),
            )


def _named(weight: ir.Value) -> str:
    return f"{weight.name} {'x'.join(map(str, shapes.sizes(weight) or ()))}"


def _operators(model: ir.Model, int8: Mapping[str, int]) -> tuple[Operator, ...]:
    groups: dict[str, list[ir.Node]] = {}
    for node in graph_load.all_nodes(model):
        groups.setdefault(_name(node), []).append(node)
    counted: set[int] = set()
    rows = []
    for name, nodes in groups.items():
        own = [value for node in nodes for value in macs.weights(node) if id(value) not in counted]
        counted.update(map(id, own))
        outside = [node for node in nodes if node.graph is model.graph]
        products = _total(macs.count(node) if macs.is_counted(node) else None for node in outside)
        rows.append(Operator(name, len(nodes), int8.get(name, 0), macs.parameters(own), products))
    return tuple(
        sorted(rows, key=lambda row: (-(math.inf if row.macs is None else row.macs), -row.parameters, -row.nodes))
    )


def _name(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else node.op_type


def _total(numbers: Iterator[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)
