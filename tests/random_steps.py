"""Steps that random graphs are made of, the layers: an operator, or the few that exporters write for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """A float tensor; the shape leaves out the batch: (C, H, W) an image, (T, C) a sequence, (C,) a vector."""

    name: str
    shape: Shape


def exact(values: np.ndarray) -> np.ndarray:
    """Return values as float32 that FP16 can hold."""
    return values.astype(np.float16).astype(np.float32)


@dataclass
class Making:
    """A graph while it is made.

    Attributes:
        random: makes every choice.
        opset: of the graph.
        tensors: that may be read, the inputs first.
        pattern: of the names of tensors.
        nodes: in order.
        weights: float initializers.
        others: initializers whose type is not the model's.
    """

    random: Random
    opset: int
    tensors: list[Tensor]
    pattern: str = "t{}"
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    others: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, op: str, inputs: list[str], shape: Shape, **attributes: Any) -> Tensor:
        """Add a node with one output of a shape."""
        return self.split(op, inputs, [shape], **attributes)[0]

    def split(self, op: str, inputs: list[str], shapes: list[Shape], **attributes: Any) -> list[Tensor]:
        """Add a node with several outputs."""
        first = len(self.tensors)
        made = [Tensor(self.pattern.format(first + i), shape) for i, shape in enumerate(shapes)]
        self.nodes.append(helper.make_node(op, inputs, [t.name for t in made], **attributes))
        self.tensors.extend(made)
        return made

    def whole(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """Add a node that makes integers, and return its output."""
        name = f"i{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def weight(self, shape: Shape, axis: int, fan_in: int) -> str:
        """Return a weight whose channels differ in size by up to 100, some of them zero; one of before now and then."""
        equal = [name for name, array in self.weights.items() if array.shape == shape and name.startswith("w")]
        if equal and self.random.random() < 0.4:
            return self.random.choice(equal)
        draws = np.random.default_rng(self.random.randint(0, 2**31))
        channels = 10 ** draws.uniform(-2, 0.2, shape[axis]) * (draws.random(shape[axis]) > 0.1)
        sizes = channels.reshape([-1 if i == axis else 1 for i in range(len(shape))]) / np.sqrt(fan_in)
        return self.constant("w", draws.normal(size=shape) * sizes)

    def vector(self, size: int, low: float = -1, high: float = 1) -> str:
        """Return a bias or the like, which may be another's too."""
        equal = [name for name, array in self.weights.items() if array.shape == (size,) and low < array.min()]
        if equal and low < 0 and self.random.random() < 0.2:
            return self.random.choice(equal)
        draws = np.random.default_rng(self.random.randint(0, 2**31))
        return self.constant("v", draws.uniform(low, high, size))

    def constant(self, prefix: str, values: Any) -> str:
        """Return an initializer of the model's float type."""
        name = f"{prefix}{len(self.weights)}"
        self.weights[name] = exact(np.asarray(values))
        return name

    def other(self, values: Any, kind: type = np.int64) -> str:
        """Return an initializer of a type of its own."""
        name = f"k{len(self.others)}"
        self.others[name] = np.asarray(values, kind)
        return name

    def axes(self, op: str, x: Tensor, axes: list[int], shape: Shape, since: int, **attributes: Any) -> Tensor:
        """Add a node whose axes are an attribute before an opset, and an input from it on."""
        if self.opset < since:
            return self.add(op, [x.name], shape, axes=axes, **attributes)
        return self.add(op, [x.name, self.other(axes)], shape, **attributes)


def width(make: Making) -> int:
    """Return a number of output channels, now and then so many that the weight is over 1 KiB, which takes other paths."""
    return 72 if make.random.random() < 0.1 else make.random.randint(1, 8)


Step = Callable[[Making, Tensor], Tensor]


