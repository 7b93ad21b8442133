"""Models on their way through onnx's own functions, which take one protobuf of less than 2 GiB."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx
import onnx_ir as ir

ERRORS = (RuntimeError, onnx.version_converter.ConvertError, onnx.shape_inference.InferenceError)
"""What onnx's functions raise."""

_SMALL = 1024  # bytes; inference and adapters read shapes, axes and the like


def through_onnx(model: ir.Model, function: Callable[[onnx.ModelProto], onnx.ModelProto]) -> ir.Model:
    """Return what a function of onnx makes of a model whose names are unique; larger weights do not pass through it."""
    proto, weights = bare(model)
    result = ir.from_proto(function(proto))
    inputs = {str(value.name): value for value in result.graph.inputs}
    result.graph.inputs[:] = [value for name, value in inputs.items() if name not in weights]
    for name, tensor in weights.items():
        inputs[name].const_value = tensor
        result.graph.register_initializer(inputs[name])
    return result


def bare(model: ir.Model) -> tuple[onnx.ModelProto, Mapping[str, ir.TensorProtocol]]:
    """Return a model's protobuf without its larger weights, and these; there they are inputs of their type and shape.

    So nothing is serialized that would not fit, or that is not looked at. Names must be unique.
    """
    graph = model.graph
    weights = {
        name: tensor
        for name, value in graph.initializers.items()
        if (tensor := value.const_value) is not None and tensor.dtype != ir.DataType.STRING and tensor.nbytes > _SMALL
    }
    values = [graph.initializers.pop(name) for name in weights]
    graph.inputs.extend(values)
    try:
        return ir.to_proto(model), weights
    finally:
        for _ in values:
            graph.inputs.pop()  # deleting a slice would leave them marked as inputs
        for value in values:
            graph.register_initializer(value)
