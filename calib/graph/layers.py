"""Layers: the nodes that may be quantized, and which of their inputs are activations and weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib import scales as scales_module
from calib.graph.values import is_constant, subgraphs
from calib.scales import WeightScale

QUANTIZABLE = ("Conv", "ConvTranspose", "MatMul", "Gemm")
_FURTHEST = 8  # nodes between a layer and where its output is cut


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant operand of a layer; `axis` counts its output channels, None where it has none."""

    tensor: str
    axis: int | None


@dataclass(frozen=True, slots=True)
class Layer:
    """A node that may run in INT8.

    Attributes:
        name: of the node, unique in a normalized model.
        op_type: one of QUANTIZABLE.
        activations: tensors among its first two inputs that depend on the data.
        weights: constants among its first two inputs. A bias is neither: it is never quantized.
    """

    name: str
    op_type: str
    activations: tuple[str, ...]
    weights: tuple[Weight, ...]


def find(model: ir.Model) -> tuple[Layer, ...]:
    """Return the layers of a normalized model in graph order; nodes inside If, Loop and Scan are not among them."""
    result = []
    for node in model.graph:
        if node.op_type not in QUANTIZABLE or node.domain not in ("", "ai.onnx"):
            continue
        operands = [(index, value) for index, value in enumerate(node.inputs[:2]) if value is not None]
        weights = tuple(
            Weight(str(value.name), _channel_axis(node, index, value))
            for index, value in operands
            if is_constant(value)
        )
        activations = tuple(str(value.name) for _, value in operands if not is_constant(value))
        if activations:
            result.append(Layer(str(node.name), node.op_type, activations, weights))
    return tuple(result)


def enclosed(model: ir.Model) -> dict[str, str]:
    """Return, by name, where each would-be layer inside an If, Loop or Scan is; such layers stay in float."""
    result = {}
    for node in model.graph:
        for inner in (inner for graph in subgraphs(node) for inner in ir.traversal.RecursiveGraphIterator(graph)):
            if inner.op_type in QUANTIZABLE:
                result[str(inner.name)] = f"inside {node.op_type} '{node.name}'"
    return result


def activations(layers: Iterable[Layer]) -> tuple[str, ...]:
    """Return every tensor that feeds a layer, once, in graph order."""
    return tuple(dict.fromkeys(tensor for layer in layers for tensor in layer.activations))


def weight_scales(model: ir.Model, layers: Iterable[Layer]) -> dict[str, WeightScale]:
    """Return the abs-max scales of every layer's weights; they need no data."""
    return {
        weight.tensor: scales_module.weight_scale(weight_values(model, weight.tensor), weight.axis)
        for layer in layers
        for weight in layer.weights
    }


def weight_values(model: ir.Model, tensor: str) -> npt.NDArray[np.generic]:
    """Return a constant weight's values."""
    constant = model.graph.initializers[tensor].const_value
    assert constant is not None  # what `find` calls a weight
    return np.asarray(constant.numpy())


def output_axis(node: ir.Node, index: int, rank: int) -> int:
    """Return the axis along which a constant operand of a Conv, Gemm or MatMul has its output channels.

    A batched weight [..., K, N] of a MatMul has a scale for each of the N columns, shared by the batch.

    Args:
        node: the layer.
        index: of the operand, 0 or 1.
        rank: of the operand.
    """
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        # Output channels are the columns of B and the rows of A; a transposed operand is stored the other way round.
        transposed = bool(node.attributes.get_int("transB" if index == 1 else "transA", 0))
        return 0 if transposed == (index == 1) else 1
    return rank - 1 if index == 1 else rank - 2


def is_cut(node: ir.Node, *, reshaped: bool) -> bool:
    """Whether what a node makes is cut into several tensors, as the packed query, key and value of attention are.

    Args:
        node: a MatMul or another layer.
        reshaped: whether only cuts after a Reshape count.
    """
    value, waiting = node.outputs[0], reshaped
    for _ in range(_FURTHEST):
        readers = list(value.consumers())
        cuts = [reader for reader in readers if reader.op_type in ("Slice", "Gather", "Split")]
        if not waiting and (len(cuts) > 1 or any(len(cut.outputs) > 1 for cut in cuts)):
            return True
        following = [reader for reader in readers if reader.op_type in ("Add", "Reshape", "Transpose")]
        if len(following) != 1:
            return False
        waiting = waiting and following[0].op_type != "Reshape"
        value = following[0].outputs[0]
    return False


def _channel_axis(node: ir.Node, index: int, value: ir.Value) -> int | None:
    """Return the axis of a weight's scales, None for one scale: as `output_axis`, but for what TensorRT does not build.

    TensorRT-RTX 1.7 takes a MatMul whose output is reshaped and cut apart along its channels, and builds it in INT8 only if
    they share one scale. Of a ConvTranspose TensorRT's documentation says axis 1, its kernels have said axis 0.
    """
    rank = len(value.shape) if value.shape is not None else 0
    if node.op_type == "ConvTranspose":
        return None
    if node.op_type == "MatMul" and (rank < 2 or is_cut(node, reshaped=True)):
        return None
    return output_axis(node, index, rank)
