"""Q/DQ nodes written into one graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib import scales as scales_module
from calib.errors import DataError, ModelError
from calib.graph import names
from calib.graph.layers import Layer, Weight
from calib.scales import Scales, WeightScale

WeightForm = Literal["int8", "qdq"]
Rounding = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


class Writer:
    """Adds Q/DQ to one graph; remembers the pairs that it made, so that readers share them (rule 4)."""

    def __init__(self, model: ir.Model, scales: Scales, weights: WeightForm, rounding: Rounding) -> None:
        """Start on a normalized model, which is changed in place.

        Args:
            model: the model.
            scales: of every tensor that will be quantized.
            weights: "int8" for INT8 codes and a DequantizeLinear; "qdq" for float values and both.
            rounding: what the types of the graph make of a scale; weights are quantized with the rounded one.
        """
        self._graph = model.graph
        self._scales = scales
        self._form = weights
        self._rounding = rounding
        self._made: dict[tuple[str, int | None], ir.Value] = {}
        self._values = {str(value.name): value for value in model.graph.inputs}
        self._values |= {str(out.name): out for node in model.graph for out in node.outputs}
        self._names = names.Unique(model)
        self._zero: ir.Value | None = None

    def quantize_layer(self, node: ir.Node, layer: Layer) -> None:
        """Let a layer read both its data inputs through Q/DQ (rule 1); a third one, the bias, is left (rule 2)."""
        weights = {weight.tensor: weight for weight in layer.weights}
        if layer.op_type in ("Conv", "ConvTranspose") and weights and "kernel_shape" not in node.attributes:
            kernel = self._graph.initializers[layer.weights[0].tensor].shape
            assert kernel is not None  # an initializer has one
            # TensorRT 8's parser finds the kernel's shape in an initializer, and else needs to be told.
            node.attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", list(kernel.numpy())[2:])
        for index, value in enumerate(node.inputs[:2]):
            name = str(value.name) if value is not None else ""
            if name in weights:
                node.replace_input_with(index, self._weight(weights[name], layer))
            elif name in layer.activations:
                self.quantize_input(node, index, name)

    def quantize_input(self, node: ir.Node, index: int, tensor: str) -> None:
        """Let a node read a tensor through the tensor's Q/DQ pair.

        Raises:
            DataError: the tensor has no scale.
        """
        node.replace_input_with(index, self._activation(tensor, str(node.name)))

    def remove_unread(self) -> None:
        """Remove the float weights that nothing reads any more."""
        for name, value in list(self._graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del self._graph.initializers[name]

    def _activation(self, tensor: str, reader: str) -> ir.Value:
        if (tensor, None) in self._made:
            return self._made[tensor, None]
        if tensor not in self._scales.activations:
            known = ", ".join(list(self._scales.activations)[:3])
            raise DataError(
                f"layer '{reader}' is planned in INT8 and the scales hold none for its input '{tensor}' (they hold "
                f"{known}, ...): calibrate this model, or keep the layer in float in the plan"
            )
        source = self._values[tensor]
        scale = self._scale(tensor, np.asarray(self._scales.activations[tensor], np.float32))
        result, nodes = self._pair(source, scale, [])
        producer = source.producer()
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
        source = self._graph.initializers[weight.tensor]
        if source.const_value is None:
            raise ModelError(f"layer '{layer.name}': weight '{weight.tensor}' has no values")
        values = np.asarray(source.const_value.numpy())
        known = self._weight_scale(weight, values, layer)
        chosen = WeightScale(self._rounding(known.values), known.axis)
        scale = self._scale(weight.tensor, chosen.values)
        attributes = [] if chosen.axis is None else [ir.AttrInt64("axis", chosen.axis)]
        if self._form == "qdq":
            result, nodes = self._pair(source, scale, attributes, points=chosen.values.shape)
        else:
            codes = self._initializer(f"{weight.tensor}_int8", scales_module.quantize(values, chosen))
            result, nodes = self._dequantize(weight.tensor, [codes, scale], attributes, source.shape)
        self._graph.insert_before(self._graph[0], nodes)
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

    def _pair(
        self, source: ir.Value, scale: ir.Value, attributes: list[ir.Attr], points: tuple[int, ...] = ()
    ) -> tuple[ir.Value, list[ir.Node]]:
        zero = self._zero_point(points)
        name = self._names.take(f"{source.name}_quantized")
        out = ir.Value(name=name, type=ir.TensorType(ir.DataType.INT8), shape=source.shape)
        node_name = self._names.take_node(f"{name}_QuantizeLinear")
        quantize = ir.Node("", "QuantizeLinear", [source, scale, zero], attributes, outputs=[out], name=node_name)
        result, nodes = self._dequantize(str(source.name), [out, scale, zero], attributes, source.shape)
        return result, [quantize, *nodes]

    def _dequantize(
        self, tensor: str, inputs: list[ir.Value], attributes: list[ir.Attr], shape: ir.Shape | None
    ) -> tuple[ir.Value, list[ir.Node]]:
        name = self._names.take(f"{tensor}_dequantized")
        out = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=shape)
        node_name = self._names.take_node(f"{name}_DequantizeLinear")
        return out, [ir.Node("", "DequantizeLinear", inputs, attributes, outputs=[out], name=node_name)]

    def _scale(self, tensor: str, values: npt.NDArray[np.float32]) -> ir.Value:
        return self._initializer(f"{tensor}_scale", self._rounding(values))

    def _zero_point(self, shape: tuple[int, ...]) -> ir.Value:
        if shape:
            return self._initializer("calib_zero_point", np.zeros(shape, np.int8))
        if self._zero is None:
            self._zero = self._initializer("calib_zero_point", np.zeros((), np.int8))
        return self._zero

    def _initializer(self, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
        return names.initializer(self._graph, self._names.take(name), array)
