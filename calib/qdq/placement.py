"""Placement: which tensors are quantized for whom, and which of them share a scale. The rules are in `calib.qdq`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from calib import plan as plans
from calib.errors import ModelError
from calib.graph import layers as graph_layers
from calib.graph.layers import Layer
from calib.graph.values import input_of
from calib.plan import Plan, Precision

_SHARING = {
    *(
        "Concat",
        "DepthToSpace",
        "Flatten",
        "MaxPool",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Transpose",
    ),
    "Unsqueeze",
}
_FUSING = ("Conv",)  # what TensorRT fuses a residual Add into
KEPT_BY_PLAN = "the plan keeps it in"
MAX_RATIO = 4.0
"""How many times larger than a tensor's own amax a shared one may be: two of its seven bits."""


@dataclass(frozen=True, slots=True)
class Read:
    """An input of a node that is no layer, read through Q/DQ.

    Attributes:
        node: its name.
        index: of the input.
        tensor: that is read.
        rule: its number in `calib.qdq`.
    """

    node: str
    index: int
    tensor: str
    rule: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where Q/DQ goes.

    Attributes:
        int8: layers in INT8, in graph order.
        left: why each other layer stays in float, by name; those inside subgraphs too.
        types: float type by layer name, for the layers that the plan gives one.
        reads: further inputs that are read through Q/DQ.
        shared: tensors that must have one scale, each group in graph order (rule 6).
    """

    int8: tuple[Layer, ...]
    left: Mapping[str, str]
    types: Mapping[str, Precision]
    reads: tuple[Read, ...]
    shared: tuple[tuple[str, ...], ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor that is quantized, once: those of layers first, in graph order."""
        return tuple(dict.fromkeys((*graph_layers.activations(self.int8), *(read.tensor for read in self.reads))))


def quantizable(model: ir.Model) -> tuple[str, ...]:
    """Return every tensor that some plan would quantize: what to observe before the plan is known."""
    layers = graph_layers.find(model)
    producers = {layer.name for layer in layers if layer.op_type in _FUSING}
    everything = {layer.name for layer in layers}
    reads = [read.tensor for read in _reads(model, everything)]
    # Which input of an Add is the residual depends on which of the layers before it are in INT8.
    either = [
        str(value.name)
        for node in model.graph
        if node.op_type == "Add" and any(value is not None and _made_by(value) in producers for value in node.inputs)
        for value in node.inputs
        if _data(value) and value is not None
    ]
    return tuple(dict.fromkeys((*graph_layers.activations(layers), *reads, *either)))


def place(model: ir.Model, plan: Plan) -> Placement:
    """Return where a plan's Q/DQ goes in a normalized model.

    Raises:
        ConfigError: the plan names a layer that the model does not have.
        ModelError: the model has no layer at all.
    """
    layers = graph_layers.find(model)
    if not layers:
        raise ModelError(
            f"the model has no {', '.join(graph_layers.QUANTIZABLE)} on data: there is nothing to quantize"
        )
    names = [layer.name for layer in layers]
    precision, named = plans.apply(plan, names), plans.named(plan, names)
    nodes = {str(node.name): node for node in model.graph}
    left = {}
    for layer in layers:
        if precision[layer.name] is not Precision.INT8:
            left[layer.name] = f"{KEPT_BY_PLAN} {precision[layer.name]}"
        elif layer.name not in named:
            reason = _unfit(nodes[layer.name], layer)
            if reason:
                left[layer.name] = reason
    int8 = tuple(layer for layer in layers if layer.name not in left)
    reads = tuple(_reads(model, {layer.name for layer in int8}))
    types = {name: found for name, found in precision.items() if found is not Precision.INT8}
    tensors = {*graph_layers.activations(int8), *(read.tensor for read in reads)}
    return Placement(int8, left | graph_layers.enclosed(model), types, reads, _shared(model, tensors))


def unify(amax: Mapping[str, float], shared: Iterable[tuple[str, ...]]) -> dict[str, float]:
    """Return amax by tensor with one value a group: the largest, so that none is clipped more than its calibrator wanted.

    A tensor whose amax is more than `MAX_RATIO` times smaller than the group's keeps its own.
    """
    result = dict(amax)
    for group in shared:
        known = [tensor for tensor in group if tensor in amax]
        largest = max((amax[tensor] for tensor in known), default=0.0)
        result.update({tensor: largest for tensor in known if amax[tensor] * MAX_RATIO >= largest})
    return result


def _unfit(node: ir.Node, layer: Layer) -> str:
    """Return why a layer that a plan does not name stays in float, or ""."""
    if layer.op_type == "ConvTranspose":
        return (
            "TensorRT builds no ConvTranspose in INT8 (seen with TensorRT-RTX 1.7); a plan that names it quantizes it"
        )
    if layer.op_type in ("Gemm", "MatMul"):
        if not layer.weights and _in_attention(node):
            return "TensorRT fuses attention in FP16 and not in INT8; a plan that names it quantizes it"
        if _is_vector(node):
            return "GEMV: a product with one row or one column gains nothing in INT8; a plan that names it quantizes it"
    return ""


def _in_attention(node: ir.Node) -> bool:
    """Whether a product of two activations makes the scores that a Softmax reads, or weighs values with them."""
    before = any(_through(value, forward=False) for value in node.inputs if value is not None)
    return before or _through(node.outputs[0], forward=True)


