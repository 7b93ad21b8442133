"""Models rebuilt from public reports: single layers, weights, names and opsets. `reported.REPORTS` says which is whose."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from calib.plan import Plan

from .reported_case import ALL_INT8, Case, model, node, normal


def conv_with_a_zero_filter() -> Case:
    """One output channel is dead: its abs-max is 0."""
    weight = normal(4, 3, 3, 3)
    weight[2] = 0
    nodes = [node("Conv", ["x", "w", "b"], "c", pads=[1, 1, 1, 1]), node("Relu", ["c"], "y")]
    weights = {"w": weight, "b": normal(4)}
    return Case(model(nodes, {"x": ("N", 3, 8, 8)}, {"y": ("N", 4, 8, 8)}, weights), {"x": normal(4, 3, 8, 8)}, int8=1)


def dead_relu() -> Case:
    """A Conv with the bias -100 and a Relu: the next Conv reads zeros only."""
    nodes = [
        node("Conv", ["x", "w", "b"], "c", name="first"),
        node("Relu", ["c"], "dead"),
        node("Conv", ["dead", "w2"], "nothing", name="reader"),
        node("Add", ["nothing", "x"], "y"),
    ]
    weights = {"w": normal(4, 3, 1, 1), "b": np.full(4, -100, np.float32), "w2": normal(3, 4, 1, 1)}
    proto = model(nodes, {"x": ("N", 3, 6, 6)}, {"y": ("N", 3, 6, 6)}, weights)
    return Case(proto, {"x": normal(4, 3, 6, 6)}, int8=1, plan=Plan(layers={"reader": "fp16"}))


def first_samples_of_zeros() -> Case:
    """Half of the samples, the first, are all zero."""
    samples = normal(8, 3, 6, 6)
    samples[:4] = 0
    nodes = [node("Conv", ["x", "w"], "c"), node("Relu", ["c"], "r"), node("Conv", ["r", "w2"], "y")]
    weights = {"w": normal(4, 3, 1, 1), "w2": normal(5, 4, 1, 1)}
    return Case(model(nodes, {"x": ("N", 3, 6, 6)}, {"y": ("N", 5, 6, 6)}, weights), {"x": samples}, int8=2)


def conv_transpose(groups: int, bias: bool) -> Case:
    """ConvTranspose 3 -> 64, or with groups: the weight is [C_in, C_out / groups, k, k]. A plan names it."""
    channels, part = 3 if groups == 1 else 4, 64 // groups
    weight = normal(channels, part, 2, 2) * np.geomspace(0.05, 2, part, dtype=np.float32)[None, :, None, None]
    inputs = ["x", "w", *(["b"] if bias else [])]
    nodes = [node("ConvTranspose", inputs, "y", strides=[2, 2], group=groups)]
    weights = {"w": weight, **({"b": normal(64)} if bias else {})}
    proto = model(nodes, {"x": ("N", channels, 5, 5)}, {"y": ("N", 64, 10, 10)}, weights)
    return Case(proto, {"x": normal(4, channels, 5, 5)}, int8=1, plan=ALL_INT8, builds_int8=False)


def conv_transpose_by_default() -> Case:
    """TensorRT builds it in float whatever the graph says, so without a plan it stays there."""
    case = conv_transpose(1, bias=True)
    nodes = [*case.proto.graph.node, node("Conv", ["y", "w2"], "z")]
    weights = {t.name: numpy_helper.to_array(t) for t in case.proto.graph.initializer} | {"w2": normal(2, 64, 1, 1)}
    return Case(model(nodes, {"x": ("N", 3, 5, 5)}, {"z": ("N", 2, 10, 10)}, weights), case.samples, int8=1)


def gemm(transposed: int, square: bool) -> Case:
    """The axis of the output channels depends on transB; where the weight is square, only the numbers can tell."""
    inner, out = (8, 8) if square else (8, 12)
    weight = normal(out, inner) * np.geomspace(0.02, 2, out, dtype=np.float32)[:, None]
    nodes = [node("Gemm", ["x", "w", "b"], "y", transB=transposed)]
    weights = {"w": weight if transposed else weight.T.copy(), "b": normal(out)}
    return Case(model(nodes, {"x": ("N", inner)}, {"y": ("N", out)}, weights), {"x": normal(32, inner)}, int8=1)


def matmul(shape: tuple[int, ...]) -> Case:
    """A constant right operand [K, N], or a batch of them, with columns that differ by 100."""
    weight = normal(*shape) * np.geomspace(0.02, 2, shape[-1], dtype=np.float32)
    nodes = [node("MatMul", ["x", "w"], "y")]
    batch = shape[0] if len(shape) > 2 else 3
    proto = model(nodes, {"x": ("N", batch, 6, shape[-2])}, {"y": ("N", batch, 6, shape[-1])}, {"w": weight})
    return Case(proto, {"x": normal(4, batch, 6, shape[-2])}, int8=1)


def matmul_of_two_activations() -> Case:
    nodes = [node("MatMul", ["x", "z"], "y")]
    proto = model(nodes, {"x": ("N", 6, 8), "z": ("N", 8, 5)}, {"y": ("N", 6, 5)}, {})
    return Case(proto, {"x": normal(4, 6, 8), "z": normal(4, 8, 5)}, int8=1)


def tiny_weights(bias: str) -> Case:
    """Weights of 1e-10 under a bias of 5: as int32 with the scale of the products, the bias would be clipped."""
    weights = {"w": 1e-10 * normal(2, 8), "b": np.float32({"vector": [5, -4.5], "scalar": 5}[bias])}
    nodes = [node("Gemm", ["x", "w", "b"], "y", transB=1)]
    return Case(model(nodes, {"x": ("N", 8)}, {"y": ("N", 2)}, weights), {"x": normal(8, 8)}, int8=1)


def conv_with_bias() -> Case:
    nodes = [node("Conv", ["x", "w", "b"], "y", pads=[1, 1, 1, 1])]
    weights = {"w": normal(4, 3, 3, 3), "b": normal(4)}
    return Case(model(nodes, {"x": ("N", 3, 8, 8)}, {"y": ("N", 4, 8, 8)}, weights), {"x": normal(4, 3, 8, 8)}, int8=1)


def opset_11() -> Case:
    """Q/DQ along an axis needs opset 13."""
    nodes = [
        node("Conv", ["x", "w"], "c"),
        node("BatchNormalization", ["c", "g", "b", "m", "v"], "n"),
        node("ReduceMean", ["n"], "p", axes=[2, 3], keepdims=0),
        node("Gemm", ["p", "w2", "b2"], "s"),
        node("Softmax", ["s"], "y", axis=1),
    ]
    weights = {"w": normal(6, 3, 3, 3), "g": normal(6), "b": normal(6), "m": normal(6), "v": np.abs(normal(6)) + 0.5}
    weights |= {"w2": normal(6, 5), "b2": normal(5)}
    proto = model(nodes, {"x": ("N", 3, 8, 8)}, {"y": ("N", 5)}, weights, opset=11)
    return Case(proto, {"x": normal(4, 3, 8, 8)}, int8=2)


def weights_from_nodes() -> Case:
    """A weight in a Constant node, one that is cast from FP16, and one behind a Transpose of a Constant."""
    constants = {"w1": normal(4, 3, 3, 3), "w2_half": normal(4, 4, 1, 1).astype(np.float16), "w3_turned": normal(5, 4)}
    nodes = [
        *(helper.make_node("Constant", [], [n], value=numpy_helper.from_array(a)) for n, a in constants.items()),
        node("Cast", ["w2_half"], "w2", to=TensorProto.FLOAT),
        node("Transpose", ["w3_turned"], "w3", perm=[1, 0]),
        node("Conv", ["x", "w1"], "c"),
        node("Conv", ["c", "w2"], "d"),
        node("ReduceMean", ["d"], "p", axes=[2, 3], keepdims=0),
        node("MatMul", ["p", "w3"], "y"),
    ]
    return Case(model(nodes, {"x": ("N", 3, 6, 6)}, {"y": ("N", 5)}, {}), {"x": normal(4, 3, 6, 6)}, int8=3)


def names(kind: str) -> Case:
    """Nodes without names, or all with one; and operators whose optional inputs are ''."""
    pads, sizes = np.int64([0, 0, 1, 1, 0, 0, 1, 1]), np.float32([1, 1, 2, 2])
    nodes = [
        node("Pad", ["x", "pads", ""], "p", mode="constant"),
        node("Conv", ["p", "w", "b"], "c"),
        node("Clip", ["c", "", "six"], "k"),
        node("Conv", ["k", "w2", ""], "d", pads=[1, 1, 1, 1]),
        node("Resize", ["d", "", "sizes"], "r", mode="nearest"),
        node("Conv", ["r", "w3"], "y"),
    ]
    for one in nodes:
        one.name = {"unnamed": "", "equal": "node"}[kind]
    weights = {"pads": pads, "sizes": sizes, "six": np.float32(6), "w": normal(4, 3, 3, 3), "b": normal(4)}
    weights |= {"w2": normal(4, 4, 3, 3), "w3": normal(2, 4, 1, 1)}
    proto = model(nodes, {"x": ("N", 3, 6, 6)}, {"y": ("N", 2, 12, 12)}, weights)
    return Case(proto, {"x": normal(4, 3, 6, 6)}, int8=3)


def conv_batch_norm() -> Case:
    """Conv, BatchNormalization and Relu; gamma is 0 for one channel, and negative or small for others."""
    nodes = [
        node("Conv", ["x", "w", "b"], "c"),
        node("BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], "n"),
        node("Relu", ["n"], "r"),
        node("Conv", ["r", "w2"], "y"),
    ]
    weights = {
        "w": normal(6, 3, 3, 3) * np.geomspace(0.01, 10, 6, dtype=np.float32).reshape(6, 1, 1, 1),
        "b": normal(6),
        "gamma": np.float32([1, 0, -1, -0.01, 2, 1e-3]),
        "beta": np.float32([0.5, 1, 0.5, 0.2, -0.5, 1]),
        "mean": normal(6),
        "variance": np.float32([1e-3, 1, 0.5, 2, 50, 0.1]),
        "w2": normal(4, 6, 1, 1),
    }
    proto = model(nodes, {"x": ("N", 3, 6, 6)}, {"y": ("N", 4, 4, 4)}, weights)
    return Case(proto, {"x": normal(4, 3, 6, 6)}, int8=2)
