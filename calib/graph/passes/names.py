"""Names: unique in the whole model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from calib.graph import load
from calib.graph.passes.said import Said, count


class UniqueNames(ir.passes.InPlacePass):
    """Gives every node and every tensor a name that no other has, in subgraphs too.

    Plans, scales and reports speak of them by name, ONNX Runtime loads no two nodes of one name, and onnx's converter
    goes by name. In order of precedence, a name stays with

    1. the main graph's inputs and outputs,
    2. its initializers and what its nodes make,
    3. what lies in subgraphs, in the order in which they run. Two branches may have used one name.

    onnx-ir's NameFixPass also names optional outputs that a node leaves out, which makes it compute them, and lets a
    subgraph's tensor share its name with what a later node of the outer graph makes.
    """

    def call(self, model: ir.Model) -> Said:
        """Rename what must be renamed."""
        values, nodes = list(_values(model)), list(load.all_nodes(model))
        of_values, of_nodes = _Names(values), _Names(nodes)
        renamed = sum([of_values.claim(value, value.name or "value") for value in values])
        unnamed = sum([of_nodes.claim(node, node.name or node.op_type) for node in nodes])
        result = count(model, unnamed, "nodes without a name of their own were named")
        result.modified |= renamed > 0
        return result


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield every value once; an omitted optional output, whose name is empty, is none."""
    seen: set[ir.Value] = set()
    graphs = [model.graph, *model.graph.subgraphs()]
    sources = [
        value
        for graph in graphs
        for values in (graph.inputs, graph.outputs, graph.initializers.values(), *(node.outputs for node in graph))
        for value in values
    ]
    for value in sources:
        if value not in seen and (value.name or value.uses() or value.is_graph_output()):
            seen.add(value)
            yield value


class _Names:
    """Names that are taken, and for each that was wanted twice the number that was last put behind it."""

    def __init__(self, named: Iterable[ir.Value | ir.Node]) -> None:
        self._given = {one.name for one in named}
        self._taken: set[str] = set()
        self._last: Counter[str] = Counter()

    def claim(self, named: ir.Value | ir.Node, wanted: str) -> bool:
        """Give a name, with a number where it is taken; return whether it is a new one."""
        candidate = wanted
        while candidate in self._taken or (candidate != wanted and candidate in self._given):
            self._last[wanted] += 1
            candidate = f"{wanted}_{self._last[wanted]}"
        self._taken.add(candidate)
        if named.name == candidate:
            return False
        named.name = candidate
        return True
