"""Steps that random graphs are made of, what is no layer: activations, sums, pools and data movement."""

from __future__ import annotations

import numpy as np

from .random_steps import (
    Making,
    Shape,
    Step,
    Tensor,
    attention,
    batch_norm,
    block,
    conv,
    conv_1d,
    conv_transpose,
    gemm,
    matmul,
)


def activation(make: Making, x: Tensor) -> Tensor:
    op, attributes = make.random.choice(
        (
            ("Relu", {}),
            ("LeakyRelu", {"alpha": 0.125}),
            ("Sigmoid", {}),
            ("Tanh", {}),
            ("Neg", {}),
            ("Abs", {}),
            ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}),
            *([("HardSwish", {})] if make.opset >= 14 else []),
        )
    )
    return make.add(op, [x.name], x.shape, **attributes)


def silu(make: Making, x: Tensor) -> Tensor:
    gate = make.add("Sigmoid", [x.name], x.shape)
    return make.add("Mul", [x.name, gate.name], x.shape)


def clip(make: Making, x: Tensor) -> Tensor:
    low, high = make.random.choice(((0, None), (0, 1.5), (None, 1.5), (-1, 60000)))
    low, high = ("" if value is None else make.constant("c", value) for value in (low, high))
    return make.add("Clip", [x.name, low, *([high] if high else [])], x.shape)


def scaled(make: Making, x: Tensor) -> Tensor:
    """Something done with a constant, on either side."""
    op = make.random.choice(("Mul", "Add", "Sub", "Div", "Max", "Min"))
    shape = make.random.choice(((), (1,), (x.shape[-1],), (1,) * (len(x.shape) + 1)))
    draws = np.random.default_rng(make.random.randint(0, 2**31))
    size = make.random.choice((1, 1, 1, 300, 2.0**-8))
    constant = make.constant("c", size * draws.uniform(0.5, 2, shape) * draws.choice((-1, 1), shape))
    pair = [x.name, constant]
    if op != "Div":
        make.random.shuffle(pair)
    return make.add(op, pair, x.shape)


def softmax(make: Making, x: Tensor) -> Tensor:
    return make.add("Softmax", [x.name], x.shape, axis=-1)


def layer_norm(make: Making, x: Tensor) -> Tensor:
    if make.opset < 17:
        return activation(make, x)
    parts = [make.vector(x.shape[-1], 0.5, 2), make.vector(x.shape[-1])]
    return make.add("LayerNormalization", [x.name, *parts], x.shape, axis=-1, epsilon=2.0**-6)


def residual(make: Making, x: Tensor) -> Tensor:
    """The sum with a tensor of the same shape, perhaps itself."""
    other = make.random.choice([t for t in make.tensors if t.shape == x.shape])
    pair = [x.name, other.name]
    make.random.shuffle(pair)
    return make.add("Add", pair, x.shape)


def concat(make: Making, x: Tensor) -> Tensor:
    """Along the channels, with one or two tensors that fit, perhaps itself."""
    axis = _channels(x)
    fitting = [t for t in make.tensors if len(t.shape) == len(x.shape) and _without(t, axis) == _without(x, axis)]
    parts = [x, *(make.random.choice(fitting) for _ in range(make.random.randint(1, 2)))]
    shape = (*x.shape[:axis], sum(t.shape[axis] for t in parts), *x.shape[axis + 1 :])
    if shape[axis] > 24:
        return activation(make, x)
    return make.add("Concat", [t.name for t in parts], shape, axis=axis + 1)


def _channels(x: Tensor) -> int:
    return 0 if len(x.shape) == 3 else len(x.shape) - 1


def _without(tensor: Tensor, axis: int) -> Shape:
    return (*tensor.shape[:axis], *tensor.shape[axis + 1 :])


