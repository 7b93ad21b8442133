"""Models rebuilt from public reports: what layers are part of. `reported.REPORTS` says which is whose."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from calib.plan import Plan

from .reported_case import Case, halved, model, node, normal


def large_and_small_in_fp16() -> Case:
    """An FP16 model whose activations reach 6e4 in one place, and are about 1e-6 in another."""
    nodes = [
        node("Conv", ["x", "w1"], "c1"),
        node("Relu", ["c1"], "large"),
        node("Conv", ["large", "w2"], "c2"),
        node("Mul", ["c2", "least"], "small"),
        node("Conv", ["small", "w3"], "y"),
    ]
    samples = np.clip(normal(4, 3, 6, 6), -2, 2).astype(np.float16)
    weights = {
        "w1": np.full((4, 3, 1, 1), 2.0**13, np.float32) * np.sign(normal(4, 3, 1, 1)) * 1.2,
        "w2": _exact(normal(4, 4, 1, 1) * 2**-8) * 2.0**-6,
        "least": np.float32(2.0**-20),
        "w3": _exact(normal(3, 4, 1, 1)) * 2.0**14,
    }
    weights = {name: _exact(array) for name, array in weights.items()}
    proto = model(nodes, {"x": ("N", 3, 6, 6)}, {"y": ("N", 3, 6, 6)}, weights)
    return Case(halved(proto), {"x": samples}, int8=3, reference=proto)


def convolutions(batch: int | str, height: int | str, width: int | str) -> Case:
    """A small network of convolutions for images of a size that may be free."""
    nodes = [
        node("Conv", ["x", "w1"], "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["c"], "r"),
        node("Conv", ["r", "w2"], "d"),
        node("GlobalAveragePool", ["d"], "p"),
        node("Flatten", ["p"], "f"),
        node("Gemm", ["f", "w3", "b3"], "y"),
    ]
    weights = {"w1": normal(4, 3, 3, 3), "w2": normal(6, 4, 1, 1), "w3": normal(6, 5), "b3": normal(5)}
    proto = model(nodes, {"x": (batch, 3, height, width)}, {"y": (batch, 5)}, weights)
    return Case(proto, {"x": normal(8, 3, 16, 24)}, int8=3)


def silu_chain() -> Case:
    """Three times Conv, Sigmoid, Mul; then a head with a Sigmoid."""
    nodes, tensor = [], "x"
    weights = {f"w{i}": normal(6, 6 if i else 3, 1, 1) / 2 for i in range(3)} | {"w_head": normal(2, 6, 1, 1)}
    for i in range(3):
        nodes += [
            node("Conv", [tensor, f"w{i}"], f"c{i}"),
            node("Sigmoid", [f"c{i}"], f"s{i}"),
            node("Mul", [f"c{i}", f"s{i}"], f"m{i}"),
        ]
        tensor = f"m{i}"
    nodes += [node("Conv", [tensor, "w_head"], "h"), node("Sigmoid", ["h"], "y", name="head/Sigmoid")]
    proto = model(nodes, {"x": ("N", 3, 8, 8)}, {"y": ("N", 2, 8, 8)}, weights)
    return Case(proto, {"x": normal(4, 3, 8, 8)}, int8=4, within=0.04)


def detection_head() -> Case:
    """Boxes in pixels (to 640) and scores (to 1), joined in one output."""
    nodes = [
        node("Conv", ["x", "w"], "features", pads=[1, 1, 1, 1]),
        node("Relu", ["features"], "r"),
        node("Conv", ["r", "w_box"], "box"),
        node("Sigmoid", ["box"], "unit"),
        node("Mul", ["unit", "pixels"], "boxes"),
        node("Conv", ["r", "w_score"], "logits"),
        node("Sigmoid", ["logits"], "scores"),
        node("Concat", ["boxes", "scores"], "y", axis=1),
    ]
    weights = {"w": normal(6, 3, 3, 3) / 4, "w_box": normal(4, 6, 1, 1) / 2, "w_score": normal(3, 6, 1, 1) / 2}
    proto = model(nodes, {"x": ("N", 3, 8, 8)}, {"y": ("N", 7, 8, 8)}, weights | {"pixels": np.float32(640)})
    return Case(proto, {"x": normal(4, 3, 8, 8)}, int8=3)


def residual_block(downsample: bool) -> Case:
    """ResNet's basic block, after a stem; the shortcut is the identity, or a Conv of its own."""
    stride = 2 if downsample else 1
    nodes = [
        node("Conv", ["x", "w0"], "c0", pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], "r0"),
        node("Conv", ["r0", "w1"], "c1", pads=[1, 1, 1, 1], strides=[stride] * 2),
        node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "w2"], "c2", pads=[1, 1, 1, 1]),
        *([node("Conv", ["r0", "w3"], "shortcut", strides=[2, 2])] if downsample else []),
        node("Add", ["c2", "shortcut" if downsample else "r0"], "a"),
        node("Relu", ["a"], "r2"),
        node("Conv", ["r2", "w4"], "y"),
    ]
    weights = {"w0": normal(8, 3, 3, 3) / 5, "w4": normal(4, 8, 1, 1) / 3}
    weights |= {name: normal(8, 8, 3, 3) / 8 for name in ("w1", "w2")}
    weights |= {"w3": normal(8, 8, 1, 1) / 3} if downsample else {}
    size = 4 if downsample else 8
    proto = model(nodes, {"x": ("N", 3, 8, 8)}, {"y": ("N", 4, size, size)}, weights)
    return Case(proto, {"x": normal(4, 3, 8, 8)}, int8=5 if downsample else 4)