def conv(make: Making, x: Tensor) -> Tensor:
    c, h, w = x.shape
    groups = make.random.choice([g for g in (1, 1, c, 2) if c % g == 0])
    out = groups * (width(make) if groups == 1 else make.random.randint(1, 2))
    kernel, dilation = make.random.choice(
        [(k, d) for k, d in ((1, 1), (3, 1), (2, 1), (3, 2)) if d * (k - 1) < min(h, w)]
    )
    span = dilation * (kernel - 1) + 1
    before, after, stride = (
        make.random.choice((0, span // 2)),
        make.random.choice((0, span // 2)),
        make.random.choice((1, 1, 2)),
    )
    sizes = [(size + before + after - span) // stride + 1 for size in (h, w)]
    attributes: dict[str, Any] = {"pads": [before, before, after, after]}
    if dilation == 1 and make.random.random() < 0.15:
        sizes, attributes = [-(-size // stride) for size in (h, w)], {"auto_pad": "SAME_UPPER"}
    weight = make.weight((out, c // groups, kernel, kernel), 0, c // groups * kernel * kernel)
    bias = [make.vector(out)] if make.random.random() < 0.5 else []
    attributes |= {"strides": [stride] * 2, "group": groups, "dilations": [dilation] * 2}
    made = make.add("Conv", [x.name, weight, *bias], (out, *sizes), **attributes)
    if not bias and make.random.random() < 0.4:
        draws = np.random.default_rng(make.random.randint(0, 2**31))
        made = make.add("Add", [made.name, make.constant("b", draws.normal(size=(1, out, 1, 1)))], made.shape)
    return batch_norm(make, made) if make.random.random() < 0.3 else made


def conv_transpose(make: Making, x: Tensor) -> Tensor:
    c, h, w = x.shape
    groups = make.random.choice([g for g in (1, 2) if c % g == 0])
    part, kernel, stride = make.random.randint(1, 3), make.random.choice((2, 3)), make.random.choice((1, 2))
    weight = make.weight((c, part, kernel, kernel), 1, c // groups * kernel)
    bias = [make.vector(part * groups)] if make.random.random() < 0.5 else []
    sizes = [(size - 1) * stride + kernel for size in (h, w)]
    attributes = {"strides": [stride] * 2, "group": groups}
    made = make.add("ConvTranspose", [x.name, weight, *bias], (part * groups, *sizes), **attributes)
    return batch_norm(make, made) if make.random.random() < 0.3 else made


def batch_norm(make: Making, x: Tensor) -> Tensor:
    """Gamma is negative or zero in places."""
    c = x.shape[0]
    draws = np.random.default_rng(make.random.randint(0, 2**31))
    gamma = make.constant("g", draws.normal(size=c) * (draws.random(c) > 0.15))
    parts = [gamma, make.vector(c), make.vector(c), make.vector(c, 0.25, 2)]
    return make.add("BatchNormalization", [x.name, *parts], x.shape, epsilon=2.0**-10)


def conv_1d(make: Making, x: Tensor) -> Tensor:
    t, c = x.shape
    kernel, out = make.random.choice((1, 3)), make.random.randint(1, 6)
    turned = make.add("Transpose", [x.name], (c, t), perm=[0, 2, 1])
    weight = make.weight((out, c, kernel), 0, c * kernel)
    made = make.add("Conv", [turned.name, weight], (out, t), pads=[kernel // 2] * 2)
    return make.add("Transpose", [made.name], (t, out), perm=[0, 2, 1])


def matmul(make: Making, x: Tensor) -> Tensor:
    """With a constant on the right, and an addition now and then; on the left; or one for each step of a sequence."""
    inner = x.shape[-1]
    out = make.random.choice((width(make), inner))
    kind = make.random.choice(("right", "right", "left", "batched")) if len(x.shape) == 2 else "right"
    if kind == "left":
        weight = make.weight((out, x.shape[0]), 0, x.shape[0])
        return make.add("MatMul", [weight, x.name], (out, inner))
    shape = (1, inner, out) if kind == "batched" else (inner, out)
    made = make.add("MatMul", [x.name, make.weight(shape, len(shape) - 1, inner)], (*x.shape[:-1], out))
    if make.random.random() < 0.5:
        pair = [made.name, make.vector(out)]
        make.random.shuffle(pair)
        made = make.add("Add", pair, made.shape)
    return made


def gemm(make: Making, x: Tensor) -> Tensor:
    inner, transposed = x.shape[0], make.random.choice((0, 1))
    tables = [name for name, array in make.weights.items() if name.startswith("table") and array.shape[1] == inner]
    if tables and make.random.random() < 0.6:  # tied to the embedding
        return make.add("Gemm", [x.name, tables[0]], make.weights[tables[0]].shape[:1], transB=1)
    out = make.random.choice((width(make), inner))
    weight = make.weight((out, inner) if transposed else (inner, out), 1 - transposed, inner)
    bias = [make.constant("b", 0.5) if make.random.random() < 0.2 else make.vector(out)]
    attributes = {"alpha": 0.5, "beta": 2.0} if make.random.random() < 0.3 else {}
    return make.add("Gemm", [x.name, weight, *bias], (out,), transB=transposed, **attributes)


def attention(make: Making, x: Tensor) -> Tensor:
    """Two products of activations, with a Softmax between or without."""
    t, c = x.shape
    turned = make.add("Transpose", [x.name], (c, t), perm=[0, 2, 1])
    scores = make.add("MatMul", [x.name, turned.name], (t, t))
    if make.random.random() < 0.7:
        scaled = make.add("Mul", [scores.name, make.constant("s", 0.25)], scores.shape)
        scores = make.add("Softmax", [scaled.name], scores.shape, axis=-1)
    return make.add("MatMul", [scores.name, x.name], (t, c))


def block(make: Making, x: Tensor) -> Tensor:
    """A residual block: x + f(x), f ending in a Conv or a MatMul."""
    if len(x.shape) == 3:
        weight = make.weight((x.shape[0], x.shape[0], 1, 1), 0, x.shape[0])
        made = make.add("Conv", [x.name, weight], x.shape)
    else:
        made = make.add("MatMul", [x.name, make.weight((x.shape[-1],) * 2, 1, x.shape[-1])], x.shape)
    if make.random.random() < 0.5:
        made = make.add("Relu", [made.name], x.shape)
    pair = [x.name, made.name]
    make.random.shuffle(pair)
    return make.add("Add", pair, x.shape)
