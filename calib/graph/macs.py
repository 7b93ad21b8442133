"""Multiply-accumulates and parameters of nodes.

With n(t) the number of values of a tensor t, and w[1:] the shape of a weight without its first axis:

    Conv            n(output) * prod(w[1:])     w is [out, in / group, k...]: what one output value sums over
    ConvTranspose   n(input) * prod(w[1:])      w is [in, out / group, k...]: what one input value is spread over
    Gemm, MatMul    n(output) * K               K the size of the axis that is summed over
    LSTM, GRU, RNN  steps * batch * (n(W) + n(R))    the gates, of every direction

Taps that fall on padding, or on output that is cropped, are counted as all others. A bias is an addition and is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import onnx_ir as ir

from calib.graph import shapes
from calib.graph.values import subgraphs

Sizes = tuple[int, ...] | None

_RECURRENT = ("LSTM", "GRU", "RNN")
_COUNTED = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul", *_RECURRENT))
_UNKNOWN = frozenset(
    ("Attention", "CausalConvWithState", "ConvInteger", "DeformConv", "Einsum", "LinearAttention", "MatMulInteger")
)


def is_counted(node: ir.Node) -> bool:
    """Whether `count` tells all: not for other domains, for some operators, and for what an If, Loop or Scan runs."""
    if node.op_type in _UNKNOWN or node.domain not in ("", "ai.onnx"):
        return False
    inner = (found for graph in subgraphs(node) for found in ir.traversal.RecursiveGraphIterator(graph))
    return all(found.op_type not in _COUNTED and is_counted(found) for found in inner)


def count(node: ir.Node) -> int | None:
    """Return the multiply-accumulates of a node, None where a size that it takes is not known.

    Operators that only add, compare or move have none, and so have those for which `is_counted` is false.
    """
    if node.op_type in _RECURRENT:
        return _recurrent(*(shapes.sizes(value) for value in node.inputs[:3]))
    if node.op_type not in _COUNTED:
        return 0
    first, second, out = (shapes.sizes(value) for value in (node.inputs[0], node.inputs[1], node.outputs[0]))
    if first is None or second is None or out is None:
        return None
    if node.op_type == "Conv":
        return math.prod(out) * math.prod(second[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    return math.prod(out) * first[0 if node.attributes.get_int("transA", 0) else -1]


def _recurrent(x: Sizes, weight: Sizes, recurrence: Sizes) -> int | None:
    if x is None or weight is None or recurrence is None:
        return None
    return x[0] * x[1] * (math.prod(weight) + math.prod(recurrence))


def weights(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return the constants that hold a node's weights and biases: floating-point ones, and INT8 codes behind Q/DQ."""
    if node.op_type in ("QuantizeLinear", "DequantizeLinear"):  # what they hold belongs to the nodes that read it
        return ()
    sources = [source(value) for value in node.inputs if value is not None]
    return tuple(value for value in sources if value.const_value is not None and _is_weight(value))


def parameters(values: Iterable[ir.Value]) -> int:
    """Return how many numbers constants hold, a constant that is given twice counted once."""
    different = {id(value): value.const_value for value in values}
    return sum(int(tensor.size) for tensor in different.values() if tensor is not None)


def source(value: ir.Value) -> ir.Value:
    """Return what Q/DQ quantizes, where a value comes from them; else the value itself."""
    producer = value.producer()
    while producer is not None and producer.op_type in ("QuantizeLinear", "DequantizeLinear"):
        first = producer.inputs[0]
        assert first is not None  # the operator requires it
        value, producer = first, first.producer()
    return value


def _is_weight(value: ir.Value) -> bool:
    return value.dtype is not None and (value.dtype.is_floating_point() or value.dtype is ir.DataType.INT8)
