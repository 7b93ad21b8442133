"""Nodes whose inputs are all constant."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from calib.graph import load
from calib.graph.names import initializer
from calib.graph.passes.reference import compute
from calib.graph.passes.said import Said, count

_Array = npt.NDArray[np.generic]

_ELEMENTWISE = {"Add", "Sub", "Mul", "Div", "Pow", "Neg", "Sqrt", "Reciprocal"}
_MOVING = {"Cast", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Slice", "Gather"}
_SMALL = 64  # elements that a result may have whatever its inputs have: shapes, axes


class FoldConstants(ir.passes.InPlacePass):
    """Computes nodes whose inputs are all constant, so that what a layer reads as its weight is an initializer.

    Exporters write weights as Cast of an FP16 constant, as Transpose of another layer's weight, as a product with a norm.

    1. Only operators of a small set whose result is exact, or rounded once, and the same wherever it is computed.
    2. Only where the result has no more elements than the inputs: the file should not grow by what a Gather or an outer
       product repeats.
    3. Not where the result is an output of a graph.
    """

    def call(self, model: ir.Model) -> Said:
        """Compute them, in graph order, so that what becomes constant counts as such."""
        imports = [onnx.helper.make_opsetid("", load.opset(model))]
        folded = 0
        for node in load.all_nodes(model):
            constants = _constants(node)
            result = (
                compute(ir.to_proto(node), constants, imports) if constants and _is_small(node, constants) else None
            )
            if result is not None and _is_plain(result):
                made = node.outputs[0]
                made.replace_all_uses_with(initializer(model.graph, str(made.name), np.asarray(result, order="C")))
                assert node.graph is not None  # it is in one
                node.graph.remove(node, safe=True)
                folded += 1
        return count(model, folded, "nodes with constant inputs were computed")


def _constants(node: ir.Node) -> dict[str, _Array]:
    """Return the inputs' values by name; none for a node that stays."""
    if node.domain != "" or node.op_type not in _ELEMENTWISE | _MOVING or node.outputs[0].is_graph_output():
        return {}
    given = [value for value in node.inputs if value is not None]
    tensors = {str(value.name): value.const_value for value in given if value.is_initializer()}
    arrays = {
        name: np.asarray(tensor.numpy())
        for name, tensor in tensors.items()
        if tensor is not None and tensor.dtype != ir.DataType.STRING
    }
    return arrays if all(str(value.name) in arrays and _is_plain(arrays[str(value.name)]) for value in given) else {}


def _is_plain(array: _Array) -> bool:
    return array.dtype.kind in "biuf"  # numpy's own types


def _is_small(node: ir.Node, constants: Mapping[str, _Array]) -> bool:
    """Rule 2."""
    elements = total = sum(array.size for array in constants.values())
    if node.op_type in _ELEMENTWISE:
        elements = math.prod(np.broadcast_shapes(*(array.shape for array in constants.values())))
    elif node.op_type == "Gather":
        data, indices = (constants[str(value.name)] for value in node.inputs if value is not None)
        elements = indices.size * data.size // max(1, data.shape[node.attributes.get_int("axis", 0)])
    return elements <= max(_SMALL, total)
