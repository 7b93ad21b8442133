"""Why a layer that was asked in INT8 was built in float: what the graph and the kernel show, else TensorRT's choice.

1. Its activation has no Q/DQ.
2. An operator stands between the DequantizeLinear and the layer.
3. Its activation is quantized per channel: INT8 kernels take one scale.
4. Its weight is quantized along another axis than its output channels.
5. It is in a subgraph (If, Loop, Scan) and its DequantizeLinear is not.
6. It is a ConvTranspose: TensorRT-RTX has no INT8 kernel for it.
7. Its output is cut into several tensors, as packed query, key and value are: TensorRT cuts the weight instead, and then
   its scales per channel are in the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calib.verify import naming
from calib.verify.asked import Asked, Operand
from calib.verify.build import RTX, Engine
from calib.verify.listing import Kernel
from calib.verify.result import REMOVED, UNKNOWN


def why(layer: Asked, built: str, kernels: Sequence[Kernel], engine: Engine, labels: Mapping[str, str]) -> str:
    """Return why a layer was not built as asked, or what is half done about it; "" where all is well."""
    if built == REMOVED:
        return "no kernel is needed: it depends on constants alone, or no output needs it"
    if built == UNKNOWN:
        return f"{engine.builder} {engine.version} does not show what it built here"
    if layer.precision != "int8":
        half = [operand for operand in layer.operands if operand.int8]
        other = [operand for operand in layer.operands if not operand.int8]
        if half and other:
            return f"only '{half[0].tensor}' is quantized, '{other[0].tensor}' is not"
        return "" if built == layer.precision or layer.precision == "float" else f"{engine.builder}'s choice"
    if built == "int8":
        return ""
    found = _from_graph(layer, engine)
    mixed = any(tensor.kind == "int8" for kernel in kernels for tensor in kernel.inputs)
    where = f" (kernel {', '.join(kernel.name for kernel in kernels)}" + (", dequantizes first)" if mixed else ")")
    return naming.restore(found or f"{engine.builder}'s choice{where}", labels)


def _from_graph(layer: Asked, engine: Engine) -> str:
    for operand in layer.operands:
        what = "weight" if operand.constant else "activation"
        if not operand.dequantized:
            return (
                f"its {what} '{operand.tensor}' has no Q/DQ of INT8: what is quantized beside it is only stored in INT8"
            )
        if operand.between:
            return f"{' and '.join(operand.between)} stands between DequantizeLinear and its {what} '{operand.tensor}'"
        if not operand.constant and operand.axis is not None:
            return f"its activation '{operand.tensor}' has a scale per channel; INT8 kernels take one scale"
        if operand is layer.operands[1] and _is_misplaced(operand, layer):
            return (
                f"its weight '{operand.tensor}' has scales along axis {operand.axis}; "
                f"its output channels lie along axis {layer.weight_axis}"
            )
    if any(operand.outside for operand in layer.operands):
        return "it lies in a subgraph (If, Loop or Scan) and its DequantizeLinear outside; keep it in float"
    if layer.op_type == "ConvTranspose" and engine.builder == RTX:
        return f"{RTX} has no INT8 kernel for ConvTranspose (none seen up to 1.7); keep it in float"
    if layer.packed and any(operand.constant and operand.axis is not None for operand in layer.operands):
        return (
            "its output is cut into several tensors and its weight has a scale per channel: "
            "give the weight one scale, or make it several layers"
        )
    return ""


def _is_misplaced(operand: Operand, layer: Asked) -> bool:
    return (
        operand.constant
        and not operand.moved
        and None not in (operand.axis, layer.weight_axis)
        and operand.axis != layer.weight_axis
    )
