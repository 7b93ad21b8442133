"""Normalization: graphs from the wild made uniform, so that everything after may rely on it.

Each pass says why it is there; in this order:

1. Local functions are put in place of their calls: nothing could name a layer inside one (InlineFunctions).
2. Initializers are taken out of the inputs: an input's value is not constant (TakeInitializersFromInputs).
3. Nodes, initializers and operator sets that no output needs go (RemoveUnused).
4. Constant nodes become initializers: a weight in one is otherwise taken for an activation (LiftConstants).
5. Nodes and tensors get names of their own: plans, scales and reports speak of them by name (UniqueNames).
6. Types and shapes are inferred anew: the file's may be missing or stale (InferShapes).
7. FP16 and BF16 become FP32 inside: what runs in FP16 is decided by the ranges seen, not by the file (Widen).
8. The opset is raised to 19, the first whose Q/DQ scales may be FP16 (RaiseOpset).
9. Identity nodes go: they hide which tensor a layer reads (RemoveIdentities).
10. Nodes whose inputs are all constant are computed: a weight may pass through a Cast or a Transpose (FoldConstants).
11. BatchNormalization, and constant factors and terms, are folded into the layer before them, of whose kernel they are
    a part (FoldAffine).
12. Free sizes that are called "?" lose that name: sizes of one name are equal, to TensorRT too (ForgetUnknownDims).

After these, 3, 5 and 6 run once more over what they left.

The names, types and shapes of inputs and outputs never change, and tensors keep their names.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from calib.graph import load
from calib.graph.passes.affine import FoldAffine
from calib.graph.passes.dims import ForgetUnknownDims
from calib.graph.passes.fold import FoldConstants
from calib.graph.passes.identity import RemoveIdentities
from calib.graph.passes.names import UniqueNames
from calib.graph.passes.opset import RaiseOpset
from calib.graph.passes.said import Said
from calib.graph.passes.shapes import InferShapes
from calib.graph.passes.structure import InlineFunctions, LiftConstants, RemoveUnused, TakeInitializersFromInputs
from calib.graph.passes.widen import Widen

PASSES = (
    InlineFunctions(),
    TakeInitializersFromInputs(),
    RemoveUnused(),
    LiftConstants(),
    UniqueNames(),
    InferShapes(),
    Widen(),
    RaiseOpset(),
    RemoveIdentities(),
    FoldConstants(),
    FoldAffine(),
    ForgetUnknownDims(),
)
_CLOSING = (RemoveUnused(), UniqueNames(), InferShapes())


@dataclass(frozen=True, slots=True)
class Normalized:
    """A normalized model and one sentence for each pass that changed it."""

    model: ir.Model
    steps: tuple[str, ...]


def normalize(model: ir.Model) -> Normalized:
    """Return a normalized copy of a model; the model itself is left as it is.

    Raises:
        ModelError: local functions cannot be inlined, or the opset cannot be raised.
    """
    result = model.clone()
    steps: list[str] = []
    before = _interface(result)
    for step in PASSES:
        outcome = step(result)
        result = outcome.model
        if isinstance(outcome, Said) and outcome.sentence:
            steps.append(outcome.sentence)
    for step in _CLOSING:
        result = step(result).model
    assert _interface(result) == before, "normalization changed the model's inputs or outputs"
    return Normalized(result, tuple(steps))


def name_nodes(model: ir.Model) -> None:
    """Give nodes names of their own, in place; ONNX Runtime loads no two of one name."""
    UniqueNames()(model)


def _interface(model: ir.Model) -> tuple[tuple[str | None, str, str], ...]:
    """Return the name, type and shape of every input that must be fed, and of every output."""
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    return tuple((value.name, str(value.type), load.describe(value)) for value in (*inputs, *model.graph.outputs))
