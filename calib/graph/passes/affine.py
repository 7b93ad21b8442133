"""Affine functions of channels behind a layer: BatchNormalization, scales, biases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib.graph import load
from calib.graph.names import Unique, initializer
from calib.graph.passes.said import Said

_Array = npt.NDArray[np.generic]

_LAYERS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1}  # axis of the weight's output channels, that of a group


class FoldAffine(ir.passes.InPlacePass):
    """Folds what is affine in each channel into the Conv, ConvTranspose or Gemm before it.

    In INT8 the layer and what follows it are one kernel, whose weights are the folded ones; scales of the others would
    be wrong for it (aimet#3060). Paddle's exporter writes each bias as an Add.

    1. y = x * factor + shift: the weight's output channels are multiplied by the factor; the bias, 0 where there is
       none, goes through it all.
    2. BatchNormalization: factor = gamma / sqrt(variance + epsilon), shift = beta - mean * factor. A channel's gamma may
       be 0 or negative.
    3. Add, Sub, Mul and Div (by it) of one constant, or of one for each channel.
    4. Only where nothing else reads the layer's output, and all but the data is constant. Elsewhere it stays.
    5. A weight that other nodes read too is copied.
    6. The layer's output takes the name of the folded node's.
    """

    def call(self, model: ir.Model) -> Said:
        """Fold them, in graph order, so that one behind another folds too."""
        names = Unique(model)
        folded = [node.op_type for node in load.all_nodes(model) if _fold(model, node, names)]
        norms = folded.count("BatchNormalization")
        parts = [f"{norms} BatchNormalizations"] if norms else []
        parts += [f"{len(folded) - norms} constant factors or terms"] if len(folded) > norms else []
        sentence = f"{' and '.join(parts)} were folded into the layer before them" if parts else ""
        return Said(model, bool(folded), sentence)


@dataclass(frozen=True, slots=True)
class _Affine:
    """x * factor + shift, of one element or of one for each channel."""

    factor: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


def _fold(model: ir.Model, node: ir.Node, names: Unique) -> bool:
    layer = _layer_before(node)
    weight = _constant(layer, 1) if layer is not None else None
    if layer is None or weight is None:
        return False
    with np.errstate(all="ignore"):  # what is not finite is not folded
        affine = _of_norm(node) if node.op_type == "BatchNormalization" else _of_arithmetic(node, layer, weight.ndim)
        folded = _folded(layer, weight, affine) if affine is not None else None
    if folded is None or not all(np.isfinite(array).all() for array in folded):
        return False
    if folded[0] is not weight:
        _store(model, layer, 1, folded[0], names)
    _store(model, layer, 2, folded[1], names)
    layer.attributes.pop("beta", None)  # of a Gemm; it is in the bias now
    made, result = layer.outputs[0], node.outputs[0]
    made.name, made.type, made.shape = result.name, result.type, result.shape
    ir.convenience.replace_all_uses_with(result, made, replace_graph_outputs=True)
    assert node.graph is not None  # it is in one
    node.graph.remove(node, safe=True)
    return True


def _layer_before(node: ir.Node) -> ir.Node | None:
    """Return the layer whose output a foldable node, and nothing else, reads."""
    if node.domain != "" or node.op_type not in ("BatchNormalization", "Add", "Sub", "Mul", "Div"):
        return None
    for value in (value for value in node.inputs if value is not None):
        layer = value.producer()
        if layer is not None and layer.op_type in _LAYERS and layer.domain == "":
            alone = len(value.uses()) == 1 and not value.is_graph_output() and layer.graph is node.graph
            return layer if alone else None
    return None


def _of_norm(norm: ir.Node) -> _Affine | None:
    gamma, beta, mean, variance = (_constant(norm, index) for index in range(1, 5))
    if gamma is None or beta is None or mean is None or variance is None:
        return None
    if (
        not gamma.shape == beta.shape == mean.shape == variance.shape
        or norm.attributes.get_int("training_mode", 0) == 1
    ):
        return None
    factor = gamma / np.sqrt(variance.astype(np.float64) + norm.attributes.get_float("epsilon", 1e-5))
    return _Affine(factor, beta - mean * factor)


def _of_arithmetic(node: ir.Node, layer: ir.Node, rank: int) -> _Affine | None:
    second = node.inputs[0] is not layer.outputs[0]
    constant = _constant(node, 0 if second else 1)
    if constant is None or constant.ndim > rank:
        return None
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if any(size != 1 for axis, size in enumerate(shape) if axis != 1):
        return None
    values = constant.reshape(-1).astype(np.float64)
    one, zero = np.ones_like(values), np.zeros_like(values)
    match node.op_type:
        case "Add":
            return _Affine(one, values)
        case "Sub":
            return _Affine(-one, values) if second else _Affine(one, -values)
        case "Mul":
            return _Affine(values, zero)
        case _:  # Div
            return None if second else _Affine(1 / values, zero)


def _folded(layer: ir.Node, weight: _Array, affine: _Affine) -> tuple[_Array, _Array] | None:
    """Return the weight, the same one if it does not change, and the bias; None if the layer cannot take them."""
    axis = 0 if layer.attributes.get_int("transB", 0) == 1 else _LAYERS[layer.op_type]
    groups = layer.attributes.get_int("group", 1) if layer.op_type == "ConvTranspose" else 1
    # [groups, ..., channels of a group, ...]: groups divide a ConvTranspose's first axis, and its second holds channels.
    split = weight.reshape(groups, -1, *weight.shape[1:])
    channels = groups * split.shape[1 + axis]
    bias = _constant(layer, 2) if _has(layer, 2) else np.zeros(channels, weight.dtype)
    if bias is None or weight.dtype.kind != "f" or affine.factor.size not in (1, channels):
        return None
    factor = np.broadcast_to(affine.factor, channels)
    shifted = bias.astype(np.float64) * layer.attributes.get_float("beta", 1.0) * factor + affine.shift
    if (factor == 1).all():
        return weight, shifted.astype(weight.dtype)
    shape = [groups, *(1 for _ in weight.shape)]
    shape[1 + axis] = -1
    scaled = np.multiply(split, factor.reshape(shape)).reshape(weight.shape)
    return scaled.astype(weight.dtype), shifted.astype(weight.dtype)


def _has(node: ir.Node, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


def _constant(node: ir.Node, index: int) -> _Array | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    tensor = value.const_value if value is not None and value.is_initializer() else None
    return None if tensor is None else np.asarray(tensor.numpy())


def _store(model: ir.Model, layer: ir.Node, index: int, array: _Array, names: Unique) -> None:
    """Make an array a layer's input: in the initializer that is there, unless others read it (rule 5)."""
    layer.resize_inputs(max(len(layer.inputs), index + 1))
    value = layer.inputs[index]
    if value is None:
        layer.replace_input_with(index, initializer(model.graph, names.take(f"{layer.name}_bias"), array))
    elif len(value.uses()) > 1 or value.is_graph_output():
        layer.replace_input_with(index, initializer(model.graph, names.take(f"{value.name}_folded"), array))
    else:
        value.const_value, value.shape = ir.tensor(array, name=value.name), ir.Shape(array.shape)
