"""What the models of `reported_*` are made with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from calib.plan import Plan

ALL_INT8 = Plan(layers={"*": "int8"})
Shape = Sequence[int | str]


@dataclass(frozen=True)
class Case:
    """A model as it was reported, and what calib must make of it.

    Attributes:
        proto: the model.
        samples: its inputs, [N, ...].
        int8: the number of layers in INT8.
        plan: all that has to be said of layers.
        reference: the same in FP32, where the model itself is in FP16.
        builds_int8: whether TensorRT-RTX has INT8 kernels for those layers.
        within: the largest error of an output, relative to its largest value.
    """

    proto: onnx.ModelProto
    samples: Mapping[str, np.ndarray]
    int8: int
    plan: Plan = field(default_factory=Plan)
    reference: onnx.ModelProto | None = None
    builds_int8: bool = True
    within: float = 0.02


def normal(*shape: int) -> np.ndarray:
    """Return normal values of variance 1, those of one shape always the same."""
    return np.random.default_rng([len(shape), *shape]).normal(size=shape).astype(np.float32)


def node(op: str, inputs: Sequence[str], output: str, name: str = "", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), [output], name or f"{op}_{output}", **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Mapping[str, Shape],
    weights: Mapping[str, np.ndarray],
    opset: int = 17,
    kinds: Mapping[str, int] | None = None,
    *,
    valid: bool = True,
) -> onnx.ModelProto:
    """Return a model, float32 but for the inputs in `kinds`; `valid` has it checked."""

    def infos(values: Mapping[str, Shape]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, (kinds or {}).get(name, TensorProto.FLOAT), shape)
            for name, shape in values.items()
        ]

    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(list(nodes), "reported", infos(inputs), infos(outputs), tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if valid:
        onnx.checker.check_model(made, full_check=len({one.name for one in nodes}) > 1)
    return made


def halved(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a float32 model in FP16; its weights must be what FP16 can hold."""
    half = onnx.ModelProto()
    half.CopyFrom(proto)
    for tensor in half.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    for value in (*half.graph.input, *half.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.checker.check_model(half, full_check=True)
    return half
