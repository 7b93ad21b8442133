"""A network like ResNet-18, with residual Adds and random weights, made without a framework."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._draws = np.random.default_rng(0)

    def node(self, operator: str, name: str, inputs: list[str], **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [f"{name}.out"], name, **attributes))
        return f"{name}.out"

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def conv(self, name: str, x: str, channels: tuple[int, int], kernel: int, stride: int = 1) -> str:
        """Add a Conv and its BatchNormalization, as trained networks have them."""
        fan_in, out = channels[0] * kernel**2, channels[1]
        shape = (out, channels[0], kernel, kernel)
        weight = self.weight(f"{name}.weight", self._draws.normal(0, np.sqrt(2 / fan_in), shape))
        attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        x = self.node("Conv", name, [x, weight], **attributes)
        statistics = [
            self.weight(f"{name}.gamma", self._draws.uniform(0.5, 1.5, out)),
            self.weight(f"{name}.beta", self._draws.normal(0, 0.2, out)),
            self.weight(f"{name}.mean", self._draws.normal(0, 0.2, out)),
            self.weight(f"{name}.var", self._draws.uniform(0.5, 1.5, out)),
        ]
        return self.node("BatchNormalization", f"{name}.norm", [x, *statistics])

    def block(self, name: str, x: str, channels: tuple[int, int], stride: int) -> str:
        y = self.conv(f"{name}.conv1", x, channels, 3, stride)
        y = self.node("Relu", f"{name}.relu1", [y])
        y = self.conv(f"{name}.conv2", y, (channels[1], channels[1]), 3)
        same = stride == 1 and channels[0] == channels[1]
        identity = x if same else self.conv(f"{name}.downsample", x, channels, 1, stride)
        return self.node("Relu", f"{name}.relu2", [self.node("Add", f"{name}.add", [y, identity])])

    def dense(self, name: str, x: str, width: int, classes: int) -> str:
        weight = self.weight(f"{name}.weight", self._draws.normal(0, np.sqrt(1 / width), (classes, width)))
        bias = self.weight(f"{name}.bias", self._draws.normal(0, 0.1, classes))
        return self.node("Gemm", name, [x, weight, bias], transB=1)


def write(path: Path) -> None:
    """Write the model: image [N, 3, H, W] to scores [N, 1000]."""
    made = _Builder()
    x = made.node("Relu", "relu", [made.conv("conv1", "image", (3, 64), 7, 2)])
    x = made.node("MaxPool", "pool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    width = 64
    for stage, channels in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            x = made.block(f"layer{stage}.{block}", x, (width, channels), 2 if stage > 1 and block == 0 else 1)
            width = channels
    x = made.node("Flatten", "flatten", [made.node("GlobalAveragePool", "average", [x])])
    made.dense("fc", x, width, 1000)
    made.nodes[-1].output[0] = "scores"
    graph = helper.make_graph(
        made.nodes,
        "resnet",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 1000])],
        made.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