def pool(make: Making, x: Tensor) -> Tensor:
    c, h, w = x.shape
    if min(h, w) < 2 or make.random.random() < 0.3:
        return make.add(make.random.choice(("GlobalAveragePool", "GlobalMaxPool")), [x.name], (c, 1, 1))
    op, stride = make.random.choice(("MaxPool", "AveragePool")), make.random.choice((1, 2))
    pad = make.random.choice((0, 1))
    sizes = [(size + 2 * pad - 2) // stride + 1 for size in (h, w)]
    attributes = {"count_include_pad": 1} if op == "AveragePool" and make.random.random() < 0.5 else {}
    attributes |= {"kernel_shape": [2, 2], "strides": [stride] * 2, "pads": [pad] * 4}
    return make.add(op, [x.name], (c, *sizes), **attributes)


def resize(make: Making, x: Tensor) -> Tensor:
    c, h, w = x.shape
    if h * w > 100:
        return pool(make, x)
    roi = make.other([], np.float32) if make.opset < 13 else ""
    scales = make.other([1, 1, 2, 2], np.float32)
    mode = make.random.choice(("nearest", "linear"))
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return make.add("Resize", [x.name, roi, scales], (c, 2 * h, 2 * w), **attributes)


def pad(make: Making, x: Tensor) -> Tensor:
    c, h, w = x.shape
    value = make.random.choice(([], [""], ["p"]))
    value = [make.constant("p", 0.5)] if value == ["p"] else value
    return make.add("Pad", [x.name, make.other([0, 0, 1, 0, 0, 0, 0, 1]), *value], (c, h + 1, w + 1))


def depth_to_space(make: Making, x: Tensor) -> Tensor:
    c, h, w = x.shape
    if c % 4 or h * w > 50:
        return pool(make, x)
    return make.add("DepthToSpace", [x.name], (c // 4, 2 * h, 2 * w), blocksize=2)


def halves(make: Making, x: Tensor) -> Tensor:
    """The two parts of a Split or two Slices; they come together again in a product now and then."""
    axis = _channels(x)
    total = x.shape[axis]
    if total < 2:
        return activation(make, x)
    sizes = [total // 2, total - total // 2]
    shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]
    if make.random.random() < 0.5:
        if make.opset < 13:
            made = make.split("Split", [x.name], shapes, axis=axis + 1, split=sizes)
        else:
            made = make.split("Split", [x.name, make.other(sizes)], shapes, axis=axis + 1)
    else:
        ends = [(0, sizes[0]), (sizes[0], total)]
        constants = [[make.other([value]) for value in (low, high, axis + 1)] for low, high in ends]
        made = [make.add("Slice", [x.name, *c], shape) for c, shape in zip(constants, shapes, strict=True)]
    if sizes[0] == sizes[1] and make.random.random() < 0.6:
        return make.add("Mul", [t.name for t in made], shapes[0])
    return made[-1]


def gather(make: Making, x: Tensor) -> Tensor:
    """Every second channel, and the first again."""
    axis = _channels(x)
    chosen = [*range(0, x.shape[axis], 2), 0]
    shape = (*x.shape[:axis], len(chosen), *x.shape[axis + 1 :])
    return make.add("Gather", [x.name, make.other(chosen)], shape, axis=axis + 1)


def flatten(make: Making, x: Tensor) -> Tensor:
    size = int(np.prod(x.shape))
    if size > 200:
        return make.axes("ReduceMean", x, [2, 3], (x.shape[0],), 18, keepdims=0) if len(x.shape) == 3 else mean(make, x)
    if make.random.random() < 0.5:
        return make.add("Flatten", [x.name], (size,), axis=1)
    # As exporters write it: the batch is read from the shape.
    first = make.other(0)
    batch = make.whole("Gather", [make.whole("Shape", [x.name]), first], axis=0)
    axes, attributes = ([], {"axes": [0]}) if make.opset < 13 else ([make.other([0])], {})
    batch = make.whole("Unsqueeze", [batch, *axes], **attributes)
    shape = make.whole("Concat", [batch, make.other([size])], axis=0)
    return make.add("Reshape", [x.name, shape], (size,))


def mean(make: Making, x: Tensor) -> Tensor:
    return make.axes("ReduceMean", x, [1], x.shape[1:], 18, keepdims=0)


def to_sequence(make: Making, x: Tensor) -> Tensor:
    c, h, w = x.shape
    flat = make.add("Reshape", [x.name, make.other([0, c, -1])], (c, h * w))
    return make.add("Transpose", [flat.name], (h * w, c), perm=[0, 2, 1])


def to_image(make: Making, x: Tensor) -> Tensor:
    """A sequence as an image of one row."""
    turned = make.add("Transpose", [x.name], x.shape[::-1], perm=[0, 2, 1])
    return make.axes("Unsqueeze", turned, [2], (x.shape[1], 1, x.shape[0]), 13)


def fold(make: Making, x: Tensor) -> Tensor:
    """A vector as a sequence."""
    size = next((s for s in (4, 3, 2) if x.shape[0] % s == 0), 1)
    return make.add("Reshape", [x.name, make.other([-1, size, x.shape[0] // size])], (size, x.shape[0] // size))


_ANY: tuple[Step, ...] = (activation, activation, silu, clip, scaled, residual, block, block, concat, halves, gather)
_IMAGE: tuple[Step, ...] = (batch_norm, pool, pool, resize, pad, depth_to_space, flatten, to_sequence)
_SEQUENCE: tuple[Step, ...] = (attention, softmax, layer_norm, flatten, mean, to_image)
_STEPS: dict[int, tuple[Step, ...]] = {
    3: (conv, conv, conv, conv, conv_transpose, *_IMAGE, *_ANY),
    2: (matmul, matmul, matmul, conv_1d, *_SEQUENCE, *_ANY),
    1: (gemm, gemm, gemm, matmul, fold, softmax, *_ANY),
}


def steps_for(tensor: Tensor) -> tuple[Step, ...]:
    """Return the steps that a tensor can take, the usual ones more than once."""
    return _STEPS[len(tensor.shape)]


def first_step(tensor: Tensor) -> Step:
    """Return the first step from a graph input: a layer, so that there is one."""
    return _STEPS[len(tensor.shape)][0]
