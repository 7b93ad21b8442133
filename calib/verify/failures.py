"""What TensorRT says when it refuses a model that lint (calib.graph.lint) found nothing wrong with, and what helps."""

from __future__ import annotations

import re

_FIXES = (
    (
        r"must have (the )?same (input )?type|must be of same type|Could not infer output types|No matching rules",
        "types are mixed and TensorRT inserts no casts: DequantizeLinear gives the type of its scale, and QuantizeLinear "
        "wants a scale of its input's type; put a Cast here or change the scale's type",
    ),
    (
        r"Plugin not found|getPluginCreator|No importer registered|no supported importer",
        "TensorRT has no such operator: rewrite it in standard ones (`calib inspect` says how for those that it knows)",
    ),
    (
        r"QLinear|ConvInteger|MatMulInteger|DynamicQuantizeLinear",
        "TensorRT takes float operators between DequantizeLinear and QuantizeLinear: quantize the float model that way",
    ),
    (
        r"convertMyelinWeightsToFp32",
        "TensorRT 8 takes no weights stored in INT8 beside an FP16 rest: `calib quantize --weights qdq`",
    ),
    (
        r"Quantized constant .* is only allowed before DQ",
        "an INT8 weight and its DequantizeLinear lie in different graphs: keep layers of subgraphs in float",
    ),
    (
        r"Input dimensions with this name|Dimensions with name",
        "TensorRT takes dimensions of one name as equal: give them names of their own in the model, or shapes that agree",
    ),
    (
        r"optimization profile|Dimension mismatch for tensor|profile \d+ has",
        "the shapes do not go together: give others with --shape NAME=MIN,OPT,MAX",
    ),
)


def fix(message: str) -> str:
    """Return what usually helps against a message of TensorRT, "" where that is not known."""
    return next((advice for pattern, advice in _FIXES if re.search(pattern, message)), "")
