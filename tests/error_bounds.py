"""How far a quantized model may be from the float model, value by value, derived from the activations' scales alone.

For a tensor of the normalized float model let x be its value and e a bound of |x' - x|, where x' is what the quantized
model has there. Then, with |w| and so on taken value by value:

1. Q/DQ of scale s: e + s/2. Clamping to a range that holds x brings x' no farther from x; rounding moves it by s/2.
2. A product of two tensors (Conv, ConvTranspose, Gemm, MatMul, Mul): (|x| + e) * e_w + e * |w|, by that product itself.
   The error e_w of a quantized weight follows from the abs-max scale of each output channel.
3. Sums, means, pools and data movement: the operator applied to e.
4. A function with the Lipschitz constant L: L e.
5. Softmax: y (exp(e + max e) - 1), at most 1. LayerNormalization, BatchNormalization, Div: see below.
6. What is written in FP16: + 2^-11 (|x| + e) + 2^-25 (subnormal numbers); in FP32: + 2^-17 |x|, for any order of adding.

What is taken from `calib`: the normalized graph (the outputs are compared with the original's), which layers are in
INT8, and the activations' scales. In "fp16" every tensor is taken to be in FP16; FP32 is only more exact.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
from onnx import helper, numpy_helper

from calib.plan import Precision
from calib.qdq import Quantized
from calib.runtime import ort
from calib.scales import Scales

Array = np.ndarray
_HALF, _HALF_FLOOR, _SINGLE = 2.0**-11, 2.0**-25, 2.0**-17
_LEAST_HALF_SCALE = 2.0**-17  # what calib raises a channel's scale to in FP16


@dataclass(frozen=True)
class _Operand:
    """A tensor as one node reads it: its value in FP32, and the bound of its error; None for what is no float."""

    value: Array
    error: Array | None


def bounds(model: ir.Model, quantized: Quantized, scales: Scales, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the bound of each output of a normalized model's quantized form, for inputs that it was calibrated on."""
    proto = ir.to_proto(model)
    made = [name for node in proto.graph.node for name in node.output if name]
    values = {**feeds, **ort.exposing(model, made).run(feeds)}
    values |= {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    walk = _Walk(proto, quantized, scales, values)
    for node in proto.graph.node:
        walk.follow(node)
    return {output.name: walk.errors[output.name] for output in proto.graph.output}


class _Walk:
    def __init__(
        self, proto: onnx.ModelProto, quantized: Quantized, scales: Scales, values: Mapping[str, Array]
    ) -> None:
        self.errors: dict[str, Array] = {}
        self._values = values
        self._scales = scales
        self._half = quantized.form.rest == "fp16" or Precision.FP16 in quantized.placement.types.values()
        self._opset = next(entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx"))
        self._layers = {layer.name: layer for layer in quantized.placement.int8}
        self._reads = {(read.node, read.index) for read in quantized.reads}
        for name in (value.name for value in proto.graph.input if _floating(values[value.name])):
            self.errors[name] = self._written(values[name], np.zeros(values[name].shape))
        for name in (tensor.name for tensor in proto.graph.initializer if _floating(values[tensor.name])):
            self.errors[name] = self._constant(values[name])

    def follow(self, node: onnx.NodeProto) -> None:
        operands = [self._operand(node, index) for index in range(len(node.input))]
        results = [self._values[name] for name in node.output if name]
        if any(_floating(result) for result in results):
            found = _RULES[node.op_type](_Node(node, self._opset, self._half), operands, results)
            for name, result, error in zip((n for n in node.output if n), results, found, strict=True):
                self.errors[name] = self._written(result, np.broadcast_to(error, result.shape))

    def _operand(self, node: onnx.NodeProto, index: int) -> _Operand | None:
        name = node.input[index]
        if not name:
            return None
        value, error = self._values[name], self.errors.get(name)
        layer = self._layers.get(node.name)
        weights = {weight.tensor: weight for weight in layer.weights} if layer else {}
        if layer and index < 2 and name in weights:
            error = self._weight(node, index, value, shared=weights[name].axis is None)
        elif (layer and index < 2) or (node.name, index) in self._reads:
            error = self._activation(name, value, error)
        return _Operand(value, error)

    def _activation(self, name: str, value: Array, error: Array | None) -> Array:
        """Rule 1; the scale itself may be rounded, and the division by it too."""
        assert error is not None
        step = float(self._scales.activations[name])
        share = np.abs(value).max() / (
            127 * step
        )  # a quarter at least, where tensors share a scale (rule 6 of calib.qdq)
        assert 0.25 * (1 - 1e-5) <= share <= 1 + 1e-5, f"'{name}' uses {share:.3g} of its scale's range"
        rounded = step / 2 * (1 + _SINGLE)
        if self._half:
            rounded += step * _HALF + 127 * step * _HALF
        return self._written(value, error + rounded)

    def _weight(self, node: onnx.NodeProto, index: int, value: Array, *, shared: bool) -> Array:
        """What the codes of each output channel lose (rule 2)."""
        axis = None if shared and node.op_type == "MatMul" else _channel_axis(node, index, value.ndim)
        others = tuple(i for i in range(value.ndim) if i != axis)
        step = (np.abs(value).max(axis=others, keepdims=True) / np.float32(127)).astype(np.float32)
        if not self._half:
            return _lost(value, step) + _SINGLE * np.abs(value)
        if step.max() >= 64 * _LEAST_HALF_SCALE:
            step = np.where(step == 0, step, np.maximum(step, np.float32(_LEAST_HALF_SCALE)))
        # The scale is rounded to FP16 where FP16 can hold it, and is as it was elsewhere.
        return self._written(value, np.maximum(_lost(value, step), _lost(value, step.astype(np.float16))))

    def _constant(self, value: Array) -> Array:
        if not self._half:
            return np.zeros(value.shape)
        with np.errstate(over="ignore"):
            rounded = value.astype(np.float16).astype(np.float64)
        return np.where(np.isfinite(rounded), np.abs(rounded - value), 0)  # else it is kept in FP32, or saturated

    def _written(self, value: Array, error: Array) -> Array:
        magnitude = np.abs(value.astype(np.float64))
        if self._half or value.dtype == np.float16:
            return error + _HALF * (magnitude + error) + _HALF_FLOOR
        return error + _SINGLE * magnitude


def _lost(value: Array, step: Array) -> Array:
    """What the codes of values lose, for scales that FP16 may hold badly: those that it makes 0 or Inf are not used."""
    step = step.astype(np.float32)
    usable = (step > 0) & np.isfinite(step)
    safe = np.where(usable, step, 1)
    return np.where(usable, np.abs(np.clip(np.rint(value / safe), -128, 127) * safe - value), 0)


def _floating(array: Array) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating))