def linear_stack() -> Case:
    """Linear, LayerNormalization and Relu, three times."""
    nodes, tensor, weights = [], "x", {}
    for i in range(3):
        weights |= {
            f"w{i}": normal(16, 16) / 4,
            f"b{i}": normal(16),
            f"g{i}": np.abs(normal(16)) + 0.5,
            f"o{i}": normal(16),
        }
        nodes += [
            node("MatMul", [tensor, f"w{i}"], f"m{i}"),
            node("Add", [f"m{i}", f"b{i}"], f"a{i}"),
            node("LayerNormalization", [f"a{i}", f"g{i}", f"o{i}"], f"n{i}", axis=-1),
            node("Relu", [f"n{i}"], "y" if i == 2 else f"r{i}"),
        ]
        tensor = f"r{i}"
    proto = model(nodes, {"x": ("N", 4, 16)}, {"y": ("N", 4, 16)}, weights)
    return Case(proto, {"x": normal(8, 4, 16)}, int8=3)


def several_types() -> Case:
    """An FP16 model; a plan keeps one layer in FP32 and one in FP16."""
    nodes = [
        node("Conv", ["x", "w1", "b1"], "c1"),
        node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "w2"], "c2", name="in_fp32"),
        node("Conv", ["c2", "w3"], "c3", name="in_fp16"),
        node("Conv", ["c3", "w4"], "y"),
    ]
    weights = {"w1": normal(4, 3, 1, 1), "b1": normal(4), "w2": normal(5, 4, 1, 1), "w3": normal(4, 5, 1, 1)}
    weights = {name: _exact(array) for name, array in (weights | {"w4": normal(3, 4, 1, 1)}).items()}
    proto = model(nodes, {"x": ("N", 3, 6, 6)}, {"y": ("N", 3, 6, 6)}, weights)
    plan = Plan(layers={"in_fp32": "fp32", "in_fp16": "fp16"})
    return Case(halved(proto), {"x": normal(4, 3, 6, 6).astype(np.float16)}, int8=2, plan=plan, reference=proto)


