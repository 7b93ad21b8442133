"""What a graph asks for: the precision of every weighted layer, from its Q/DQ alone.

1. A layer is asked in INT8 when both of its operands come from DequantizeLinear of INT8; operators that only move values
   (Reshape, Transpose, MaxPool, ...) may stand between.
2. So it is when only its constant operand does: an INT8 weight has no other use, and the report says what is missing.
3. Any other layer is asked in the type of its data. A note tells where only its activation is quantized.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from calib.errors import ModelError
from calib.graph.layers import QUANTIZABLE, is_cut, output_axis
from calib.graph.lint.reading import MOVEMENT
from calib.graph.values import is_constant
from calib.verify import redundant

_FLOAT = {
    ir.DataType.FLOAT: "fp32",
    ir.DataType.DOUBLE: "fp32",
    ir.DataType.FLOAT16: "fp16",
    ir.DataType.BFLOAT16: "bf16",
}
_FURTHEST = 8


@dataclass(frozen=True, slots=True)
class Operand:
    """One of a layer's first two inputs.

    Attributes:
        tensor: its name.
        constant: whether it does not depend on the data.
        dequantized: whether a DequantizeLinear of INT8 is where it comes from.
        between: "Relu 'name'" for each operator that changes values after that DequantizeLinear.
        axis: of a scale per channel, as the DequantizeLinear has it; None for one scale.
        moved: whether operators that move values stand after it, so that `axis` is not one of the operand itself.
        outside: whether that DequantizeLinear lies outside the subgraph that the layer is in.
    """

    tensor: str
    constant: bool
    dequantized: bool
    between: tuple[str, ...] = ()
    axis: int | None = None
    moved: bool = False
    outside: bool = False

    @property
    def int8(self) -> bool:
        """Whether a kernel could read it as INT8."""
        return self.dequantized and not self.between


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for one layer, or for one residual Add.

    Attributes:
        node: its key.
        op_type: its operator.
        precision: "int8", or the type of its data: "fp16", "fp32", "bf16", "float" where the model does not say.
        operands: its first two inputs.
        weight_axis: along which a constant second operand has its output channels; None where any axis may be right.
        packed: whether its output is cut into several tensors, as packed query, key and value are.
        twin: key of the first node that is equal to it; its own where none is.
        needless: whether it depends on constants alone, or no output needs it.
    """

    node: str
    op_type: str
    precision: str
    operands: tuple[Operand, ...]
    weight_axis: int | None = None
    packed: bool = False
    twin: str = ""
    needless: bool = False


def read(model: onnx.ModelProto) -> tuple[tuple[Asked, ...], tuple[Asked, ...]]:
    """Return the weighted layers of a model and its Adds of two tensors of which one is quantized, in graph order.

    Raises:
        ModelError: the graph is not valid.
    """
    try:
        graph = ir.from_proto(_typed(model))
    except (ir.serde.SerdeError, ValueError, NotImplementedError) as error:
        raise ModelError(f"the model is not a valid ONNX graph ({error}); export it again") from error
    nodes = list(ir.traversal.RecursiveGraphIterator(graph.graph))
    constants, unread, twins = _constants(nodes), redundant.unread(graph.graph, nodes), redundant.twins(nodes)
    layers, residuals = [], []
    for node in nodes:
        if node.domain not in ("", "ai.onnx") or len(node.inputs) < 2:
            continue
        operands = tuple(_operand(node, value, constants) for value in node.inputs[:2] if value is not None)
        if node.op_type in QUANTIZABLE:
            needless = str(node.name) in unread or all(operand.constant for operand in operands)
            layers.append(_layer(node, operands, twins[str(node.name)], needless=needless))
        elif node.op_type == "Add" and _is_quantized_residual(operands):
            residuals.append(Asked(str(node.name), node.op_type, _type(node.inputs[0]), operands))
    return tuple(layers), tuple(residuals)


def _is_quantized_residual(operands: tuple[Operand, ...]) -> bool:
    return not any(operand.constant for operand in operands) and any(operand.int8 for operand in operands)


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model)
    except (RuntimeError, ValueError, onnx.shape_inference.InferenceError):
        return model  # TensorRT says better what is wrong with it


def _constants(nodes: Iterable[ir.Node]) -> set[ir.Value]:
    found: set[ir.Value] = set()
    for node in nodes:
        sources = [value for value in node.inputs if value is not None]
        found.update(value for value in sources if is_constant(value))
        if node.op_type == "Constant" or (sources and all(value in found for value in sources)):
            found.update(node.outputs)
    return found


def _operand(layer: ir.Node, value: ir.Value, constants: set[ir.Value]) -> Operand:
    name, constant = str(value.name), value in constants
    between: list[str] = []
    moved = False
    for _ in range(_FURTHEST):
        node = value.producer()
        if node is None or node.op_type in (*QUANTIZABLE, "QuantizeLinear"):
            break
        if node.op_type == "DequantizeLinear":
            outside = node.graph is not layer.graph
            path = tuple(reversed(between))
            return Operand(name, constant, _is_int8(node), path, _scale_axis(node), moved, outside)
        sources = [source for source in node.inputs if source is not None]
        data = [source for source in sources if constant or source not in constants]
        if node.op_type in MOVEMENT:
            data, moved = sources[:1], True
        elif len(data) == 1:
            between.append(f"{node.op_type} '{node.name}'")
        else:
            break
        value = data[0]
    return Operand(name, constant, dequantized=False)


def _is_int8(dequantize: ir.Node) -> bool:
    codes = dequantize.inputs[0]
    known = [value.dtype for value in (codes, *dequantize.inputs[2:3]) if value is not None and value.dtype is not None]
    return bool(known) and known[0] in (ir.DataType.INT8, ir.DataType.UINT8)


def _scale_axis(dequantize: ir.Node) -> int | None:
    scale = dequantize.inputs[1]
    sizes = list(scale.shape) if scale is not None and scale.shape is not None else []
    if not sizes or sizes == [1]:
        return None
    axis, codes = dequantize.attributes.get_int("axis", 1), dequantize.inputs[0]
    return axis + len(codes.shape) if axis < 0 and codes is not None and codes.shape is not None else axis


def _layer(node: ir.Node, operands: tuple[Operand, ...], twin: str, *, needless: bool) -> Asked:
    int8 = all(operand.int8 for operand in operands) or any(operand.constant and operand.int8 for operand in operands)
    precision = "int8" if int8 else _type(node.inputs[0])
    return Asked(
        str(node.name),
        node.op_type,
        precision,
        operands,
        _weight_axis(node),
        is_cut(node, reshaped=False),
        twin,
        needless,
    )


def _type(value: ir.Value | None) -> str:
    kind = value.dtype if value is not None else None
    return "float" if kind is None else _FLOAT.get(kind, "float")


def _weight_axis(node: ir.Node) -> int | None:
    weight = node.inputs[1]
    rank = len(weight.shape) if weight is not None and weight.shape is not None else 0
    if node.op_type == "ConvTranspose" or (node.op_type == "MatMul" and rank < 2):
        return None
    return output_axis(node, 1, rank)
