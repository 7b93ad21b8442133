"""The opset."""

from __future__ import annotations

import re

import onnx
import onnx_ir as ir

from calib.errors import ModelError
from calib.graph import load
from calib.graph.passes import adapters
from calib.graph.passes.bare import ERRORS, through_onnx
from calib.graph.passes.names import UniqueNames
from calib.graph.passes.said import Said
from calib.graph.passes.structure import LiftConstants

OPSET = 19


class RaiseOpset(ir.passes.FunctionalPass):
    """Raises the opset to 19, the first whose Q/DQ scales may be FP16; a higher one stays.

    Our own adapters come first (`adapters`), then onnx's. Needs unique names and inferred shapes, which onnx's read.
    """

    def call(self, model: ir.Model) -> Said:
        """Return the model at opset 19.

        Raises:
            ModelError: an operator has no adapter; the message names it.
        """
        found = load.opset(model)
        result = model.clone()
        if found < OPSET:
            result.ir_version = max(result.ir_version, 8)  # onnx's converter takes initializers of old ones for inputs
            adapters.hide(result, found)
            result = _kept(result, _converted(result, found))
            LiftConstants()(result)
            UniqueNames()(result)
            adapters.reveal(result)
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in result.opset_imports.items()]
        result.ir_version = max(result.ir_version, onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True))
        return Said(result, found < OPSET, f"opset raised from {found} to {OPSET}" if found < OPSET else "")


def _converted(model: ir.Model, found: int) -> ir.Model:
    try:
        return through_onnx(model, lambda proto: onnx.version_converter.convert_version(proto, OPSET))
    except ERRORS as error:
        raise ModelError(
            f"the opset cannot be raised from {found} to {OPSET}: {_culprit(model, str(error))}; export the model again "
            f"with opset {OPSET}, or with 13 at least"
        ) from error


def _culprit(model: ir.Model, error: str) -> str:
    """Return the operator that an error of onnx speaks of, its first node, and the error."""
    words = re.findall(r"\w+", error)
    for node in load.all_nodes(model):
        if node.op_type in words and node.domain == "":
            return f"{node.op_type} (node '{node.name}') has no adapter ({error})"
    return error


def _kept(before: ir.Model, after: ir.Model) -> ir.Model:
    """Give back what onnx's converter drops or changes.

    Exporters keep in the metadata which module a node comes from; unknown sizes of outputs get invented names.
    """
    after.metadata_props.update(before.metadata_props)
    after.graph.metadata_props.update(before.graph.metadata_props)
    nodes = {node.name: node.metadata_props for node in load.all_nodes(before)}
    values = {value.name: value.metadata_props for node in load.all_nodes(before) for value in node.outputs}
    for node in load.all_nodes(after):
        node.metadata_props.update(nodes.get(node.name, {}))
        for value in node.outputs:
            value.metadata_props.update(values.get(value.name, {}))
    for old, new in zip(_interface(before), _interface(after), strict=True):
        assert old.name == new.name
        new.type, new.shape = old.type, old.shape
    return after


def _interface(model: ir.Model) -> list[ir.Value]:
    return [*model.graph.inputs, *model.graph.outputs]
