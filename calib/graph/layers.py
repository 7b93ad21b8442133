"""Layers: the nodes that may be quantized, and which of their inputs are activations and weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib import scales as scales_module
from calib.scales import WeightScale

QUANTIZABLE = ("Conv", "MatMul", "Gemm")


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


def activations(layers: Iterable[Layer]) -> tuple[str, ...]:
    """Return every tensor that feeds a layer, once, in graph order."""
    return tuple(dict.fromkeys(tensor for layer in layers for tensor in layer.activations))


def consumers(layers: Iterable[Layer]) -> Mapping[str, tuple[str, ...]]:
    """Return the layers that read each activation."""
    result: dict[str, tuple[str, ...]] = {}
    for layer in layers:
        for tensor in layer.activations:
            result[tensor] = (*result.get(tensor, ()), layer.name)
    return result


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
    if node.op_type == "Gemm":
        transposed = node.attributes.get_int("transB" if index == 1 else "transA", 0)
        # Output channels are the columns of B and the rows of A; a transposed operand is stored the other way round.
        return (0 if transposed else 1) if index == 1 else (1 if transposed else 0)
    if rank < 2:
        return None
    # A batched weight [..., K, N] has a scale for each of the N columns, shared by the batch.
    return rank - 1 if index == 1 else rank - 2
