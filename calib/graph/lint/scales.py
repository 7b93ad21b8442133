"""Rules about scales and zero-points."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from calib.graph.finding import Finding, Rule, place
from calib.graph.lint import reading

_POSITIVE = Rule(
    "L01",
    "error",
    "calibrate again; a channel of zeros may have any positive scale",
    "NVIDIA/TensorRT#1826, #521, #663, #1102, #3020",
)
_RANGE = Rule("L02", "error", "calibrate again: no data that is finite has such a scale, or keep its readers in float")
_COUNT = Rule("L03", "error", "give one scale, or one for each slice along the axis", "ORT#17718, sparseml#1701")
_PER_CHANNEL = Rule("L04", "warning", "give an activation one scale, and that as a scalar (shape [])")
_DYNAMIC = Rule("L05", "error", "store the scale as an initializer: TensorRT takes constants only")
_ZERO_POINT = Rule("L06", "error", "quantize symmetrically, with zero-point 0")
_TYPE = Rule("L07", "error", "quantize to INT8: give QuantizeLinear an INT8 zero-point of 0")
_BLOCKED = Rule("L08", "error", "give one scale for the tensor, or one for each output channel")
_HALF = Rule("L10", "warning", "write this scale in FP32, with casts around the layer")

_TINY = float(np.finfo(np.float32).tiny)
_TINY_HALF = 2.0**-17  # below it FP16 has less than the 7 bits that keep code 127 within half a step
_INT8_LIKE = frozenset((ir.DataType.INT8, ir.DataType.INT4, ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT4E2M1))


def check(model: ir.Model) -> Iterator[Finding]:
    """Yield what is wrong with the scales, zero-points and types of Q/DQ nodes."""
    for node in reading.quantizers(model):
        where = place(node)
        yield from _values(node, where)
        yield from _form(node, where)
        zero = reading.constant(reading.at(node, 2))
        if zero is not None and zero.any():
            yield _ZERO_POINT.at(where, "its zero-point is not 0, and TensorRT's INT8 is symmetric")
        yield from _types(node, where)
    for node, *operands in reading.layers(model):
        for operand in operands:
            yield from _activation(node, operand)


def _values(node: ir.Node, where: str) -> Iterator[Finding]:
    given = reading.at(node, 1)
    if given is None or not reading.is_constant(given):
        message = "its scale is computed while the model runs; before a Conv this crashes TensorRT-RTX 1.7"
        yield _DYNAMIC.at(where, message)
    scale = reading.constant(given)
    if scale is None:
        return
    values = scale.astype(np.float32)
    if not (values > 0).all():  # NaN is not, either
        wrong = values[~(values > 0)]
        yield _POSITIVE.at(where, f"{_several(wrong, values)} not positive ({wrong[0]:g})")
    elif not np.isfinite(values).all():
        yield _RANGE.at(where, f"{_several(values[~np.isfinite(values)], values)} infinite")
    elif scale.dtype != np.float16 and (values < _TINY).any():
        low = values[values < _TINY]
        message = (
            f"{_several(low, values)} subnormal ({low[0]:g}): the reciprocal that TensorRT multiplies by overflows"
        )
        yield _RANGE.at(where, message)
    elif scale.dtype == np.float16 and (values < _TINY_HALF).any():
        low = values[values < _TINY_HALF]
        yield _HALF.at(
            where, f"{_several(low, values)} too small for FP16 ({low[0]:g}): it is off by up to {_error(low):.0%}"
        )


def _several(wrong: np.ndarray, values: np.ndarray) -> str:
    return "its scale is" if values.size == 1 else f"{wrong.size} of its {values.size} scales are"


def _error(scale: np.ndarray) -> float:
    return float((2.0**-25 / scale.astype(np.float64)).max())  # half of the step between FP16's subnormals


def _form(node: ir.Node, where: str) -> Iterator[Finding]:
    data, scale = reading.at(node, 0), reading.constant(reading.at(node, 1))
    if node.attributes.get_int("block_size", 0) or (scale is not None and scale.ndim > 1):
        message = (
            "it is quantized in blocks: TensorRT-RTX 1.7 multiplies the product of INT8 weights by the wrong scales"
        )
        yield _BLOCKED.at(where, message)
        return
    zero = reading.constant(reading.at(node, 2))
    if scale is not None and zero is not None and zero.size != scale.size:
        yield _COUNT.at(
            where,
            f"it has {scale.size} scales and {zero.size} zero-points",
            "give as many zero-points as scales, or none",
        )
        return
    if scale is None or scale.ndim == 0 or data is None or data.shape is None:
        return
    axis, rank = node.attributes.get_int("axis", 1), len(data.shape)
    if not -rank <= axis < rank:
        if scale.size > 1:
            yield _COUNT.at(where, f"its axis is {axis} and the tensor has {rank} axes")
        return
    size = data.shape[axis]
    if scale.size > 1 and isinstance(size, int) and size >= 0 and size != scale.size:
        yield _COUNT.at(where, f"it has {scale.size} scales and the tensor's axis {axis} has {size} slices")


def _types(node: ir.Node, where: str) -> Iterator[Finding]:
    kind = _quantized_type(node)
    if kind is ir.DataType.UINT8 and reading.is_quantize(node):
        message = "it quantizes to UINT8 (so ONNX says where no zero-point is given); TensorRT takes INT8: other values"
        yield _TYPE.at(where, message)
    elif kind is not None and kind not in _INT8_LIKE and kind is not ir.DataType.INT32:  # a bias is L14
        source = reading.at(node, 0)
        if reading.is_quantize(node) or (source is not None and not reading.is_quantize(source.producer())):
            yield _TYPE.at(where, f"TensorRT has no {kind.name} for quantized values")


def _quantized_type(node: ir.Node) -> ir.DataType | None:
    """Return the type that a node quantizes to, or dequantizes from."""
    if not reading.is_quantize(node):
        codes = reading.at(node, 0)
        return None if codes is None else codes.dtype
    zero = reading.at(node, 2)
    if zero is not None:
        return zero.dtype
    given = node.attributes.get_int("output_dtype", 0)
    return ir.DataType(given) if given else ir.DataType.UINT8


def _activation(layer: ir.Node, operand: reading.Operand) -> Iterator[Finding]:
    scale = operand.scale
    if operand.weight or operand.dequantize is None or scale is None or scale.ndim != 1:
        return
    where = place(layer)
    tensor = f"activation '{operand.value.name}'"
    if scale.size > 1:
        yield _PER_CHANNEL.at(where, f"its {tensor} has a scale for each channel: TensorRT runs the layer in float")
    elif layer.op_type in ("Conv", "ConvTranspose"):
        message = (
            f"the scale of its {tensor} has shape [1], which TensorRT takes for one a channel: the layer runs in float"
        )
        yield _PER_CHANNEL.at(where, message)
