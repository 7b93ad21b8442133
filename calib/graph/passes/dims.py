"""Dimensions whose name says that they have none."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from calib.graph.passes.said import Said

_NO_NAMES = {"?", "-1", "None", "none"}


class ForgetUnknownDims(ir.passes.InPlacePass):
    """Takes the name from dimensions that are called "?" and the like.

    Dimensions of one name are equal, to TensorRT too, so that a model whose height and width are both "?" builds for squares
    only. PaddleOCR's text direction classifier is one.
    """

    def call(self, model: ir.Model) -> Said:
        """Rename what must be renamed."""
        renamed = 0
        for value in _values(model):
            sizes = list(value.shape or ())
            free = [None if isinstance(size, ir.SymbolicDim) and size.value in _NO_NAMES else size for size in sizes]
            if None in free:
                changed = sum(size is None for size in free) - sum(size == ir.SymbolicDim(None) for size in sizes)
                renamed += changed if value.is_graph_input() or value.is_graph_output() else 0
                value.shape = ir.Shape(free)
        sentence = 'free sizes of inputs and outputs that were called "?" lost that name: sizes of one name are equal'
        return Said(model, renamed > 0, sentence if renamed else "")


def _values(model: ir.Model) -> Iterator[ir.Value]:
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.inputs
        yield from (out for node in graph for out in node.outputs)
