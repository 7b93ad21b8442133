"""Nodes that give back what they get."""

from __future__ import annotations

import onnx_ir as ir

from calib.graph import load
from calib.graph.passes.said import Said, count


class RemoveIdentities(ir.passes.InPlacePass):
    """Removes Identity nodes, and Cast to the type that a tensor has, and Dropout outside training.

    They hide which tensor a layer reads, and that its weight is constant.

    1. Where the result is no output of a graph, its readers read the source.
    2. Where it is, and a node of the same graph makes the source, which is no output itself, the source takes its name.
    3. Otherwise the node stays: an input or a weight cannot be renamed, no graph may list one tensor as two outputs, and
       a subgraph must not return an outer tensor as it is.

    onnx-ir's IdentityEliminationPass does not know the last two, and writes shapes into inputs.
    """

    def call(self, model: ir.Model) -> Said:
        """Remove them."""
        return count(model, sum([_remove(node) for node in load.all_nodes(model)]), "Identity nodes were removed")


def _remove(node: ir.Node) -> bool:
    source, result, graph = node.inputs[0] if node.inputs else None, node.outputs[0], node.graph
    if source is None or graph is None or not _is_identity(node, source):
        return False
    if result.is_graph_output():
        producer = source.producer()
        if producer is None or producer.graph is not graph or source.is_graph_output():
            return False
        source.name, source.type, source.shape = result.name, result.type, result.shape
    ir.convenience.replace_all_uses_with(result, source, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    return True


def _is_identity(node: ir.Node, source: ir.Value) -> bool:
    if node.domain != "":
        return False
    if node.op_type == "Cast":
        return source.dtype is not None and source.dtype == node.attributes.get_int("to", 0)
    if node.op_type == "Dropout":
        mask, training = node.outputs[1:], node.inputs[2:]
        unread = not any(value.uses() or value.is_graph_output() for value in mask)
        return unread and all(value is None or _is_false(value) for value in training)
    return node.op_type == "Identity"


def _is_false(value: ir.Value) -> bool:
    constant = value.const_value if value.is_initializer() else None
    return constant is not None and not constant.numpy().any()
