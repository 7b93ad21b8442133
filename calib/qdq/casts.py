"""Types written into a graph, and casts where FP16 and FP32 meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from calib.graph import names
from calib.graph.values import array_of, input_of, is_constant, subgraphs
from calib.qdq import fp16


@dataclass(frozen=True, slots=True)
class Convertible:
    """Positions of a node's inputs and outputs that become FP16 with it; the others stay FP32 whatever the node is."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def rewrite(model: ir.Model, half: Mapping[ir.Node, Convertible]) -> None:
    """Make some nodes of a model compute in FP16, in place.

    INT8 needs no cast: QuantizeLinear takes the type of what it reads, DequantizeLinear gives the type that is wanted.

    Args:
        model: all in FP32, with Q/DQ or without.
        half: the nodes that become FP16; the names, types and shapes of the model's inputs and outputs do not change.
    """
    _Rewriter(model, half).rewrite()


class _Rewriter:
    def __init__(self, model: ir.Model, half: Mapping[ir.Node, Convertible]) -> None:
        self._graph = model.graph
        self._half = half
        self._names = names.Unique(model)
        self._twins: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._native = {
            node.outputs[index]: ir.DataType.FLOAT16 for node, found in half.items() for index in found.outputs
        }

    def rewrite(self) -> None:
        for node in list(self._graph):
            if node.op_type == "QuantizeLinear":
                self._rewrite_quantize(node)
            elif node.op_type != "DequantizeLinear":
                self._rewrite_inputs(node)
                self._rewrite_captured(node)
            if node in self._half:
                self._retype(node)
        for index, output in enumerate(self._graph.outputs):
            if self._native.get(output) is ir.DataType.FLOAT16:
                self._graph.outputs[index] = self._restore(output)
        self._drop_idle()

    def _rewrite_inputs(self, node: ir.Node) -> None:
        convertible = self._half[node].inputs if node in self._half else ()
        for index, value in enumerate(node.inputs):
            if value is not None and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
                wanted = ir.DataType.FLOAT16 if index in convertible else ir.DataType.FLOAT
                node.replace_input_with(index, self._as(value, wanted, saturate=node.op_type == "Clip"))

    def _rewrite_quantize(self, node: ir.Node) -> None:
        value, scale = input_of(node, 0), input_of(node, 1)
        half = self._native.get(value) is ir.DataType.FLOAT16
        if half and not fp16.exact(array_of(scale)):
            node.replace_input_with(0, self._as(value, ir.DataType.FLOAT))
        elif half:
            node.replace_input_with(1, self._as(scale, ir.DataType.FLOAT16))

    def _rewrite_captured(self, node: ir.Node) -> None:
        for graph in subgraphs(node):
            for inner in ir.traversal.RecursiveGraphIterator(graph):
                for index, value in enumerate(inner.inputs):
                    if value is not None and self._native.get(value) is ir.DataType.FLOAT16:
                        inner.replace_input_with(index, self._as(value, ir.DataType.FLOAT))

    def _retype(self, node: ir.Node) -> None:
        for index in self._half[node].outputs:
            node.outputs[index].type = ir.TensorType(ir.DataType.FLOAT16)  # a clone shares the type
        if node.op_type == "Cast":
            if node.attributes.get_int("to") == ir.DataType.FLOAT:
                node.attributes["to"] = ir.AttrInt64("to", ir.DataType.FLOAT16)
        elif node.op_type == "ConstantOfShape" and "value" in node.attributes:
            tensor = node.attributes["value"].as_tensor()
            node.attributes["value"] = ir.AttrTensor("value", ir.tensor(tensor.numpy().astype(np.float16)))

    def _as(self, value: ir.Value, wanted: ir.DataType, *, saturate: bool = False) -> ir.Value:
        """Return a value in a type: itself, its twin of before, or a new one."""
        producer = value.producer()
        dequantized = producer is not None and producer.op_type == "DequantizeLinear"
        native = self._native.get(value, ir.DataType.FLOAT)
        if native is wanted and not (dequantized and wanted is ir.DataType.FLOAT16):
            return value
        if (value, wanted) not in self._twins:
            if is_constant(value):
                self._twins[value, wanted] = self._constant_twin(value, wanted, saturate)
            elif producer is not None and dequantized:
                self._twins[value, wanted] = self._dequantize_twin(producer, wanted)
            else:
                self._twins[value, wanted] = self._cast(value, wanted)
        return self._twins[value, wanted]

    def _constant_twin(self, value: ir.Value, wanted: ir.DataType, saturate: bool) -> ir.Value:
        array = array_of(value)
        if saturate:
            array = np.clip(array, -fp16.MAX, fp16.MAX)
        name = self._names.take(f"{value.name}_{_suffix(wanted)}")
        return names.initializer(self._graph, name, array.astype(wanted.numpy()))

    def _dequantize_twin(self, producer: ir.Node, wanted: ir.DataType) -> ir.Value:
        inputs = list(producer.inputs)
        inputs[1] = self._as(input_of(producer, 1), wanted)
        name = self._names.take(f"{producer.outputs[0].name}_{_suffix(wanted)}")
        out = ir.Value(name=name, type=ir.TensorType(wanted), shape=producer.outputs[0].shape)
        attributes = list(producer.attributes.values())
        twin = ir.Node(
            "",
            "DequantizeLinear",
            inputs,
            attributes,
            outputs=[out],
            name=self._names.take_node(f"{name}_DequantizeLinear"),
        )
        self._graph.insert_after(producer, twin)
        return out

    def _cast(self, value: ir.Value, wanted: ir.DataType) -> ir.Value:
        name = self._names.take(f"{value.name}_{_suffix(wanted)}")
        out = ir.Value(name=name, type=ir.TensorType(wanted), shape=value.shape)
        attributes = [ir.AttrInt64("to", wanted)]
        cast = ir.Node("", "Cast", [value], attributes, outputs=[out], name=self._names.take_node(f"{name}_Cast"))
        producer = value.producer()
        if producer is None:
            self._graph.insert_before(self._graph[0], cast)
        else:
            self._graph.insert_after(producer, cast)
        return out

    def _restore(self, output: ir.Value) -> ir.Value:
        """Return the FP32 value that takes an output's place and name."""
        name = output.name
        output.name = self._names.take(f"{name}_{_suffix(ir.DataType.FLOAT16)}")
        result = self._as(output, ir.DataType.FLOAT)
        result.name = name
        return result

    def _drop_idle(self) -> None:
        """Remove casts to the type that a value has, and the DequantizeLinear of which only twins are read."""
        for node in list(self._graph):
            result, source = node.outputs[0], node.inputs[0] if node.inputs else None
            if node.op_type == "DequantizeLinear" and not result.uses():
                self._graph.remove(node, safe=True)
            elif node.op_type == "Cast" and source and source.dtype is result.dtype and not result.is_graph_output():
                ir.convenience.replace_all_uses_with(result, source)
                self._graph.remove(node, safe=True)


def _suffix(kind: ir.DataType) -> str:
    return "fp16" if kind is ir.DataType.FLOAT16 else "fp32"
