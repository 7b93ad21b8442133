"""Which precision each layer of the best candidate was planned and built in."""

from __future__ import annotations

from dataclasses import replace

from calib.graph.layers import Layer
from calib.qdq import Decisions
from calib.study.result import Built, LayerPrecision, StudyResult
from calib.verify import Verification


def planned(layers: tuple[Layer, ...], decisions: Decisions) -> tuple[LayerPrecision, ...]:
    """Return what the plan and the rules of `calib.qdq` ask for, before anything is built."""
    rows = []
    for layer in layers:
        reason = decisions.left.get(layer.name, "")
        in_float = "fp32" if decisions.rest == "fp32" or layer.name in decisions.kept else "fp16"
        rows.append(LayerPrecision(layer.name, layer.op_type, in_float if reason else "int8", "", reason))
    return tuple(rows)


def verified(result: StudyResult, found: Verification) -> StudyResult:
    """Return the result with what TensorRT built of its best candidate; `found` has the FP32 model's build too."""
    assert found.against is not None  # `verified` gives it
    seen = {layer.name: layer for layer in found.layers}
    rows = tuple(
        replace(row, asked=seen[row.name].asked, built=seen[row.name].built, reason=row.reason or seen[row.name].reason)
        if row.name in seen
        else row
        for row in result.precision
    )
    asked, failed = found.count(asked="int8"), len(found.failed)
    built = Built(
        f"{found.builder} {found.builder_version}",
        found.build.seconds,
        len(found.build.kernels),
        len(found.against.kernels),
        asked,
        asked - failed,
    )
    proof = (
        f"{built.builder} builds {asked - failed} of the {asked} INT8 layers in INT8, in {built.kernels} kernels "
        f"(FP32: {built.kernels_fp32})."
    )
    verdict = replace(result.verdict, reasons=(*result.verdict.reasons, proof))
    return replace(result, precision=rows, built=built, verdict=verdict)
