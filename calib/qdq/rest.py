"""The rest of the graph in FP16: every tensor and node that is not INT8 gets a type, and casts where types meet.

A node computes in FP32 and not in FP16

1. where the plan says so;
2. where a value that it reads or makes does not fit FP16: it was seen beyond 65504 / HEADROOM, or all its values are so
   small that FP16 has no resolution left for them (amax below 2^-14), or its range is unknown;
3. where a constant does not fit: it overflows, becomes 0, or its rounding error is above 1/1024 of its largest value (or of
   what it is added to); the bounds of a Clip are saturated instead;
4. where small values are divided by, or go into a root or logarithm: the smallest non-zero one must be a normal FP16 number;
5. where a scale that it reads does not survive rounding to FP16 (error above half a step at code 127);
6. where it computes shapes, positions or masks: what comes from integers only, in which FP16 is exact to 2048 at best;
7. where it reads a layer that is in FP32 and not quantized: TensorRT-RTX computes a layer that stands alone between casts in
   FP16, weights and all;
8. where ONNX has no FP16 for the operator, or the operator is not ONNX's, or it holds a subgraph.

INT8 needs no cast: QuantizeLinear takes the type of what it reads, DequantizeLinear gives the type that is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx
import onnx_ir as ir

from calib.graph import load as graph_load
from calib.graph.layers import QUANTIZABLE
from calib.graph.values import array_of, input_of, is_constant, subgraphs
from calib.plan import Precision
from calib.qdq import fp16
from calib.qdq.casts import Convertible, rewrite
from calib.ranges import Range

HEADROOM = 4.0
"""How many times larger than the largest value seen a value may get before FP16 overflows."""

_SMALL_MATTERS = {"Div": 1, "Sqrt": 0, "Log": 0, "Reciprocal": 0}  # operator -> the input in question

# The values of the output are values of the inputs.
MOVEMENT = {
    *(
        "Concat",
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "Identity",
        "MaxPool",
        "Relu",
    ),
    *("Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
}


def unranged(model: ir.Model) -> dict[str, bool]:
    """Return the float tensors of a normalized model whose range must be observed: all but moved ones.

    The value says whether the smallest magnitude matters too (rule 4), and not only the largest.
    """
    values = [*model.graph.inputs, *(out for node in model.graph if not _moves(node) for out in node.outputs)]
    small = {
        str(source.name)
        for node in model.graph
        if node.op_type in _SMALL_MATTERS and (value := node.inputs[_SMALL_MATTERS[node.op_type]]) is not None
        for source in _sources(value)
    }
    return {str(value.name): value.name in small for value in values if value.dtype is ir.DataType.FLOAT}


def _sources(value: ir.Value) -> Iterator[ir.Value]:
    """Yield the tensors whose values a moved tensor holds."""
    producer = value.producer()
    if producer is None or not _moves(producer):
        yield value
        return
    for source in producer.inputs if producer.op_type == "Concat" else producer.inputs[:1]:
        if source is not None:
            yield from _sources(source)


def mix(
    model: ir.Model, default: Precision, chosen: Mapping[str, Precision], ranges: Mapping[str, Range]
) -> dict[str, str]:
    """Give every node of a graph with Q/DQ its float type, in place.

    Args:
        model: normalized and quantized, all in FP32.
        default: FP16, or FP32 for the nodes that `chosen` does not name.
        chosen: float type by node name, from the plan.
        ranges: of the tensors that `unranged` names; needed where anything is to be FP16.

    Returns:
        Why, by node name, for each node that would be FP16 and stays in FP32 (rules 2 to 8).
    """
    chooser = _Chooser(model, ranges)
    half, reasons = {}, {}
    for node in model.graph:
        if chosen.get(str(node.name), default) is Precision.FP16:
            found = chooser.choose(node)
            if isinstance(found, Convertible):
                half[node] = found
            elif found:
                reasons[str(node.name)] = found
        else:
            chooser.pass_over(node)
    for node in model.graph:
        if node.op_type in QUANTIZABLE and node not in half and not _is_quantized(node):
            for reader in node.outputs[0].consumers():
                if half.pop(reader, None):
                    reasons[str(reader.name)] = f"it reads '{node.name}', which TensorRT would else compute in FP16"
    rewrite(model, half)
    return reasons


def _is_quantized(node: ir.Node) -> bool:
    producers = [value.producer() for value in node.inputs[:2] if value is not None]
    return any(producer is not None and producer.op_type == "DequantizeLinear" for producer in producers)


def _moves(node: ir.Node) -> bool:
    return node.op_type in MOVEMENT and node.domain in ("", "ai.onnx")


class _Chooser:
    """Says which nodes fit FP16; must be asked in graph order."""

    def __init__(self, model: ir.Model, ranges: Mapping[str, Range]) -> None:
        self._opset = graph_load.opset(model)
        self._ranges = ranges
        self._integral: set[ir.Value] = set()

    def pass_over(self, node: ir.Node) -> bool:
        """Note whether a node computes with integers (rule 6), and return it."""
        if self._from_integers(node):
            self._integral.update(node.outputs)
            return True
        return False

    def choose(self, node: ir.Node) -> Convertible | str:
        """Return what of a node becomes FP16, or why it stays FP32; "" where it has no floats, or is Q/DQ."""
        integral = self.pass_over(node)
        floats = any(_is_float(value) for value in (*node.inputs, *node.outputs))
        if not floats or node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            return ""
        signature = self._signature(node)
        if isinstance(signature, str):
            return signature
        if integral:
            return "it computes shapes, positions or a mask from integers"
        return self._misfit(node, signature) or signature

    def _from_integers(self, node: ir.Node) -> bool:
        if node.op_type == "Cast":
            source = node.inputs[0]
            return source is not None and (source in self._integral or source.dtype not in _FLOATS)
        if node.op_type in QUANTIZABLE:
            return False
        data = [v for v in node.inputs if v is not None and v.dtype is ir.DataType.FLOAT and not is_constant(v)]
        return bool(data) and all(value in self._integral for value in data)

    def _signature(self, node: ir.Node) -> Convertible | str:
        if any(subgraphs(node)):
            return "it holds a subgraph, which stays in FP32"
        if node.domain not in ("", "ai.onnx"):
            return f"its operator is of the domain {node.domain}, about which ONNX says nothing"
        if "dtype" in node.attributes:
            return "its type is an attribute"
        schema = onnx.defs.get_schema(node.op_type, self._opset)
        half = {c.type_param_str for c in schema.type_constraints if "tensor(float16)" in c.allowed_type_strs}
        found = Convertible(
            tuple(i for i, v in enumerate(node.inputs) if _is_float(v) and _parameter(schema.inputs, i) in half),
            tuple(i for i, v in enumerate(node.outputs) if _is_float(v) and _parameter(schema.outputs, i) in half),
        )
        return found if found.inputs or found.outputs else f"ONNX has no FP16 for {node.op_type}"

    def _misfit(self, node: ir.Node, signature: Convertible) -> str:
        """Return why a node's values do not fit FP16, or ""."""
        for index in signature.inputs:
            value = node.inputs[index]
            assert value is not None  # _is_float has seen it
            if is_constant(value):
                array = array_of(value)
                if not (node.op_type == "Clip" and index > 0) and not fp16.fits(array, self._beside(node)):
                    return f"constant '{value.name}' does not fit FP16 ({fp16.span(array)})"
                continue
            reason = self._unfit(value)
            if reason:
                return reason
            found = self._range(value)
            if _SMALL_MATTERS.get(node.op_type) == index and found and found.smallest < fp16.TINY:
                return f"'{value.name}' goes as low as {found.smallest:.3g}, and {node.op_type} needs it exact"
            if node.op_type == "Cast" and found and found.amax > fp16.EXACT_INTEGERS:
                return f"'{value.name}' becomes an integer, and FP16 is exact to {fp16.EXACT_INTEGERS:g} only"
        return next(filter(None, (self._unfit(node.outputs[i]) for i in signature.outputs)), "")

    def _beside(self, node: ir.Node) -> float:
        """Return how large the values are that a constant is added to; its rounding is nothing beside theirs."""
        found = self._range(node.outputs[0]) if node.op_type in ("Add", "Sub") else None
        return found.amax if found else 0.0

    def _unfit(self, value: ir.Value) -> str:
        producer = value.producer()
        if producer is not None and producer.op_type == "DequantizeLinear":
            scale = array_of(input_of(producer, 1))
            return (
                ""
                if fp16.exact(scale)
                else f"the scale of '{input_of(producer, 0).name}' does not fit FP16 ({fp16.span(scale)})"
            )
        found = self._range(value)
        if found is None:
            return f"the range of '{value.name}' is not known"
        if not found.amax * HEADROOM <= fp16.MAX:
            return f"'{value.name}' reaches {found.amax:.4g}, too near to FP16's {fp16.MAX:g}"
        if 0 < found.amax < fp16.TINY:
            return f"'{value.name}' is {found.amax:.3g} at most, which FP16 can hardly tell from 0"
        return ""

    def _range(self, value: ir.Value) -> Range | None:
        if str(value.name) in self._ranges:
            return self._ranges[str(value.name)]
        producer = value.producer()
        if producer is None:
            return Range.of(array_of(value)) if is_constant(value) else None
        if producer.op_type == "DequantizeLinear":
            scale = array_of(input_of(producer, 1))
            return Range(128 * float(scale.max()), float(scale.min()))
        if not _moves(producer):
            return None
        sources = producer.inputs if producer.op_type == "Concat" else producer.inputs[:1]
        parts = [None if source is None else self._range(source) for source in sources]
        known = [part for part in parts if part is not None]
        return Range.join(known) if len(known) == len(parts) else None

    # Casts


_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16)


def _parameter(formal: Sequence[onnx.defs.OpSchema.FormalParameter], index: int) -> str:
    """The type parameter of the input or output at a position; the last one may be variadic."""
    return str(formal[min(index, len(formal) - 1)].type_str)


def _is_float(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is ir.DataType.FLOAT
