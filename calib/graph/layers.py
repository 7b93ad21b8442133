"""Layers: the nodes that may be quantized, and which of their inputs are activations and weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib import scales as scales_module
from calib.scales import WeightScale

QUANTIZABLE = ("Conv", "ConvTranspose", "MatMul", "Gemm")


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
            Weight(str(value.name), _channel_axis(node, index, value)) for index, value in operands if _constant(value)
        )
        activations = tuple(str(value.name) for _, value in operands if not _constant(value))
        if activations:
            result.append(Layer(str(node.name), node.op_type, activations, weights))
    return tuple(result)


def enclosed(model: ir.Model) -> dict[str, str]:
    """Return, by name, where each would-be layer inside an If, Loop or Scan is; such layers stay in float."""
    result = {}
    for node in model.graph:
        for attribute in node.attributes.values():
            if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                graphs = [attribute.as_graph()] if attribute.type is ir.AttributeType.GRAPH else attribute.as_graphs()
                for inner in (inner for graph in graphs for inner in ir.traversal.RecursiveGraphIterator(graph)):
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


def _constant(value: ir.Value) -> bool:
    return value.is_initializer() and not value.is_graph_input()


def _channel_axis(node: ir.Node, index: int, value: ir.Value) -> int | None:
    rank = len(value.shape) if value.shape is not None else 0
    if node.op_type == "Conv":
        return 0
    if node.op_type == "ConvTranspose":  # TensorRT's documentation says axis 1, its kernels have said axis 0
        return None
    if node.op_type == "Gemm":
        transposed = node.attributes.get_int("transB" if index == 1 else "transA", 0)
        # Output channels are the columns of B and the rows of A; a transposed operand is stored the other way round.
        return (0 if transposed else 1) if index == 1 else (1 if transposed else 0)
    if rank < 2 or _is_packed_projection(node):
        return None
    # A batched weight [..., K, N] has a scale for each of the N columns, shared by the batch.
    return rank - 1 if index == 1 else rank - 2


def _is_packed_projection(node: ir.Node) -> bool:
    """Whether a MatMul makes several tensors at once, as the packed query, key and value of attention.

    TensorRT-RTX 1.7 takes such a layer apart along its channels, and builds it in INT8 only if they share one scale.
    """
    value, reshaped = node.outputs[0], False
    for _ in range(6):
        readers = list(value.consumers())
        parts = sum(reader.op_type in ("Slice", "Gather") for reader in readers)
        split = any(reader.op_type == "Split" for reader in readers)
        if reshaped and (parts > 1 or split):
            return True
        following = [reader for reader in readers if reader.op_type in ("Add", "Reshape", "Transpose")]
        if len(following) != 1:
            return False
        reshaped = reshaped or following[0].op_type == "Reshape"
        value = following[0].outputs[0]
    return False
