"""Q/DQ: a plan and scales written into the graph as QuantizeLinear and DequantizeLinear.

1. Both data inputs of a planned layer are quantized: activations per tensor, constant weights per output channel.
2. A bias is not quantized: TensorRT takes it in float.
3. Weights are stored as INT8 with a DequantizeLinear, so that the file shrinks to about a quarter.
4. A tensor has one Q/DQ pair, shared by every layer that reads it in INT8; layers in float read the tensor itself.
5. Outputs of layers are not quantized of themselves: nothing may stand between a layer and what fuses into it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib import plan as plans
from calib import scales as scales_module
from calib.errors import DataError, ModelError
from calib.graph import layers as graph_layers
from calib.graph.layers import Layer, Weight
from calib.plan import Plan, Precision
from calib.scales import Scales, WeightScale


def quantize(model: ir.Model, plan: Plan, scales: Scales) -> ir.Model:
    """Return a copy of a normalized model with Q/DQ for every layer that the plan puts in INT8.

    Raises:
        ConfigError: the plan names a layer that the model does not have.
        DataError: a planned layer's activation has no scale; the message lists what the scales do hold.
    """
    result = model.clone()
    writer = _Writer(result, scales)
    nodes = {node.name: node for node in result.graph}
    for layer in int8_layers(result, plan):
        writer.quantize_inputs(nodes[layer.name], layer)
    writer.remove_unread()
    return result


def int8_layers(model: ir.Model, plan: Plan) -> tuple[Layer, ...]:
    """Return the layers that a plan puts in INT8, in graph order.

    Raises:
        ConfigError: the plan names a layer that the model does not have.
        ModelError: the model has no layer at all.
    """
    layers = graph_layers.find(model)
    if not layers:
        raise ModelError(
            f"the model has no {', '.join(graph_layers.QUANTIZABLE)} on data: there is nothing to quantize"
        )
    precision = plans.apply(plan, [layer.name for layer in layers])
    return tuple(layer for layer in layers if precision[layer.name] is Precision.INT8)


class _Writer:
    """Adds Q/DQ to one graph; remembers the pairs that it made, so that readers share them (rule 4)."""

    def __init__(self, model: ir.Model, scales: Scales) -> None:
        self._graph = model.graph
        self._scales = scales
        self._made: dict[tuple[str, int | None], ir.Value] = {}
        self._values = {str(value.name): value for value in model.graph.inputs}
        self._values |= {str(out.name): out for node in model.graph for out in node.outputs}
        self._names = set(self._values) | set(model.graph.initializers)
        self._zero: ir.Value | None = None

    def quantize_inputs(self, node: ir.Node, layer: Layer) -> None:
        weights = {weight.tensor: weight for weight in layer.weights}
        for index, value in enumerate(node.inputs[:2]):
            name = str(value.name) if value is not None else ""
            if name in weights:
                node.replace_input_with(index, self._weight(weights[name], layer))
            elif name in layer.activations:
                node.replace_input_with(index, self._activation(name, layer))

    def remove_unread(self) -> None:
        for name, value in list(self._graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del self._graph.initializers[name]

    def _activation(self, tensor: str, layer: Layer) -> ir.Value:
        if (tensor, None) in self._made:
            return self._made[tensor, None]
        if tensor not in self._scales.activations:
            known = ", ".join(list(self._scales.activations)[:3])
            raise DataError(
                f"layer '{layer.name}' is planned in INT8 and the scales hold none for its input '{tensor}' (they hold "
                f"{known}, ...): calibrate this model, or keep the layer in float in the plan"
            )
        source = self._values[tensor]
        scale = self._initializer(f"{tensor}_scale", np.asarray(self._scales.activations[tensor], np.float32))
        if self._zero is None:
            self._zero = self._initializer("calib_zero_point", np.zeros((), np.int8))
        quantized = self._node("QuantizeLinear", tensor, "quantized", [source, scale, self._zero])
        result = self._node("DequantizeLinear", tensor, "dequantized", [quantized, scale, self._zero])
        pair = [quantized.producer(), result.producer()]
        producer = source.producer()
        nodes = [node for node in pair if node is not None]
        if producer is None:
            self._graph.insert_before(self._graph[0], nodes)
        else:
            self._graph.insert_after(producer, nodes)
        self._made[tensor, None] = result
        return result

    def _weight(self, weight: Weight, layer: Layer) -> ir.Value:
        key = (weight.tensor, -1 if weight.axis is None else weight.axis)
        if key in self._made:
            return self._made[key]
        constant = self._graph.initializers[weight.tensor].const_value
        if constant is None:
            raise ModelError(f"layer '{layer.name}': weight '{weight.tensor}' has no values")
        values = np.asarray(constant.numpy())
        scale = self._weight_scale(weight, values, layer)
        codes = self._initializer(f"{weight.tensor}_int8", scales_module.quantize(values, scale))
        factors = self._initializer(f"{weight.tensor}_scale", scale.values)
        attributes = [] if scale.axis is None else [ir.AttrInt64("axis", scale.axis)]
        result = self._node("DequantizeLinear", weight.tensor, "dequantized", [codes, factors], attributes)
        producer = result.producer()
        assert producer is not None  # _node has just made it
        self._graph.insert_before(self._graph[0], [producer])
        self._made[key] = result
        return result

    def _weight_scale(self, weight: Weight, values: npt.NDArray[np.generic], layer: Layer) -> WeightScale:
        known = self._scales.weights.get(weight.tensor)
        if known is None or known.axis != weight.axis:  # an imported cache; or a weight that layers read along two axes
            return scales_module.weight_scale(values, weight.axis)
        expected = () if weight.axis is None else (values.shape[weight.axis],)
        if known.values.shape != expected:
            raise DataError(
                f"layer '{layer.name}': weight '{weight.tensor}' needs scales of shape {expected} and the scales file "
                f"holds {known.values.shape}: it belongs to another model"
            )
        return known

    def _node(
        self, op: str, tensor: str, suffix: str, inputs: list[ir.Value], attributes: list[ir.Attr] | None = None
    ) -> ir.Value:
        name = self._unique(f"{tensor}_{suffix}")
        node = ir.Node("", op, inputs, attributes or [], outputs=[ir.Value(name=name)], name=f"{name}_{op}")
        return node.outputs[0]

    def _initializer(self, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
        tensor = ir.tensor(array, name=self._unique(name))
        value = ir.Value(
            name=tensor.name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape)
        )
        self._graph.register_initializer(value)
        return value

    def _unique(self, name: str) -> str:
        candidate, number = name, 1
        while candidate in self._names:
            number += 1
            candidate = f"{name}_{number}"
        self._names.add(candidate)
        return candidate
