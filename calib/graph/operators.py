"""Operators and types that TensorRT's ONNX parser does not take, and what to do instead.

The table follows onnx-tensorrt's docs/operators.md of TensorRT 10.15 (opsets 9 to 24) and the parser of TensorRT-RTX 1.7,
which knows newer operators too. They differ in four: TensorRT 10 has DeformConv as a plugin and RTX does not; RTX has Swish,
CausalConvWithState and LinearAttention (opsets 24 and 27), which TensorRT 10.15 does not list.

The parser looks operators up by name, whatever their domain: `com.microsoft::Gelu` is imported as ONNX's Gelu. What it does
not find it takes for a plugin, which must then be loaded. Functions that the model defines are expanded.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_ir as ir

from calib.graph import load
from calib.graph.finding import Finding, Rule, place

NO_IMPORTER = Rule("L20", "error", "rewrite or remove it before quantizing")
NO_TYPE = Rule("L21", "error", "cast it to float32, int32 or int64 where it is made")
NO_FP64 = Rule("L22", "warning", "export in float32, and check on the data that this is enough")

_FLOAT_MODEL = "start from the float model and quantize with Q/DQ: integer operators have no importer"
_SEQUENCE = "split and join with Split, Slice and Concat of fixed tensors; export with lists unrolled"
_OPTIONAL = "export with the optional input given, or left out; a graph cannot decide it at run time"
_STRINGS = "prepare text outside of the model and feed numbers"
_LOSS = "export in evaluation mode, without the loss"
_BITS = "on booleans use And, Or, Xor, Not; on integers compute it outside of the model, or with Mod, Div and Mul"

UNSUPPORTED = {
    "AffineGrid": "compute the grid from the affine matrix with MatMul on a constant base grid, then GridSample",
    "Bernoulli": "expand it: RandomUniformLike, Less, Cast (onnx.inliner with inline_schema_functions=True)",
    "BitCast": "keep numbers in one type; reinterpret bytes outside of the model",
    "BitShift": "Mul or Div by a power of two",
    "BitwiseAnd": _BITS,
    "BitwiseNot": _BITS,
    "BitwiseOr": _BITS,
    "BitwiseXor": _BITS,
    "CenterCropPad": "expand it to Pad and Slice (onnx.inliner with inline_schema_functions=True)",
    "Col2Im": "ConvTranspose with a constant identity kernel, group = channels",
    "Compress": "Gather with constant indices; or NonZero, Squeeze, Gather where the mask is data",
    "ConcatFromSequence": _SEQUENCE,
    "ConvInteger": _FLOAT_MODEL,
    "CumProd": "for positive values Exp(CumSum(Log(x))); otherwise unroll it with Slice and Mul",
    "DFT": "MatMul with the constant DFT matrix (real and imaginary part), or STFT",
    "DeformConv": "TensorRT 10 and later have it as a plugin, TensorRT-RTX has not: use TensorRT, or GridSample and Conv",
    "Det": "write the determinant out with Slice, Mul and Sub (2x2, 3x3)",
    "DynamicQuantizeLinear": _FLOAT_MODEL,
    "ImageDecoder": "decode images outside of the model",
    "MatMulInteger": _FLOAT_MODEL,
    "MaxRoiPool": "RoiAlign with mode max",
    "MaxUnpool": "ScatterElements of the values at the indices of MaxPool computed with ArgMax; or Resize nearest, retrained",
    "MelWeightMatrix": "it depends on constants only: store the matrix as an initializer",
    "Multinomial": "sample outside of the model; or ArgMax of logits plus Gumbel noise from RandomUniformLike",
    "NegativeLogLikelihoodLoss": _LOSS,
    "Optional": _OPTIONAL,
    "OptionalGetElement": _OPTIONAL,
    "OptionalHasElement": _OPTIONAL,
    "QLinearConv": _FLOAT_MODEL,
    "QLinearMatMul": _FLOAT_MODEL,
    "RegexFullMatch": _STRINGS,
    "SequenceAt": _SEQUENCE,
    "SequenceConstruct": _SEQUENCE,
    "SequenceEmpty": _SEQUENCE,
    "SequenceErase": _SEQUENCE,
    "SequenceInsert": _SEQUENCE,
    "SequenceLength": _SEQUENCE,
    "SequenceMap": "Loop over an axis of one tensor, or unroll it",
    "SoftmaxCrossEntropyLoss": _LOSS,
    "SplitToSequence": _SEQUENCE,
    "StringConcat": _STRINGS,
    "StringNormalizer": _STRINGS,
    "StringSplit": _STRINGS,
    "SwiGLU": "Mul of Swish(a) and b; for TensorRT 10 Mul, Sigmoid, Mul",
    "TfIdfVectorizer": _STRINGS,
    "Unique": "remove duplicates outside of the model",
}
"""Operators of ONNX's default domain that have no importer, with the usual rewrite."""