def _channel_axis(node: onnx.NodeProto, index: int, rank: int) -> int | None:
    """The axis of a constant operand that counts output channels."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose" or rank < 2:
        return None
    transposed = _attribute(node, "transB" if index == 1 else "transA", 0) if node.op_type == "Gemm" else 0
    return rank - 1 - transposed if index == 1 else rank - 2 + transposed


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(item) for item in node.attribute if item.name == name), default)


@dataclass(frozen=True)
class _Node:
    """A node that can be run on other inputs than the model's."""

    proto: onnx.NodeProto
    opset: int
    half: bool

    def get(self, name: str, default: Any) -> Any:
        return _attribute(self.proto, name, default)

    def run(self, arrays: Sequence[Array | None]) -> list[Array]:
        node = onnx.NodeProto()
        node.CopyFrom(self.proto)
        del node.input[:]
        node.input.extend("" if array is None else f"i{i}" for i, array in enumerate(arrays))
        feeds = {
            f"i{i}": np.asarray(array, np.float32 if _floating(array) else None)
            for i, array in enumerate(arrays)
            if array is not None
        }
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ]
        graph = helper.make_graph([node], "node", inputs, [onnx.ValueInfoProto(name=n) for n in node.output if n])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return [array.astype(np.float64) for array in session.run(None, feeds)]


_Rule = Callable[[_Node, Sequence[_Operand | None], Sequence[Array]], Sequence[Array]]


