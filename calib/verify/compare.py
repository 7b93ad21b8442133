"""What was asked against what was built, per ONNX node.

1. A layer's kernels are the built layers that name it and multiply matrices. Where none does, they are all that name it: a
   small layer becomes plain arithmetic.
2. A kernel runs a layer in INT8 when it reads INT8 for the activation and for the weight. One that reads INT8 beside a
   float weight dequantizes first and computes in float.
3. A layer that no built layer names runs in the kernel of an equal layer, where there is one; in nothing, where the graph
   shows that none is needed; else what was built is unknown.
4. A layer inside a block whose kernels TensorRT does not show ("Myelin" before TensorRT 10) is unknown too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from calib.verify import naming, reasons
from calib.verify.asked import Asked
from calib.verify.build import Engine
from calib.verify.listing import COMPUTED, Kernel, Tensor
from calib.verify.result import REMOVED, UNKNOWN, Layer

_MULTIPLIES = re.compile(r"correlation|conv|gemm|matri|matmul|fully|attention|mha|fprop", re.IGNORECASE)
_FUSED = ("kgen", "runtime_fusion", "fusion")
_FUSED_MULTIPLIES = re.compile(r"gemm|mha|Corr|Conv(?!e)|Deco|Fc|Dot|MatM|Bmm")
_INT8_TACTIC = re.compile(r"i8i8|i8f|s8s8|int8|imma", re.IGNORECASE)
_OPAQUE = "myelin"


def layers(asked: Sequence[Asked], engine: Engine, labels: Mapping[str, str]) -> tuple[Layer, ...]:
    """Return asked against built for every weighted layer, in graph order."""
    weighted = {layer.node for layer in asked}
    equal: dict[str, list[str]] = {}
    for layer in asked:
        equal.setdefault(layer.twin, []).append(layer.node)
    return tuple(_layer(layer, engine, weighted, equal[layer.twin], labels) for layer in asked)


def residuals(asked: Iterable[Asked], engine: Engine, labels: Mapping[str, str]) -> tuple[Layer, ...]:
    """Return for every Add with a quantized input whether a kernel of it reads that input as INT8."""
    result = []
    for add in asked:
        named = _naming(engine, [add.node])
        reading = [kernel for kernel in named if any(tensor.kind == "int8" for tensor in kernel.inputs)]
        built = "int8" if reading else _float(named[0]) if named else REMOVED
        result.append(Layer(labels[add.node], add.op_type, "int8", built, _names(reading or named, labels)))
    return tuple(result)


def multiplies(kernel: Kernel) -> bool:
    """Whether a built layer computes a Conv, a MatMul or the like, and is no pointwise or layout operation."""
    if (
        kernel.type in _FUSED
    ):  # named after what they do, as __myl_CastMulFc; or their kernels are, as sm80_xmma_gemm_...
        return bool(_FUSED_MULTIPLIES.search(kernel.name) or _MULTIPLIES.search(kernel.tactic))
    return bool(_MULTIPLIES.search(kernel.type))


def _layer(layer: Asked, engine: Engine, weighted: set[str], twins: Sequence[str], labels: Mapping[str, str]) -> Layer:
    named = _naming(engine, [layer.node]) or _naming(engine, twins)
    computing = [kernel for kernel in named if multiplies(kernel)] or named
    if any(kernel.type.lower() == _OPAQUE for kernel in computing):
        built = UNKNOWN
    elif computing:
        found = [_precision(kernel, layer, weighted) for kernel in computing]
        built = next((kind for kind in found if kind != "int8"), "int8")
    else:
        built = REMOVED if layer.needless else UNKNOWN
    reason = reasons.why(layer, built, computing, engine, labels)
    return Layer(labels[layer.node], layer.op_type, layer.precision, built, _names(computing, labels), reason)


def _naming(engine: Engine, nodes: Sequence[str]) -> list[Kernel]:
    return [kernel for kernel in engine.kernels if any(node in kernel.nodes for node in nodes)]


def _names(kernels: Iterable[Kernel], labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(naming.restore(kernel.name, labels) for kernel in kernels)


def _precision(kernel: Kernel, layer: Asked, weighted: set[str]) -> str:
    """Return what a kernel computes a layer in.

    Scales and biases are vectors and always float; what has two dimensions or more is an operand.
    """
    inputs, constants = [tensor.kind for tensor in kernel.inputs], [tensor.kind for tensor in kernel.constants]
    matrices = [tensor.kind for tensor in kernel.constants if _is_matrix(tensor)]
    if any(kind in COMPUTED and kind != "int8" for kind in matrices) or not {"int8", "unknown"}.intersection(inputs):
        return _float(kernel)
    if "int8" in constants:
        return "int8"
    # Both operands come as inputs; where several layers became one kernel, as in attention, so must all of theirs.
    several = len(weighted.intersection(kernel.nodes)) > 1
    needed = len([tensor for tensor in kernel.inputs if _is_matrix(tensor)]) if several else len(layer.operands)
    if inputs.count("int8") >= max(needed, 2):
        return "int8"
    if not constants and set(inputs) <= {"int8", "unknown", "other"} and any(item.constant for item in layer.operands):
        return "int8" if _INT8_TACTIC.search(kernel.tactic) else UNKNOWN  # the weight is not listed
    return _float(kernel)


def _float(kernel: Kernel) -> str:
    tensors = [
        tensor for tensor in (*kernel.inputs, *kernel.constants) if tensor.kind in COMPUTED and tensor.kind != "int8"
    ]
    operands = [tensor for tensor in tensors if _is_matrix(tensor)] or tensors
    return operands[0].kind if operands else UNKNOWN


def _is_matrix(tensor: Tensor) -> bool:
    return sum(size != 1 for size in tensor.shape) > 1