_LEGACY = frozenset(("ImageScaler", "ParametricSoftplus", "ScaledTanh", "Scatter", "Upsample"))  # no longer in ONNX
_MICROSOFT = frozenset(("DequantizeLinear", "Gelu", "QuantizeLinear"))  # mean what ONNX's of that name do
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
_TYPES = {
    ir.DataType.INT16: "TensorRT has no int16",
    ir.DataType.UINT16: "TensorRT has no uint16",
    ir.DataType.UINT32: "TensorRT has no uint32",
    ir.DataType.UINT64: "TensorRT has no uint64",
    ir.DataType.COMPLEX64: "TensorRT has no complex numbers",
    ir.DataType.COMPLEX128: "TensorRT has no complex numbers",
    ir.DataType.STRING: "TensorRT has no text",
    ir.DataType.UINT8: "TensorRT takes uint8 at the inputs and outputs of a model only",
}


def check(model: ir.Model) -> tuple[Finding, ...]:
    """Return a finding for each node that TensorRT has no importer for, and one for each type that it does not have."""
    return (*_operators(model), *_types(model))


def _operators(model: ir.Model) -> Iterator[Finding]:
    functions = {(domain, name) for domain, name, _ in model.functions}
    for node in _nodes(model):
        advice = "" if (node.domain, node.op_type) in functions else _advice(node.domain, node.op_type)
        if advice:
            operator = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            yield NO_IMPORTER.at(place(node), f"TensorRT has no importer for {operator}", advice)


def _advice(domain: str, operator: str) -> str:
    """Return what to do about an operator, "" where TensorRT imports it."""
    if domain == "com.microsoft" and operator not in _MICROSOFT:
        return "it comes from ONNX Runtime's optimizer: quantize the model as it was before, or export it again"
    if domain == "ai.onnx.ml":
        return "it is no neural network's: compute it outside of the model"
    if operator in UNSUPPORTED:
        return UNSUPPORTED[operator]
    if (
        onnx.defs.has(operator) or operator in _LEGACY or operator.endswith("_TRT")
    ):  # the last are TensorRT's own plugins
        return ""
    return f"load a TensorRT plugin named {operator}, or export it as ONNX's operators or as a function made of them"


def _types(model: ir.Model) -> Iterator[Finding]:
    tensors: dict[ir.DataType, list[str]] = {}
    for value in _values(model):
        if value.dtype is not None:
            tensors.setdefault(value.dtype, []).append(str(value.name))
    for kind, names in tensors.items():
        where = f"tensor '{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        if kind in _TYPES:
            yield NO_TYPE.at(where, _TYPES[kind], _STRINGS if kind is ir.DataType.STRING else "")
        elif kind is ir.DataType.DOUBLE:
            yield NO_FP64.at(where, "TensorRT has no float64 and computes in float32 instead, without a word")


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the tensors whose type TensorRT must have; those of Q/DQ are a matter of `calib.graph.lint`."""
    for graph in model.graphs():
        for value in (*graph.inputs, *graph.initializers.values()):
            quantized = all(use.node.op_type in _QUANTIZERS for use in value.uses())
            if (
                not quantized and value.dtype is not ir.DataType.UINT8
            ):  # taken as an input, and as a constant made int32
                yield value
    for node in load.all_nodes(model):
        for out in node.outputs:
            if node.op_type != "QuantizeLinear" and not (out.dtype is ir.DataType.UINT8 and out.is_graph_output()):
                yield out


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from load.all_nodes(model)
    for function in model.functions.values():
        yield from ir.traversal.RecursiveGraphIterator(function)
