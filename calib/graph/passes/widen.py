"""FP16 and BF16 models made FP32."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from calib.errors import ModelError
from calib.graph import load
from calib.graph.names import Unique
from calib.graph.passes.said import Said

_NARROW = {ir.DataType.FLOAT16: "FP16", ir.DataType.BFLOAT16: "BF16"}

# Attributes of onnx's operators that hold a type: Cast; random and window operators; accumulation.
_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision")


class Widen(ir.passes.InPlacePass):
    """Makes FP16 and BF16 tensors FP32 inside; the inputs and outputs keep their type, with a Cast next to them.

    Statistics, scales and the comparison with the float model are of FP32, and what runs in FP16 in the end is decided
    by the ranges that were seen, not by the file. ONNX Runtime runs few BF16 operators on the CPU.

    1. Initializers, and tensors in attributes.
    2. Attributes that name the type of what a node makes.
    3. Types of inner tensors, subgraphs' inputs and outputs among them.
    4. Behind an input and before an output of the model stands a Cast.
    """

    def call(self, model: ir.Model) -> Said:
        """Widen all that is narrow."""
        found = {value.dtype for value in _values(model)} | {
            tensor.dtype for node in load.all_nodes(model) for tensor in _attribute_tensors(node)
        }
        kinds = [name for kind, name in _NARROW.items() if kind in found]
        if not kinds:
            return Said(model, False, "")
        for value in (value for graph in model.graphs() for value in graph.initializers.values()):
            if value.const_value is not None:
                value.const_value = _wide_tensor(value.const_value)
        for node in load.all_nodes(model):
            _widen_attributes(node)
        for value in set(_values(model)) - set(model.graph.inputs) - set(model.graph.outputs):
            value.type = _wide_type(value.type)
        names = Unique(model)
        for value in list(model.graph.inputs):
            if _is_narrow(value) and value.uses():
                _cast_input(model.graph, value, names)
        for index, value in enumerate(model.graph.outputs):
            if _is_narrow(value) and not value.is_graph_input():
                _cast_output(model.graph, index, value, names)
        return Said(model, True, f"{' and '.join(kinds)} became FP32 inside")


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.outputs
        yield from graph.initializers.values()
    for node in load.all_nodes(model):
        yield from node.outputs


def _is_narrow(value: ir.Value) -> bool:
    if value.dtype not in _NARROW:
        return False
    if not isinstance(value.type, ir.TensorType):
        raise ModelError(
            f"'{value.name}', an input or output, is a sequence of {value.dtype}; export the model in FP32"
        )
    return True


def _wide_type(kind: ir.TypeProtocol | None) -> ir.TypeProtocol | None:
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        inner = _wide_type(kind.elem_type)
        assert inner is not None  # elem_type is not
        return type(kind)(inner)
    return ir.TensorType(ir.DataType.FLOAT) if isinstance(kind, ir.TensorType) and kind.dtype in _NARROW else kind


def _wide_tensor(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return a tensor whose FP32 values are made whenever they are read: a second copy of all weights is never held."""
    if tensor.dtype not in _NARROW:
        return tensor
    shape = ir.Shape(tensor.shape.numpy())
    return ir.LazyTensor(
        lambda: ir.tensor(tensor.numpy().astype(np.float32)), ir.DataType.FLOAT, shape, name=tensor.name
    )


def _attribute_tensors(node: ir.Node) -> Iterator[ir.TensorProtocol]:
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.TENSOR:
            yield attribute.as_tensor()


def _widen_attributes(node: ir.Node) -> None:
    for name, attribute in node.attributes.items():
        if attribute.type is ir.AttributeType.TENSOR:
            node.attributes[name] = ir.AttrTensor(name, _wide_tensor(attribute.as_tensor()))
        elif attribute.type is ir.AttributeType.TYPE_PROTO:
            stated: ir.TypeAndShape = attribute.value
            node.attributes[name] = ir.AttrTypeProto(name, ir.TypeAndShape(_wide_type(stated.type), stated.shape))
        elif name in _TYPE_ATTRIBUTES and node.domain == "" and attribute.value in _NARROW:
            node.attributes[name] = ir.AttrInt64(name, ir.DataType.FLOAT)


def _cast_input(graph: ir.Graph, value: ir.Value, names: Unique) -> None:
    node = _cast(names.take_node(f"{value.name}_cast"), ir.DataType.FLOAT)
    _describe(node.outputs[0], names.take(f"{value.name}_float32"), ir.TensorType(ir.DataType.FLOAT), value.shape)
    for reader, index in tuple(value.uses()):
        reader.replace_input_with(index, node.outputs[0])
    node.replace_input_with(0, value)
    graph.insert_before(graph[0], node)


def _cast_output(graph: ir.Graph, index: int, value: ir.Value, names: Unique) -> None:
    assert value.dtype is not None  # it is narrow
    node = _cast(names.take_node(f"{value.name}_cast"), value.dtype)
    name, kind = str(value.name), value.type
    _describe(value, names.take(f"{name}_float32"), ir.TensorType(ir.DataType.FLOAT), value.shape)
    _describe(node.outputs[0], name, kind, value.shape)
    node.replace_input_with(0, value)
    graph.append(node)
    graph.outputs[index] = node.outputs[0]


def _cast(name: str, kind: ir.DataType) -> ir.Node:
    return ir.Node("", "Cast", [None], [ir.AttrInt64("to", kind)], name=name)


def _describe(value: ir.Value, name: str, kind: ir.TypeProtocol | None, shape: ir.Shape | None) -> None:
    value.name, value.type, value.shape = name, kind, shape