def _through(value: ir.Value, *, forward: bool, steps: int = 8) -> bool:
    """Whether a Softmax is reached by scaling, masking and data movement only."""
    for _ in range(steps):
        nodes = list(value.consumers()) if forward else [value.producer()]
        if any(node is not None and node.op_type == "Softmax" for node in nodes):
            return True
        passing = [node for node in nodes if node is not None and node.op_type in _BESIDE_SOFTMAX]
        if not passing:
            return False
        following = passing[0].outputs[0] if forward else next((v for v in passing[0].inputs if _data(v)), None)
        if following is None:
            return False
        value = following
    return False


_BESIDE_SOFTMAX = {"Add", "Cast", "Div", "Dropout", "Flatten", "Mul", "Reshape", "Squeeze", "Unsqueeze", "Where"}


def _data(value: ir.Value | None) -> bool:
    return value is not None and not value.is_initializer() and value.dtype in (None, ir.DataType.FLOAT)


def _is_vector(node: ir.Node) -> bool:
    """Whether one side of a product has a single row or column, whatever the data."""
    first, second = (value.shape if value is not None else None for value in node.inputs[:2])
    rows = first[1 if node.attributes.get_int("transA", 0) else -2] if first is not None and len(first) > 1 else 0
    columns = second[0 if node.attributes.get_int("transB", 0) else -1] if second is not None and len(second) > 1 else 0
    vectors = [shape for shape in (first, second) if shape is not None and len(shape) == 1]
    return 1 in (rows, columns) or bool(vectors)


def _reads(model: ir.Model, int8: set[str]) -> Iterator[Read]:
    quantized = {id(value) for node in model.graph if node.name in int8 for value in node.inputs[:2]}
    order = {id(node): position for position, node in enumerate(model.graph)}
    for node in model.graph:
        if node.domain not in ("", "ai.onnx"):
            continue
        if node.op_type == "Add" and len(node.inputs) == 2:
            residual = _residual(node, int8, order)
            if residual is not None:
                yield Read(str(node.name), residual, str(input_of(node, residual).name), 5)
        elif node.op_type == "Concat" and id(node.outputs[0]) in quantized:
            if all(_from_int8(value, int8) or id(value) in quantized for value in node.inputs):
                for index, value in enumerate(node.inputs):
                    yield Read(str(node.name), index, str(value.name) if value is not None else "", 7)
        elif node.op_type == "LayerNormalization":
            producer = _before_movement(input_of(node, 0)).producer()
            if producer is not None and producer.op_type == "Conv" and producer.name in int8:
                yield Read(str(node.name), 0, str(input_of(node, 0).name), 9)


def _residual(node: ir.Node, int8: set[str], order: Mapping[int, int]) -> int | None:
    """Return which input of an Add is the residual: not that of the INT8 Conv which it fuses into."""
    fusing = []
    for index, value in enumerate(node.inputs):
        if value is None or not _data(value):
            return None
        producer = value.producer()
        only_here = len(value.uses()) == 1 and not value.is_graph_output()
        if producer is not None and producer.op_type in _FUSING and producer.name in int8 and only_here:
            fusing.append((order[id(producer)], index))
    return 1 - max(fusing)[1] if fusing else None


def _before_movement(value: ir.Value) -> ir.Value:
    """Return the tensor that was reshaped and transposed into this one, and read by nothing else on the way."""
    producer = value.producer()
    while producer is not None and producer.op_type in ("Reshape", "Transpose") and len(value.uses()) == 1:
        value = input_of(producer, 0)
        producer = value.producer()
    return value


def _made_by(value: ir.Value) -> str:
    producer = value.producer()
    return "" if producer is None else str(producer.name)


def _from_int8(value: ir.Value | None, int8: set[str]) -> bool:
    """Whether a tensor comes from an INT8 layer through what fuses into it."""
    for _ in range(6):
        producer = value.producer() if value is not None else None
        if producer is None:
            return False
        if producer.name in int8:
            return True
        value = next((v for v in producer.inputs if _data(v)), None)
        if producer.op_type not in _POINTWISE:
            return False
    return False


_POINTWISE = {"Add", "Clip", "Div", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Relu", "Sigmoid"}


def _shared(model: ir.Model, tensors: set[str]) -> tuple[tuple[str, ...], ...]:
    """Return the groups of quantized tensors between which only data movement lies."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for node in model.graph:
        if _shares(node):
            moved = [value for value in (node.inputs if node.op_type == "Concat" else node.inputs[:1]) if _data(value)]
            names = [str(value.name) for value in (*moved, *node.outputs) if value is not None]
            for name in names[1:]:
                parent[root(name)] = root(names[0])
    groups: dict[str, list[str]] = {}
    for value in (*model.graph.inputs, *(out for node in model.graph for out in node.outputs)):
        if value.name in tensors:
            groups.setdefault(root(str(value.name)), []).append(str(value.name))
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _shares(node: ir.Node) -> bool:
    if node.domain not in ("", "ai.onnx"):
        return False
    nearest = node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") == "nearest"
    return nearest or (node.op_type in _SHARING and node.outputs[0].dtype in (None, ir.DataType.FLOAT))
