"""Shapes of every tensor, from those of the model's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from calib.errors import ConfigError, ModelError
from calib.graph import load
from calib.graph.passes.bare import ERRORS, through_onnx
from calib.graph.passes.reference import compute

_SMALL = 1024
"""Most values of a constant that is computed here: those that make up a shape are few."""

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


def infer(model: ir.Model, inputs: Mapping[str, Sequence[int]]) -> ir.Model:
    """Return a copy of a model whose tensors have the shapes that follow from its inputs'.

    What the model itself says of inner shapes is dropped, because it may be stale; only what comes out of operators of other
    domains is believed. Where onnx's inference does not follow how a shape is computed (the pads of an exported `F.pad`,
    say), the small constants are computed and it starts again.

    Args:
        model: normalized.
        inputs: shape by input; inputs that are not named keep the model's.

    Raises:
        ConfigError: no such input, or a shape that contradicts the model's.
        ModelError: onnx finds the graph inconsistent.
    """
    result = model.clone()
    _set_inputs(result, inputs)
    for node in result.graph:
        if node.domain in ("", "ai.onnx"):
            for out in node.outputs:
                out.shape = None
    for value in result.graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and tensor.size <= _SMALL:  # onnx follows no reference to a file
            value.const_value = ir.tensor(tensor.numpy(), name=tensor.name)
    try:
        _merge(result, through_onnx(result, _inferred))
    except ERRORS as error:
        raise ModelError(f"the model's shapes cannot be inferred: {str(error).strip()}") from error
    return result


def sizes(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return a tensor's sizes, None where one of them is not known."""
    if value is None or value.shape is None:
        return None
    known = tuple(size for size in value.shape if isinstance(size, int) and size >= 0)
    return known if len(known) == len(value.shape) else None


def _set_inputs(model: ir.Model, inputs: Mapping[str, Sequence[int]]) -> None:
    values = {str(value.name): value for value in model.graph.inputs if not value.is_initializer()}
    for name, wanted in inputs.items():
        if name not in values:
            raise ConfigError(
                f"a shape is given for '{name}', which is no input of the model; it has {', '.join(values)}"
            )
        value = values[name]
        own: Sequence[Any] = [None] * len(wanted) if value.shape is None else list(value.shape)
        if len(own) != len(wanted) or any(_fixed(size) and size != new for size, new in zip(own, wanted, strict=True)):
            given = "x".join(map(str, wanted))
            raise ConfigError(f"input '{name}' is {load.describe(value)} and cannot have the shape {given}")
        value.shape = ir.Shape(wanted)


def _fixed(size: object) -> bool:
    return isinstance(size, int) and size >= 0  # exporters also write -1 for what is free


def _inferred(proto: onnx.ModelProto) -> onnx.ModelProto:
    while True:
        proto = onnx.shape_inference.infer_shapes(proto, strict_mode=False, data_prop=True)
        if not _fold(proto):
            return proto


def _fold(proto: onnx.ModelProto) -> bool:
    """Turn nodes that compute small constants into Constant nodes, in place; return whether that may tell more shapes."""
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    shapes = _known_shapes(proto.graph)
    folded = False
    for node in proto.graph.node:
        if node.op_type == "Constant":
            known.update((node.output[0], numpy_helper.to_array(a.t)) for a in node.attribute if a.name == "value")
            continue
        array = _compute(node, known, shapes, proto.opset_import)
        if array is not None:
            known[node.output[0]] = array
            node.CopyFrom(onnx.helper.make_node("Constant", [], node.output, value=numpy_helper.from_array(array)))
            folded = True
    made = {name for node in proto.graph.node for name in node.output if name}
    return folded and not made <= set(shapes)


def _known_shapes(graph: onnx.GraphProto) -> dict[str, Shape]:
    result = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        kind = info.type.tensor_type
        dims = kind.shape.dim
        if kind.HasField("shape") and all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
            result[info.name] = tuple(dim.dim_value for dim in dims)
    return result


def _compute(
    node: onnx.NodeProto, known: Mapping[str, Array], shapes: Mapping[str, Shape], opsets: Any
) -> Array | None:
    """Return the only output of a node that reads small constants, or no more than a known shape."""
    subgraphs = any(attribute.HasField("g") for attribute in node.attribute)
    if len(node.output) != 1 or node.domain not in ("", "ai.onnx") or subgraphs or node.op_type.startswith("Random"):
        return None
    feeds: dict[str, Array]
    if node.op_type in ("Shape", "Size") and node.input[0] in shapes:
        feeds = {node.input[0]: np.broadcast_to(np.float32(0), shapes[node.input[0]])}
    elif node.input and all(name in known and known[name].size <= _SMALL for name in node.input if name):
        feeds = {str(name): known[name] for name in node.input if name}
    else:
        return None
    array = compute(node, feeds, opsets)
    return array if array is not None and array.size <= _SMALL else None


def _merge(model: ir.Model, inferred: ir.Model) -> None:
    for graph, other in zip(model.graphs(), inferred.graphs(), strict=True):
        found = ir.convenience.create_value_mapping(other, include_subgraphs=False)
        for name, value in ir.convenience.create_value_mapping(graph, include_subgraphs=False).items():
            if name in found and found[name].shape is not None:
                value.shape = found[name].shape
            if name in found and found[name].type is not None and value.type is None:
                value.type = found[name].type
