"""Rules about where Q/DQ stands."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from calib.graph import load
from calib.graph.finding import Finding, Rule, place
from calib.graph.layers import QUANTIZABLE, output_axis
from calib.graph.lint import reading
from calib.graph.operators import UNSUPPORTED

_AXIS = Rule(
    "L09",
    "warning",
    "give one scale for each output channel (Conv: axis 0; Gemm: 1, with transB 0; MatMul: the last), or one for the tensor",
    "ORT#17718, neuralmagic/sparseml#1701, ORT#19694, NVIDIA/TensorRT#1694",
)
_HALF = Rule("L16", "warning", "quantize both operands, or neither", "NVIDIA/TensorRT#1992, #3861")
_CODES = Rule("L17", "warning", "put DequantizeLinear before operators that compute, and QuantizeLinear before it")
_BETWEEN = Rule(
    "L18",
    "warning",
    "quantize after the activation, not before it",
    "NVIDIA/TensorRT#3629, #1114, #3861, ultralytics/yolov5#2509",
)
_CONCAT = Rule(
    "L19",
    "warning",
    "give all inputs of the Concat, and its output, one scale",
    "ORT#14233, NVIDIA/TensorRT#3187, #1691",
)
_CONSTANT = Rule("L23", "error", "store it as it is dequantized, or in float; move values after DequantizeLinear")

_ACTIVATIONS = frozenset(
    (
        "Clip",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "PRelu",
        "Relu",
        "Selu",
        "Sigmoid",
        "Softplus",
        "Swish",
        "Tanh",
        "ThresholdedRelu",
    )
)


def check(model: ir.Model) -> Iterator[Finding]:
    """Yield where Q/DQ keeps a layer from running in INT8, or from being fused."""
    for node, first, second in reading.layers(model):
        where = place(node)
        yield from _one_sided(node, first, second, where)
        for index, operand in enumerate((first, second)):
            yield from _channel_axis(node, index, operand, where)
    for node in load.all_nodes(model):
        where = place(node)
        yield from _codes(node, where)
        yield from _before_activation(node, where)
        yield from _concat(node, where)
    for graph in model.graphs():
        for value in (*graph.initializers.values(), *(node.outputs[0] for node in graph if node.op_type == "Constant")):
            yield from _int8_constant(value)


def _one_sided(node: ir.Node, first: reading.Operand, second: reading.Operand, where: str) -> Iterator[Finding]:
    quantized = [operand for operand in (first, second) if operand.dequantize is not None]
    if len(quantized) == 1:
        other = second if quantized[0] is first else first
        kind = "weight" if other.weight else "activation"
        yield _HALF.at(
            where, f"its {kind} '{other.value.name}' is not quantized: TensorRT runs the {node.op_type} in float"
        )


def _channel_axis(node: ir.Node, index: int, operand: reading.Operand, where: str) -> Iterator[Finding]:
    scale = operand.scale
    if not operand.weight or operand.dequantize is None or scale is None or scale.ndim != 1 or scale.size == 1:
        return
    if node.op_type == "ConvTranspose":
        yield _AXIS.at(
            where,
            "its weight has a scale for each channel, of which TensorRT's documentation and kernels disagree whether these are "
            "input or output channels",
            "give the weight of a ConvTranspose one scale",
        )
        return
    axis = _axis_at_layer(operand)
    rank = reading.rank(operand.value)
    if axis is None or rank is None:
        return
    expected = output_axis(node, index, rank)
    if axis != expected:
        weight = f"its weight '{operand.value.name}' has scales along axis {axis}"
        yield _AXIS.at(where, f"{weight}, and output channels along {expected}: TensorRT runs it in float")


def _axis_at_layer(operand: reading.Operand) -> int | None:
    """Return the axis of the scales in the tensor that the layer reads, None where it cannot be told."""
    dequantize = operand.dequantize
    assert dequantize is not None
    rank = reading.rank(reading.at(dequantize, 0))
    if rank is None:
        return None
    axis = dequantize.attributes.get_int("axis", 1) % rank
    for node in operand.path:
        if node.op_type == "Transpose":
            order = list(node.attributes.get_ints("perm", list(reversed(range(rank)))))
            axis = order.index(axis)
        elif node.op_type not in ("Cast", "Identity", "Dropout"):
            return None
    return axis


def _codes(node: ir.Node, where: str) -> Iterator[Finding]:
    if reading.is_quantize(node):
        for use in node.outputs[0].uses():
            if not reading.is_dequantize(use.node) and use.node.op_type not in reading.MOVEMENT:
                yield _CODES.at(where, f"{use.node.op_type} '{use.node.name}' computes on its INT8 codes")
    elif reading.is_dequantize(node):
        source = reading.at(node, 0)
        while source is not None and (producer := source.producer()) is not None:
            if reading.is_quantize(producer) or producer.op_type == "Constant":
                return
            if producer.op_type not in reading.MOVEMENT or producer.op_type == "Cast":
                yield _CODES.at(
                    where, f"it dequantizes what {producer.op_type} '{producer.name}' makes, not QuantizeLinear"
                )
                return
            source = reading.at(producer, 0)


def _before_activation(node: ir.Node, where: str) -> Iterator[Finding]:
    if not reading.is_quantize(node):
        return
    data = reading.at(node, 0)
    layer = data.producer() if data is not None else None
    if data is None or layer is None or layer.op_type not in QUANTIZABLE or len(data.uses()) > 1:
        return
    for use in node.outputs[0].uses():
        if reading.is_dequantize(use.node):
            for following in (after.node for after in use.node.outputs[0].uses()):
                if following.op_type in _ACTIVATIONS:
                    yield _BETWEEN.at(
                        where,
                        f"it quantizes between {layer.op_type} '{layer.name}' and {following.op_type} '{following.name}', which "
                        "fuse without it",
                    )
                    return


def _concat(node: ir.Node, where: str) -> Iterator[Finding]:
    if node.op_type != "Concat" or not any(reading.is_quantize(use.node) for use in node.outputs[0].uses()):
        return
    scales = [reading.operand(value).scale for value in node.inputs if value is not None]
    different = {float(scale) for scale in scales if scale is not None and scale.ndim == 0}
    if len(different) > 1:
        listed = ", ".join(f"{scale:g}" for scale in sorted(different))
        yield _CONCAT.at(where, f"it joins tensors of different scales ({listed}): each is quantized twice")


def _int8_constant(value: ir.Value) -> Iterator[Finding]:
    if value.dtype is not ir.DataType.INT8 or value.is_graph_input():
        return
    for node in (use.node for use in value.uses()):
        if not (reading.is_quantize(node) or reading.is_dequantize(node) or node.op_type in UNSUPPORTED):
            message = f"{node.op_type} '{node.name}' reads this INT8 constant: TensorRT takes one before DequantizeLinear only"
            yield _CONSTANT.at(f"tensor '{value.name}'", message)
