"""Nodes that TensorRT need not build: equal to another one, computed from constants, or read by nobody.

TensorRT merges equal nodes and then names only one of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import onnx_ir as ir

_UNCOMPARED = {"GRAPH", "GRAPHS", "TENSOR", "TENSORS", "SPARSE_TENSOR", "SPARSE_TENSORS"}


def twins(nodes: Iterable[ir.Node]) -> dict[str, str]:
    """Return the first node that is equal to each: same operator, attributes and, themselves equal, inputs."""
    numbers: dict[ir.Value, Hashable] = {}
    first: dict[Hashable, str] = {}
    result: dict[str, str] = {}
    for node in nodes:
        inputs = tuple(None if value is None else numbers.get(value, value) for value in node.inputs)
        alone = not inputs or any(attribute.type.name in _UNCOMPARED for attribute in node.attributes.values())
        attributes = tuple(sorted((name, str(attribute.value)) for name, attribute in node.attributes.items()))
        key: Hashable = node if alone else (id(node.graph), node.domain, node.op_type, attributes, inputs)
        result[str(node.name)] = first.setdefault(key, str(node.name))
        for index, value in enumerate(node.outputs):
            numbers[value] = (result[str(node.name)], index)
    return result


def unread(graph: ir.Graph, nodes: Sequence[ir.Node]) -> set[str]:
    """Return those of all nodes of a graph that no output needs."""
    needed = {value.producer() for value in graph.outputs}
    for node in reversed(nodes):
        if node in needed or node.graph is not graph:  # what a subgraph holds counts as needed
            needed.update(value.producer() for value in node.inputs if value is not None)
            needed.add(node)
    return {str(node.name) for node in nodes if node not in needed}
