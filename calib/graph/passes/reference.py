"""One node computed by onnx's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx.reference import ReferenceEvaluator


def compute(
    node: onnx.NodeProto, feeds: Mapping[str, npt.NDArray[Any]], imports: Sequence[onnx.OperatorSetIdProto]
) -> npt.NDArray[Any] | None:
    """Return the only output of a node, None where it cannot be computed."""
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in feeds]
    output = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.UNDEFINED, None)
    graph = onnx.helper.make_graph([node], "node", inputs, [output])
    try:
        with np.errstate(all="ignore"):
            (result,) = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=imports)).run(None, dict(feeds))
            return np.asarray(result)
    except Exception:  # it lacks some operators, and fails in its own ways on invalid nodes; callers go on without
        return None
