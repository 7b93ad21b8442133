"""Rules about types and opsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import onnx_ir as ir

from calib.graph import load
from calib.graph.finding import Finding, Rule, place
from calib.graph.lint import reading

_MIXED = Rule(
    "L11",
    "error",
    "give both operands scales of one type: DequantizeLinear makes what its scale is; or put a Cast before one",
    "NVIDIA/TensorRT#4832",
)
_SCALE = Rule(
    "L12",
    "error",
    "give Q the scale in the type of its data, or cast the data",
    "NVIDIA/TensorRT#4832, NVIDIA/Model-Optimizer#118",
)
_OPSET = Rule("L13", "error", "raise the opset: normalization does, to 19", "NVIDIA/TensorRT#1685, #2414")
_BIAS = Rule("L14", "error", "leave the bias in float", "ORT#14229, onnx/onnx-tensorrt#850")
_SCALAR = Rule("L15", "error", "keep numbers of rank 0 in float, or Reshape them to [1] first")

_DEFAULT = ("", "ai.onnx")
_NAMES = {ir.DataType.FLOAT: "FP32", ir.DataType.FLOAT16: "FP16", ir.DataType.BFLOAT16: "BF16"}


def check(model: ir.Model) -> Iterator[Finding]:
    """Yield where types do not fit each other, the opset, or TensorRT."""
    opset = load.opset(model)
    types = _types(model, opset)
    yield from _opset(model, opset)
    for node in load.all_nodes(model):
        where = place(node)
        if reading.is_quantize(node) or reading.is_dequantize(node):
            yield from _quantizer(node, where, types, opset)
        elif node.domain in _DEFAULT:
            yield from _mixed(node, where, types, opset)


def _quantizer(node: ir.Node, where: str, types: Mapping[int, ir.DataType], opset: int) -> Iterator[Finding]:
    data, scale = reading.at(node, 0), reading.at(node, 1)
    kind, scale_kind = types.get(id(data)), types.get(id(scale))
    may_differ = opset >= 23 and scale_kind is ir.DataType.FLOAT
    if (
        reading.is_quantize(node)
        and kind in _NAMES
        and scale_kind in _NAMES
        and kind is not scale_kind
        and not may_differ
    ):
        yield _SCALE.at(where, f"it quantizes {_NAMES[kind]} with a scale in {_NAMES[scale_kind]}")
    if reading.is_dequantize(node) and kind is ir.DataType.INT32:
        yield _BIAS.at(where, "it dequantizes INT32, a quantized bias, which TensorRT does not take")
    if reading.rank(data) == 0:
        yield _SCALAR.at(where, "it reads a number of rank 0, which TensorRT does not quantize")


def _mixed(node: ir.Node, where: str, types: Mapping[int, ir.DataType], opset: int) -> Iterator[Finding]:
    groups: dict[str, dict[ir.DataType, str]] = {}
    for variable, value in zip(_variables(node, opset), node.inputs, strict=False):
        kind = types.get(id(value))
        if value is not None and kind in _NAMES:
            groups.setdefault(variable, {}).setdefault(kind, str(value.name))
    for found in groups.values():
        if len(found) > 1:
            read = " and ".join(f"'{name}' in {_NAMES[kind]}" for kind, name in found.items())
            yield _MIXED.at(where, f"{node.op_type} reads {read}, and TensorRT converts nothing by itself")


def _types(model: ir.Model, opset: int) -> dict[int, ir.DataType]:
    """Return the type of each value by identity: as computed from the inputs, else as the model says."""
    result: dict[int, ir.DataType] = {}

    def take(value: ir.Value | None) -> ir.DataType | None:
        if value is not None and id(value) not in result and value.dtype is not None:
            result[id(value)] = value.dtype
        return result.get(id(value))

    for node in load.all_nodes(model):
        first, second = take(reading.at(node, 0)), take(reading.at(node, 1))
        for value in node.inputs[2:]:
            take(value)
        kind = None
        if reading.is_dequantize(node):
            given = node.attributes.get_int("output_dtype", 0)
            kind = ir.DataType(given) if given else second
        elif node.op_type == "Cast":
            kind = ir.DataType(node.attributes.get_int("to", 0))
        elif not reading.is_quantize(node) and node.domain in _DEFAULT and _keeps_type(node, opset):
            kind = first
        if kind is not None:
            result[id(node.outputs[0])] = kind
    return result


def _variables(node: ir.Node, opset: int) -> list[str]:
    """Return the type variable ("T") of each input, as ONNX defines the operator."""
    if not onnx.defs.has(node.op_type, max_inclusive_version=opset):
        return []
    formal = list(onnx.defs.get_schema(node.op_type, opset).inputs)
    names = [parameter.type_str for parameter in formal]
    variadic = bool(formal) and formal[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    if variadic and formal[-1].is_homogeneous:
        names += names[-1:] * (len(node.inputs) - len(names))
    return names


def _keeps_type(node: ir.Node, opset: int) -> bool:
    """Whether an operator's first output has its first input's type."""
    if not onnx.defs.has(node.op_type, max_inclusive_version=opset):
        return False
    schema = onnx.defs.get_schema(node.op_type, opset)
    return bool(schema.inputs and schema.outputs) and schema.inputs[0].type_str == schema.outputs[0].type_str


def _opset(model: ir.Model, opset: int) -> Iterator[Finding]:
    """Report once for each thing that the opset lacks; TensorRT-RTX builds them, TensorRT 8 and ONNX Runtime do not."""
    needs: dict[str, tuple[int, list[str]]] = {}
    for node in reading.quantizers(model):
        scale = reading.at(node, 1)
        for needed, present, what in (
            (10, True, "has QuantizeLinear"),
            (13, "axis" in node.attributes, "has an axis on Q/DQ"),
            (19, scale is not None and scale.dtype is ir.DataType.FLOAT16, "has FP16 scales"),
            (
                21,
                "block_size" in node.attributes or "output_dtype" in node.attributes,
                "has block_size or output_dtype",
            ),
        ):
            if present and opset < needed and node.domain in _DEFAULT:
                needs.setdefault(what, (needed, []))[1].append(place(node))
    for what, (needed, nodes) in needs.items():
        others = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
        yield _OPSET.at(
            f"{nodes[0]}{others}", f"the model {what}, and its opset is {opset}: {needed} is the first with it"
        )
