"""Values of a graph, and what nodes hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx_ir as ir


def is_constant(value: ir.Value) -> bool:
    """Whether a value is an initializer that no feed can replace."""
    return value.is_initializer() and not value.is_graph_input()


def array_of(value: ir.Value) -> npt.NDArray[np.float32]:
    """Return a constant's values, as float32."""
    assert value.const_value is not None
    return np.asarray(value.const_value.numpy(), np.float32)


def input_of(node: ir.Node, index: int) -> ir.Value:
    """Return an input that the operator requires."""
    value = node.inputs[index]
    assert value is not None
    return value


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the graphs that an If, Loop or Scan holds."""
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type is ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()
