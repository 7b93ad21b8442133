"""Networks with random weights, quantized with and without a placement rule; README.md beside this file says what for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from calib import observe, pipeline, qdq
from calib.calibrators import Max
from calib.data import sets
from calib.graph import layers, normalize
from calib.plan import Plan
from calib.qdq import Form
from calib.runtime import ort
from calib.scales import Origin

FORM = Form(rest="fp32", weights="qdq")
DRAWS = np.random.default_rng(0)


class Net:
    """Nodes and weights, added one by one; every method returns the name of what it makes."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def add(self, operator: str, name: str, inputs: list[str], **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def weight(self, name: str, *shape: int) -> str:
        self.weights[name] = (DRAWS.normal(0, 1, shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        return name

    def conv(self, name: str, x: str, inside: int, out: int, size: int, **attributes: object) -> str:
        inputs = [x, self.weight(f"{name}.w", out, inside, size, size), self.weight(f"{name}.b", out)]
        return self.add("Conv", name, inputs, **{"pads": [size // 2] * 4, **attributes})

    def relu(self, x: str) -> str:
        return self.add("Relu", f"{x}.relu", [x])

    def model(self, shape: tuple[int, ...], last: str) -> ir.Model:
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", *shape[1:]))],
            [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        return normalize.normalize(ir.from_proto(proto)).model


def resnet(net: Net) -> str:
    x = net.relu(net.conv("stem", "x", 3, 64, 7, strides=[2, 2]))
    x = net.add("MaxPool", "pool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inside = 64
    for stage, out in enumerate((64, 128, 256)):
        for block in range(2):
            name, stride = f"stage{stage}.block{block}", 2 if stage and not block else 1
            y = net.relu(net.conv(f"{name}.1", x, inside, out, 3, strides=[stride] * 2))
            y = net.conv(f"{name}.2", y, out, out, 3)
            if stride > 1:
                x = net.conv(f"{name}.down", x, inside, out, 1, strides=[stride] * 2)
            x, inside = net.relu(net.add("Add", f"{name}.add", [y, x])), out
    x = net.add("Flatten", "flat", [net.add("GlobalAveragePool", "mean", [x])])
    return net.add("Gemm", "head", [x, net.weight("head.w", 100, inside)], transB=1)


def dense(net: Net) -> str:
    parts = [net.relu(net.conv("conv0", "x", 3, 64, 3, strides=[2, 2]))]
    for i in range(1, 6):
        x = net.add("Concat", f"join{i}", parts, axis=1) if len(parts) > 1 else parts[0]
        parts.append(net.relu(net.conv(f"conv{i}", x, 64 * len(parts), 64, 3)))
    return net.conv("last", net.add("Concat", "join", parts, axis=1), 64 * len(parts), 64, 1)


def convnext(net: Net) -> str:
    x = net.conv("stem", "x", 3, 96, 4, strides=[4, 4], pads=[0] * 4)
    net.weights |= {"one": np.ones(96, np.float32)}
    for i in range(4):
        y = net.add("Transpose", f"{i}.to", [net.conv(f"{i}.depth", x, 1, 96, 7, group=96)], perm=[0, 2, 3, 1])
        y = net.add("LayerNormalization", f"{i}.norm", [y, "one"], axis=-1)
        y = net.relu(net.add("MatMul", f"{i}.up", [y, net.weight(f"{i}.up.w", 96, 384)]))
        y = net.add("MatMul", f"{i}.down", [y, net.weight(f"{i}.down.w", 384, 96)])
        x = net.add("Add", f"{i}.add", [net.add("Transpose", f"{i}.back", [y], perm=[0, 3, 1, 2]), x])
    return net.add("GlobalAveragePool", "mean", [x])


def deconv(net: Net) -> str:
    x = net.relu(net.conv("first", "x", 3, 64, 3))
    net.weight("deconv.w", 64, 64, 2, 2)
    net.weights["deconv.w"] *= np.exp(DRAWS.normal(0, 1, (64, 64, 1, 1))).astype(np.float32)
    x = net.relu(net.add("ConvTranspose", "deconv", [x, "deconv.w"], strides=[2, 2]))
    return net.conv("last", x, 64, 64, 3)


# name -> network, shape of its input, rule in question
NETS: dict[str, tuple[Callable[[Net], str], tuple[int, ...], int]] = {
    "resnet": (resnet, (2, 3, 224, 224), 5),
    "dense": (dense, (2, 3, 128, 128), 7),
    "convnext": (convnext, (2, 3, 128, 128), 9),
    "deconv": (deconv, (1, 3, 32, 32), 0),
}


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    feeds = {}
    for name, (make, shape, rule) in NETS.items():
        net, x = Net(), DRAWS.normal(0, 1, shape).astype(np.float32)
        last = make(net)
        feeds[name] = x
        for variant, model in variants(net.model(shape, last), x, rule, out):
            ir.save(model, out / f"{name}-{variant}.onnx")
            if name == "deconv":
                with ort.in_memory(model) as runner:
                    np.save(out / f"{name}-{variant}.npy", runner.run({"x": x})[last])
    np.savez(out / "feeds.npz", **feeds)


def variants(model: ir.Model, x: np.ndarray, rule: int, out: Path) -> Iterator[tuple[str, ir.Model]]:
    np.savez(out / "sample.npz", x=x)
    samples = sets.read(out / "sample.npz")
    seen = observe.observe(model, samples, qdq.quantizable(model), batch_size=1)

    def quantized(plan: Plan) -> ir.Model:
        return qdq.quantize(model, plan, pipeline.scales_from(model, plan, seen, Max(), Origin("max")), FORM).model

    yield "float", model
    yield "all-rules", quantized(Plan())
    if rule:
        module = import_module("calib.qdq.quantize")
        kept = module._agreeing
        without = mock.patch.object(
            module, "_agreeing", lambda *given: (read for read in kept(*given) if read.rule != rule)
        )
        with without:
            yield f"without-{rule}", quantized(Plan())
        return
    usual = layers._channel_axis
    for label, axis in (("per-tensor", None), ("axis-0", 0), ("axis-1", 1)):

        def chosen(node: ir.Node, index: int, value: ir.Value, axis: int | None = axis) -> int | None:
            return axis if node.op_type == "ConvTranspose" else usual(node, index, value)

        with mock.patch.object(layers, "_channel_axis", chosen):
            yield label, quantized(Plan(layers={"deconv": "int8"}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