def text_encoder() -> Case:
    """Inputs of three kinds: word numbers (int64), a mask (int64) and features (float32)."""
    kinds = {"input_ids": TensorProto.INT64, "mask": TensorProto.INT64}
    nodes = [
        node("Gather", ["table", "input_ids"], "words"),
        node("Add", ["words", "features"], "x"),
        node("MatMul", ["x", "w_q"], "q"),
        node("MatMul", ["x", "w_k"], "k"),
        node("Transpose", ["k"], "k_turned", perm=[0, 2, 1]),
        node("MatMul", ["q", "k_turned"], "scores"),
        node("Cast", ["mask"], "seen", to=TensorProto.FLOAT),
        node("Sub", ["one", "seen"], "unseen"),
        node("Mul", ["unseen", "far"], "offset"),
        node("Unsqueeze", ["offset", "axis"], "offsets"),
        node("Add", ["scores", "offsets"], "masked"),
        node("Softmax", ["masked"], "shares", axis=-1),
        node("MatMul", ["shares", "x"], "context"),
        node("MatMul", ["context", "w_out"], "y"),
    ]
    weights = {"table": normal(20, 8), "w_q": normal(8, 8) / 8, "w_k": normal(8, 8).T.copy() / 8, "w_out": normal(8, 4)}
    weights |= {"one": np.float32(1), "far": np.float32(-1e4), "axis": np.int64([1])}
    inputs = {"input_ids": ("N", "T"), "mask": ("N", "T"), "features": ("N", "T", 8)}
    proto = model(nodes, inputs, {"y": ("N", "T", 4)}, weights, kinds=kinds)
    draws = np.random.default_rng(0)
    mask = np.int64(draws.random((6, 5)) < 0.7)
    mask[:, 0] = 1
    samples = {"input_ids": draws.integers(0, 20, (6, 5)), "mask": mask, "features": normal(6, 5, 8)}
    return Case(proto, samples, int8=3)


def small_resnet() -> Case:
    """ResNet-18 with few channels: a stem, four stages of one block, and a classifier."""
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}

    def conv_norm(tensor: str, name: str, out: int, inner: int, kernel: int, stride: int) -> str:
        weights[f"{name}_w"] = normal(out, inner, kernel, kernel) * np.float32(np.sqrt(2 / (inner * kernel * kernel)))
        for part, values in (("g", 1 + 0.2 * normal(out)), ("b", 0.1 * normal(out)), ("m", 0.1 * normal(out))):
            weights[f"{name}_{part}"] = values.astype(np.float32)
        weights[f"{name}_v"] = np.float32(1) + np.abs(normal(out))
        nodes.append(node("Conv", [tensor, f"{name}_w"], f"{name}_c", pads=[kernel // 2] * 4, strides=[stride] * 2))
        nodes.append(node("BatchNormalization", [f"{name}_{part}" for part in "cgbmv"], name))
        return name

    def relu(tensor: str) -> str:
        nodes.append(node("Relu", [tensor], f"{tensor}_r"))
        return f"{tensor}_r"

    nodes_in = relu(conv_norm("x", "stem", 8, 3, 7, 2))
    nodes.append(node("MaxPool", [nodes_in], "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]))
    tensor, channels = "p", 8
    for stage, out in enumerate((8, 16, 24, 32)):
        stride = 1 if out == channels else 2
        first = relu(conv_norm(tensor, f"s{stage}a", out, channels, 3, stride))
        second = conv_norm(first, f"s{stage}b", out, out, 3, 1)
        shortcut = tensor if out == channels else conv_norm(tensor, f"s{stage}d", out, channels, 1, stride)
        nodes.append(node("Add", [second, shortcut], f"s{stage}"))
        tensor, channels = relu(f"s{stage}"), out
    nodes += [node("GlobalAveragePool", [tensor], "g"), node("Flatten", ["g"], "f"), node("Gemm", ["f", "w", "b"], "y")]
    weights |= {"w": normal(32, 10) / 4, "b": normal(10)}
    proto = model(nodes, {"x": ("N", 3, 32, 32)}, {"y": ("N", 10)}, weights)
    return Case(proto, {"x": normal(8, 3, 32, 32)}, int8=13, within=0.05)


def _exact(array: np.ndarray) -> np.ndarray:
    return np.asarray(array).astype(np.float16).astype(np.float32)
