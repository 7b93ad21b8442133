"""Functions, inputs, constants and dead ends: how a graph is put together, not what it computes."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from calib.errors import ModelError
from calib.graph import load
from calib.graph.passes.said import Said, count


class InlineFunctions(ir.passes.InPlacePass):
    """Puts the bodies of local functions in place of their calls.

    A layer inside a function is no node of the graph: nothing could name, quantize or fold it. PyTorch's exporter writes
    functions.
    """

    def call(self, model: ir.Model) -> Said:
        """Inline every call."""
        number = len(model.functions)
        if "ai.onnx" in model.opset_imports:  # the default domain's other name, which nodes are freed of when read
            model.opset_imports[""] = model.opset_imports.pop("ai.onnx")
        try:
            common.InlinePass()(model)
        except (ir.passes.PreconditionError, ValueError, RuntimeError) as error:
            raise ModelError(
                f"the model's local functions cannot be inlined ({error}); export it without functions"
            ) from error
        model.functions.clear()
        return count(model, number, "local functions were put in place of their calls")


class TakeInitializersFromInputs(ir.passes.InPlacePass):
    """Takes initializers out of the inputs, where IR version 3 wanted them.

    An input may be fed another value, so nothing that reads it is constant: its layers would have no weights. Feeds
    stay as they are, for runtimes do not ask for inputs that have an initializer.
    """

    def call(self, model: ir.Model) -> Said:
        """Shorten the inputs."""
        before = len(model.graph.inputs)
        common.RemoveInitializersFromInputsPass()(model)
        model.ir_version = max(model.ir_version, 4)  # the first that allows it
        return count(model, before - len(model.graph.inputs), "initializers were taken out of the inputs")


class RemoveUnused(ir.passes.InPlacePass):
    """Removes nodes and initializers that no output needs, and operator sets that no node is of.

    A dead layer would be observed, planned and counted; a dead operator could stop the opset from being raised.
    """

    def call(self, model: ir.Model) -> Said:
        """Remove them."""
        nodes, weights = sum(1 for _ in load.all_nodes(model)), len(model.graph.initializers)
        common.RemoveUnusedNodesPass()(model)
        common.RemoveUnusedOpsetsPass()(model)
        nodes -= sum(1 for _ in load.all_nodes(model))
        weights -= len(model.graph.initializers)
        parts = [f"{nodes} nodes that no output needs"] if nodes else []
        parts += [f"{weights} initializers that no node reads"] if weights else []
        return Said(model, bool(parts), f"{' and '.join(parts)} were removed" if parts else "")


class LiftConstants(ir.passes.InPlacePass):
    """Makes Constant nodes initializers, and initializers of subgraphs those of the main graph.

    A weight in a Constant node is otherwise taken for an activation, and quantized as one it ruins the model (PP-OCRv4:
    CER .9998). With all weights in one place, the passes that call onnx can take them out.

    A Constant that is itself an output stays: no initializer may be one in every runtime.
    """

    def call(self, model: ir.Model) -> Said:
        """Lift them."""
        before = _constants(model)
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        common.LiftSubgraphInitializersToMainGraphPass()(model)
        return count(model, before - _constants(model), "Constant nodes became initializers")


def _constants(model: ir.Model) -> int:
    return sum(node.op_type == "Constant" and node.domain == "" for node in load.all_nodes(model))
