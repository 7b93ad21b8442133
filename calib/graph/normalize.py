"""Normalization: graphs from the wild made uniform, so that everything after may rely on it.

1. The opset is raised to 19, the first whose Q/DQ scales may be FP16.
2. Constant nodes become initializers: a weight in a Constant node is otherwise taken for an activation, and quantized
   as one it ruins the model (PP-OCRv4: CER .9998).
3. Identity nodes go: they hide which tensor a layer reads.
4. Nodes and initializers that no output needs go.
5. Unnamed nodes and nodes that share a name get names of their own: plans and reports speak of layers by name.

The names, types and shapes of inputs and outputs never change.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import (
    IdentityEliminationPass,
    LiftConstantsToInitializersPass,
    NameFixPass,
    RemoveUnusedNodesPass,
)

from calib.errors import ModelError
from calib.graph import load

OPSET = 19


@dataclass(frozen=True, slots=True)
class Normalized:
    """A normalized model and one sentence for each step that changed it."""

    model: ir.Model
    steps: tuple[str, ...]


def normalize(model: ir.Model) -> Normalized:
    """Return a normalized copy of a model; the model itself is left as it is.

    Raises:
        ModelError: the opset cannot be raised.
    """
    model, steps = _raise_opset(model.clone())
    before = Counter(node.op_type for node in load.all_nodes(model))
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    IdentityEliminationPass()(model)
    count = sum(1 for _ in load.all_nodes(model))
    weights = len(model.graph.initializers)
    RemoveUnusedNodesPass()(model)
    dead = count - sum(1 for _ in load.all_nodes(model))
    unused = weights - len(model.graph.initializers)
    after = Counter(node.op_type for node in load.all_nodes(model))
    renamed = name_nodes(model)
    for number, what in (
        (before["Constant"] - after["Constant"], "Constant nodes became initializers"),
        (before["Identity"] - after["Identity"], "Identity nodes were removed"),
        (dead, "nodes that no output needs were removed"),
        (unused, "initializers that no node reads were removed"),
        (renamed, "nodes without a name of their own were named"),
    ):
        if number > 0:
            steps.append(f"{number} {what}")
    return Normalized(model, tuple(steps))


def _raise_opset(model: ir.Model) -> tuple[ir.Model, list[str]]:
    found = load.opset(model)
    if found >= OPSET:
        return model, []
    try:
        converted = onnx.version_converter.convert_version(ir.to_proto(model), OPSET)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        raise ModelError(f"the opset cannot be raised from {found} to {OPSET}: {error}") from error
    return ir.from_proto(converted), [f"opset raised from {found} to {OPSET}"]


def name_nodes(model: ir.Model) -> int:
    """Give nodes names of their own, in place, and return how many got one; ONNX Runtime loads no two of one name."""
    before = [node.name for node in load.all_nodes(model)]
    NameFixPass()(model)
    return sum(old != node.name for old, node in zip(before, load.all_nodes(model), strict=True))
