"""Reading a quantized graph: its Q/DQ nodes, their constants, and where a layer's operands come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import onnx_ir as ir

from calib.graph import load, values
from calib.graph.layers import QUANTIZABLE

MOVEMENT = frozenset(
    (
        "Cast",
        "Concat",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "MaxPool",
        "Pad",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    )
)
"""Operators that TensorRT-RTX 1.7 moves a DequantizeLinear past; behind another one (nearest Resize, pooling by averages,
an activation) a layer runs in float."""

_DOMAINS = ("", "ai.onnx", "com.microsoft")  # TensorRT's parser goes by the name alone


def quantizers(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every QuantizeLinear and DequantizeLinear, those of subgraphs too."""
    yield from (node for node in load.all_nodes(model) if is_quantize(node) or is_dequantize(node))


def is_quantize(node: ir.Node | None) -> bool:
    """Whether a node is a QuantizeLinear."""
    return node is not None and node.op_type == "QuantizeLinear" and node.domain in _DOMAINS


def is_dequantize(node: ir.Node | None) -> bool:
    """Whether a node is a DequantizeLinear."""
    return node is not None and node.op_type == "DequantizeLinear" and node.domain in _DOMAINS


def at(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input of a node, None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def constant(value: ir.Value | None) -> npt.NDArray[Any] | None:
    """Return a constant's values, None for one that is computed, and for what is none."""
    tensor = ir.convenience.get_const_tensor(value) if value is not None and is_constant(value) else None
    return None if tensor is None else tensor.numpy()


def is_constant(value: ir.Value, depth: int = 8) -> bool:
    """Whether a value is an initializer that no caller can replace, or is computed, in few steps, from such alone."""
    producer = value.producer()
    if producer is None:
        return values.is_constant(value)
    read = [source for source in producer.inputs if source is not None]
    if not read or is_quantize(producer) or is_dequantize(producer):
        return producer.op_type == "Constant"
    return depth > 0 and all(is_constant(source, depth - 1) for source in read)


def rank(value: ir.Value | None) -> int | None:
    """Return how many axes a tensor has, None where that is not known."""
    return None if value is None or value.shape is None else len(value.shape)


@dataclass(frozen=True, slots=True)
class Operand:
    """One of the first two inputs of a layer.

    Attributes:
        value: what the layer reads.
        dequantize: the DequantizeLinear that it comes from, None where it comes from none.
        weight: whether it is a constant, quantized or not.
        path: nodes between the DequantizeLinear and the layer, the first read first.
    """

    value: ir.Value
    dequantize: ir.Node | None
    weight: bool
    path: tuple[ir.Node, ...]

    @property
    def scale(self) -> npt.NDArray[Any] | None:
        """Its scale, None where it has none or where that is no constant."""
        return None if self.dequantize is None else constant(at(self.dequantize, 1))


def layers(model: ir.Model) -> Iterator[tuple[ir.Node, Operand, Operand]]:
    """Yield every node that could run in INT8, with its two operands."""
    for node in load.all_nodes(model):
        if node.op_type in QUANTIZABLE and node.domain in ("", "ai.onnx"):
            first, second = at(node, 0), at(node, 1)
            if first is not None and second is not None:
                yield node, operand(first), operand(second)


def operand(value: ir.Value) -> Operand:
    """Return where a value comes from."""
    path: list[ir.Node] = []
    source = value
    while (producer := source.producer()) is not None and producer.op_type in MOVEMENT and _all_dequantized(producer):
        path.append(producer)
        moved = producer.inputs[0]
        assert moved is not None  # the operators require it
        source = moved
    if producer is None or not is_dequantize(producer):
        return Operand(value, None, is_constant(source), ())
    codes = at(producer, 0)
    quantize = codes.producer() if codes is not None else None
    origin = at(quantize, 0) if quantize is not None and is_quantize(quantize) else codes
    return Operand(value, producer, origin is not None and is_constant(origin), tuple(reversed(path)))


def _all_dequantized(node: ir.Node) -> bool:
    """Whether every tensor that a Concat joins is dequantized; other movement has one tensor and its parameters."""
    return node.op_type != "Concat" or all(value is not None and operand(value).dequantize for value in node.inputs)