def _product(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    (x, ex), (w, ew) = ((np.abs(part.value), part.error) for part in operands[:2])
    found = np.abs(node.run([x + ex, ew])[0]) + np.abs(node.run([ex, w])[0])
    found = found + _SINGLE * np.abs(node.run([x, w])[0])  # cancelling sums
    if len(operands) > 2 and operands[2] is not None:
        bias = operands[2].error
        per_channel = bias.reshape(-1, *[1] * (results[0].ndim - 2)) if "Conv" in node.proto.op_type else bias
        found = found + abs(node.get("beta", 1.0)) * per_channel
    return [found]


def _sum(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    return [sum(part.error for part in operands)]


def _same(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    """The operator applied to the errors; what is no float (a shape, an index) stays."""
    found = [part and (part.value if part.error is None else part.error) for part in operands]
    if node.proto.op_type == "Resize" and len(found) > 2:
        found[1:3] = [part and part.value for part in operands[1:3]]  # roi and scales
    if node.proto.op_type == "Pad" and len(found) > 2:
        found[2] = None if found[2] is None else np.zeros(())
    return node.run(found)


def _cast(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    return [np.zeros(()) if operands[0].error is None else operands[0].error]


def _lipschitz(constant: float | Callable[[_Node], float]) -> _Rule:
    def rule(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
        factor = constant(node) if callable(constant) else constant
        return [factor * operands[0].error]

    return rule


def _largest(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    return [functools.reduce(np.maximum, [part.error for part in operands if part is not None])]


def _softmax(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    error = operands[0].error
    worst = error + error.max(axis=node.get("axis", -1), keepdims=True)
    return [np.minimum(results[0] * np.expm1(np.minimum(worst, 50)), 1)]


def _layer_norm(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    """With d = x - mean and r = the root mean square of d: the error of r is at most that of d, taken the same way."""
    x, scale, bias = (*operands, None)[:3]
    axes = tuple(range(node.get("axis", -1) % x.value.ndim, x.value.ndim))
    value = x.value.astype(np.float64)
    centred = np.abs(value - value.mean(axis=axes, keepdims=True))
    moved = x.error + x.error.mean(axis=axes, keepdims=True) + (_HALF * np.abs(value) if node.half else 0)
    root = np.sqrt((centred**2).mean(axis=axes, keepdims=True) + node.get("epsilon", 1e-5))
    off = np.sqrt((moved**2).mean(axis=axes, keepdims=True))
    most = np.sqrt(np.prod([value.shape[axis] for axis in axes]))  # of any normalized value
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(off < root, (moved + centred / root * off) / (root - off), 2 * most)
    error = np.minimum(error, 2 * most)
    found = error * (np.abs(scale.value) + scale.error) + centred / root * scale.error
    return [found + (bias.error if bias is not None else 0)]


def _batch_norm(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    x, scale, bias, mean, variance = operands
    shape = (-1, *[1] * (x.value.ndim - 2))
    gain = (np.abs(scale.value) / np.sqrt(variance.value + node.get("epsilon", 1e-5))).reshape(shape)
    found = gain * x.error + bias.error.reshape(shape)
    if node.half:
        found = found + 3 * _HALF * gain * (np.abs(x.value) + np.abs(mean.value).reshape(shape) + x.error)
    return [found]


def _divide(node: _Node, operands: Sequence[_Operand | None], results: Sequence[Array]) -> Sequence[Array]:
    x, by = operands
    least = np.abs(by.value) - by.error
    assert (least > 0).all(), "the divisor may become 0"
    return [(x.error + np.abs(results[0]) * by.error) / least]


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul", "Mul"), _product),
    **dict.fromkeys(("Add", "Sub", "Sum"), _sum),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReduceMax", "ReduceMean"), _same),
    "Cast": _cast,
    **dict.fromkeys(("Concat", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape", "Resize"), _same),
    **dict.fromkeys(
        ("ReduceSum", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "DepthToSpace"), _same
    ),
    **dict.fromkeys(("Abs", "Neg", "Relu", "Tanh"), _lipschitz(1)),
    "Sigmoid": _lipschitz(0.25),
    "HardSwish": _lipschitz(1.5),
    "HardSigmoid": _lipschitz(lambda node: node.get("alpha", 0.2)),
    "LeakyRelu": _lipschitz(lambda node: max(1.0, abs(node.get("alpha", 0.01)))),
    **dict.fromkeys(("Clip", "Max", "Min"), _largest),
    "Softmax": _softmax,
    "LayerNormalization": _layer_norm,
    "BatchNormalization": _batch_norm,
    "Div": _divide,
}
