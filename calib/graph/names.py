"""New values, nodes and initializers, with names that nothing in the model has."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib.graph import load


class Unique:
    """Hands out names that no value, and no node, of a model has, in subgraphs too."""

    def __init__(self, model: ir.Model) -> None:
        """Collect the model's names."""
        self._nodes = {str(node.name) for node in load.all_nodes(model)}
        self._values = {str(out.name) for node in load.all_nodes(model) for out in node.outputs}
        for graph in (model.graph, *model.graph.subgraphs()):
            self._values |= {str(value.name) for value in graph.inputs} | set(graph.initializers)

    def take(self, wanted: str) -> str:
        """Return a value's name: the wanted one, or with a number where it is taken."""
        return _take(wanted, self._values)

    def take_node(self, wanted: str) -> str:
        """Return a node's name."""
        return _take(wanted, self._nodes)


def initializer(graph: ir.Graph, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
    """Add an initializer of a name from `Unique.take`."""
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape))
    graph.register_initializer(value)
    return value


def _take(wanted: str, taken: set[str]) -> str:
    candidate, number = wanted, 1
    while candidate in taken:
        number += 1
        candidate = f"{wanted}_{number}"
    taken.add(candidate)
    return candidate
