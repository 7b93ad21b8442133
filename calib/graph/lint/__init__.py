"""Lint: what is known to fail, or to disappoint, when TensorRT builds a model with Q/DQ.

An error is what TensorRT refuses, what is no valid ONNX, or what TensorRT builds with other values than ONNX's; a warning is
what it builds, but in float, slower or less exact than was meant. tests/test_lint.py builds an example of each with
TensorRT-RTX and holds what that does.

    L01  a scale is zero, negative or NaN
    L02  a scale is infinite, or subnormal
    L03  the number of scales is not that of the axis
    L04  an activation has a scale for each channel, or one of shape [1]
    L05  a scale is no constant
    L06  a zero-point is not 0
    L07  quantized values are not INT8
    L08  quantized in blocks
    L09  a weight's scales are not along its output channels
    L10  an FP16 scale is too small to be exact
    L11  operands of one operator have different types
    L12  a scale has not the type of the data that it quantizes
    L13  the opset lacks what Q/DQ use
    L14  a bias is quantized
    L15  a number of rank 0 is quantized
    L16  only one operand of a layer is quantized
    L17  an operator computes on quantized values, or makes them otherwise
    L18  Q/DQ stand between a layer and its activation
    L19  a Concat joins tensors of different scales
    L20  an operator has no importer              (calib.graph.operators)
    L21  a tensor has a type that TensorRT lacks  (calib.graph.operators)
    L22  a tensor is float64                      (calib.graph.operators)
    L23  an INT8 constant is read by other than DequantizeLinear
"""

from __future__ import annotations

import onnx_ir as ir

from calib.errors import ModelError
from calib.graph import operators, shapes
from calib.graph.finding import Finding
from calib.graph.lint import scales, structure, types

__all__ = ["Finding", "lint", "passed"]

_PLUGIN = "L20"  # a plugin may be at hand where the model is built


def lint(model: ir.Model) -> tuple[Finding, ...]:
    """Return what is wrong with a model for TensorRT, in the order of the rules and then of the graph.

    Raises:
        ModelError: onnx finds the graph inconsistent.
    """
    model = shapes.infer(model, {})  # files need not say the types and ranks of inner tensors
    found = (*scales.check(model), *types.check(model), *structure.check(model), *operators.check(model))
    return tuple(sorted(found, key=lambda finding: finding.rule))


def passed(model: ir.Model) -> tuple[Finding, ...]:
    """Return what `lint` finds in a model that TensorRT can build: warnings, and operators that need a plugin.

    Raises:
        ModelError: TensorRT refuses the model, or builds another one; the message says where, why and what to do.
    """
    found = lint(model)
    errors = [finding for finding in found if finding.severity == "error" and finding.rule != _PLUGIN]
    if errors:
        more = f" (and {len(errors) - 1} more like it)" if len(errors) > 1 else ""
        raise ModelError(f"TensorRT cannot build this model: {errors[0]}{more}")
    return found
