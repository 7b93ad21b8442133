"""Small models with Q/DQ, each of which breaks one rule of `calib.graph.lint`, and what TensorRT-RTX 1.7 does with them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F, H = np.float32, np.float16
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
DRAWS = np.random.default_rng(0)
node = helper.make_node


def codes(*shape: int) -> np.ndarray:
    return DRAWS.integers(-127, 128, shape).astype(np.int8)


def factors(count: int) -> np.ndarray:
    return DRAWS.uniform(0.005, 0.02, count).astype(F)


def pair(tensor: str, out: str, scale: str = "s", zero: str = "z") -> list[onnx.NodeProto]:
    return [
        node("QuantizeLinear", [tensor, scale, zero], [f"{out}_codes"], f"Q_{out}"),
        node("DequantizeLinear", [f"{out}_codes", scale, zero], [out], f"DQ_{out}"),
    ]


def weight(codes: str, scale: str, out: str, **attributes: int) -> onnx.NodeProto:
    return node("DequantizeLinear", [codes, scale], [out], f"DQ_{out}", **attributes)


def graph(
    nodes: Sequence[onnx.NodeProto], opset: int = 19, x=(FLOAT, (2, 16, 8, 8)), y: int = FLOAT, more=(), **constants
) -> onnx.ModelProto:
    """Return a model of x to y; constants without a value of their own get the usual one."""
    usual = {
        "s": F(0.1),
        "s2": F(0.2),
        "sh": H(0.1),
        "z": np.int8(0),
        "w": codes(16, 16, 3, 3),
        "sw": factors(16),
        "m": codes(64, 32),
        "sm": factors(32),
    }
    read = {name for made in nodes for name in made.input} - {name for made in nodes for name in made.output}
    given = {name: value for name, value in (usual | constants).items() if name in read}
    inputs = [helper.make_tensor_value_info("x", *x), *(helper.make_tensor_value_info(*one) for one in more)]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in given.items()]
    outputs = [helper.make_tensor_value_info("y", y, None)]
    made = helper.make_graph(list(nodes), "g", inputs, outputs, tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


CONV = node("Conv", ["a", "wd"], ["y"], "layer")


def conv(before: Sequence[onnx.NodeProto] = (), *, data=None, kernel=None, last=CONV, **options) -> onnx.ModelProto:
    """Return Q/DQ on x and on a weight, and a Conv."""
    data = pair("x", "a") if data is None else data
    kernel = [weight("w", "sw", "wd", axis=0)] if kernel is None else kernel
    return graph([*before, *data, *kernel, last], **options)


def product(kernel=None, last=None, x=(16, 64), **options) -> onnx.ModelProto:
    """Return Q/DQ on x and on a weight, and a MatMul."""
    kernel = [weight("m", "sm", "md", axis=1)] if kernel is None else kernel
    last = node("MatMul", ["a", "md"], ["y"], "layer") if last is None else last
    return graph([*pair("x", "a"), *kernel, last], x=(FLOAT, x), **options)


def two_convs(between: Sequence[onnx.NodeProto], **options) -> onnx.ModelProto:
    """Return a Conv from x to c, what is between, and a Conv that reads m."""
    first = [*pair("x", "a"), weight("w", "sw", "wd", axis=0), node("Conv", ["a", "wd"], ["c"], "first")]
    last = [weight("w2", "sw", "wd2", axis=0), node("Conv", ["m", "wd2"], ["y"], "last")]
    return graph([*first, *between, *last], w2=codes(16, 16, 1, 1), **options)


REDUCE = node("ReduceMax", ["x"], ["peak"], "peak", keepdims=0)
BIASED = node("Conv", ["a", "wd", "b"], ["y"], "layer")
ADDED = node("Add", ["c", "bd"], ["y"], "bias")
TO_HALF = node("Cast", ["x"], ["xh"], "half", to=HALF)
ONE_SCALE = [weight("w", "s", "wd")]
DECONV = node("ConvTranspose", ["a", "wd"], ["y"], "layer")
NO_ZERO = [node("QuantizeLinear", ["x", "s"], ["q"], "Q"), node("DequantizeLinear", ["q", "s"], ["a"], "DQ")]
DYNAMIC = [weight("w", "computed", "wd", axis=0)]

REFUSED, CRASH, FLOATS, INT8 = "refused", "crash", "float", "int8"


@dataclass(frozen=True)
class Example:
    """Attributes:
    rule: that it breaks, and it alone.
    model: the example.
    outcome: what TensorRT-RTX 1.7 does: REFUSED by parser or builder, CRASH, or built with products in FLOATS or INT8.
    says: what an error of TensorRT-RTX holds.
    yet: why an error that TensorRT-RTX builds is one all the same.
    """

    rule: str
    model: onnx.ModelProto
    outcome: str
    says: str = ""
    yet: str = ""


def one_wrong(value: float, kind=F) -> np.ndarray:
    scales = factors(16).astype(kind)
    scales[2] = value
    return scales


POSITIVE, MISMATCH = "Scale coefficients must all be positive", "The number of scales is not equal"
EXAMPLES = {
    "zero": Example("L01", conv(s=F(0)), REFUSED, POSITIVE),
    "zero of a channel": Example("L01", conv(sw=one_wrong(0)), REFUSED, POSITIVE),
    "negative": Example("L01", conv(s=F(-0.1)), REFUSED, POSITIVE),
    "nan": Example("L01", conv(sw=one_wrong(np.nan)), REFUSED, POSITIVE),
    "infinite": Example("L02", conv(s=F(np.inf)), INT8, yet="values"),
    "subnormal": Example("L02", conv(s=F(1e-40)), INT8, yet="values"),
    "subnormal of a channel": Example("L02", conv(sw=one_wrong(1e-40)), INT8, yet="values"),
    "too few scales": Example("L03", conv(sw=factors(7)), REFUSED, MISMATCH),
    "too few zero-points": Example(
        "L03",
        conv(kernel=[node("DequantizeLinear", ["w", "sw", "z"], ["wd"], "DQ_wd", axis=0)]),
        REFUSED,
        "must have the same volume",
    ),
    "axis that is none": Example("L03", conv(kernel=[weight("w", "sw", "wd", axis=4)]), REFUSED),
    "activation per channel": Example("L04", conv(s=factors(16), z=np.zeros(16, np.int8)), FLOATS),
    "activation with shape [1]": Example("L04", conv(s=np.full(1, 0.1, F)), FLOATS),
    "scale of the data": Example("L05", conv([REDUCE], data=pair("x", "a", "peak"), opset=17), CRASH),
    "scale that is an input": Example("L05", conv(data=pair("x", "a", "peak"), more=[("peak", FLOAT, ())]), CRASH),
    "weight's scale computed": Example(
        "L05",
        conv([node("Mul", ["peak", "sw"], ["computed"], "mul")], kernel=DYNAMIC, more=[("peak", FLOAT, ())]),
        REFUSED,
        "is_constant",
    ),
    "zero-point of data": Example("L06", conv(z=np.int8(3)), REFUSED, "Non-zero zero point is not supported"),
    "zero-point of weight": Example(
        "L06",
        conv(kernel=[node("DequantizeLinear", ["w", "sw", "zw"], ["wd"], "DQ_wd", axis=0)], zw=np.full(16, 3, np.int8)),
        REFUSED,
        "Non-zero zero point is not supported",
    ),
    "uint8 data": Example("L07", conv(z=np.uint8(0)), INT8, yet="values"),
    "uint8 data by default": Example("L07", conv(data=NO_ZERO), INT8, yet="values"),
    "uint8 weight": Example(
        "L07", conv(w=codes(16, 16, 3, 3).view(np.uint8)), REFUSED, "unsupported input type of UINT8"
    ),
    "int16 data": Example("L07", conv(z=np.int16(0), opset=21), REFUSED, "Failed to import initializer"),
    "weight in blocks": Example(
        "L08",
        product([weight("m", "sb", "md", axis=0, block_size=16)], sb=factors(4 * 32).reshape(4, 32), opset=21),
        INT8,
        yet="values",
    ),
    "Conv, input channels": Example("L09", conv(kernel=[weight("w", "sw", "wd", axis=1)]), FLOATS),
    "MatMul, rows": Example("L09", product([weight("m", "sr", "md", axis=0)], sr=factors(64)), FLOATS),
    "Gemm, rows": Example(
        "L09",
        product([weight("m", "sr", "md", axis=0)], node("Gemm", ["a", "md"], ["y"], "layer"), sr=factors(64)),
        FLOATS,
    ),
    "Gemm, transB": Example(
        "L09",
        product(
            [weight("t", "sr", "md", axis=1)],
            node("Gemm", ["a", "md"], ["y"], "layer", transB=1),
            t=codes(32, 64),
            sr=factors(64),
        ),
        FLOATS,
    ),
    "ConvTranspose, axis 0": Example("L09", conv(last=DECONV), FLOATS),
    "ConvTranspose, axis 1": Example("L09", conv(kernel=[weight("w", "sw", "wd", axis=1)], last=DECONV), FLOATS),
    "FP16 scale too small": Example(
        "L10", conv([TO_HALF], data=pair("xh", "a", "sh"), y=HALF, sh=H(1e-6), sw=factors(16).astype(H)), INT8
    ),
    "FP16 data, FP32 weight": Example(
        "L11", conv([TO_HALF], data=pair("xh", "a", "sh"), y=HALF), REFUSED, "must be of same type"
    ),
    "FP16 and FP32 in an Add": Example(
        "L11",
        graph([*pair("x", "a"), TO_HALF, *pair("xh", "b", "sh"), node("Add", ["a", "b"], ["y"], "add")]),
        REFUSED,
        "must have same input types",
    ),
    "FP16 bias": Example("L11", conv(last=BIASED, b=np.zeros(16, H)), REFUSED, "must be of same type"),
    "FP16 scale on FP32": Example(
        "L12", conv(data=pair("x", "a", "sh"), sw=factors(16).astype(H), y=HALF), INT8, yet="onnxruntime"
    ),
    "FP16 scale on FP32, opset 23": Example(
        "L12", conv(data=pair("x", "a", "sh"), sw=factors(16).astype(H), y=HALF, opset=23), INT8, yet="report"
    ),
    "FP32 scale on FP16": Example("L12", conv([TO_HALF], data=pair("xh", "a")), INT8, yet="onnxruntime"),
    "axis in opset 12": Example("L13", conv(opset=12), INT8, yet="onnxruntime"),
    "FP16 scales in opset 17": Example(
        "L13",
        conv([TO_HALF], data=pair("xh", "a", "sh"), y=HALF, sw=factors(16).astype(H), opset=17),
        INT8,
        yet="onnxruntime",
    ),
    "int32 bias": Example(
        "L14", conv([weight("bq", "s", "b")], last=BIASED, bq=np.ones(16, np.int32)), REFUSED, "input has type Int32"
    ),
    "int32 bias added": Example(
        "L14",
        graph(
            [
                *pair("x", "a"),
                weight("w", "sw", "wd", axis=0),
                node("Conv", ["a", "wd"], ["c"], "layer"),
                weight("bq", "s", "bd"),
                ADDED,
            ],
            bq=np.ones((16, 1, 1), np.int32),
        ),
        REFUSED,
        "input has type Int32",
    ),
    "constant of rank 0": Example(
        "L15",
        graph([weight("k", "s", "kd"), node("Mul", ["x", "kd"], ["y"], "mul")], k=np.int8(3)),
        REFUSED,
        "Quantized constant",
    ),
    "number of rank 0": Example(
        "L15",
        graph([REDUCE, *pair("peak", "a"), node("Mul", ["x", "a"], ["y"], "mul")], opset=17),
        FLOATS,
        yet="report",
    ),
    "float weight": Example(
        "L16", conv(kernel=[], last=node("Conv", ["a", "wf"], ["y"], "layer"), wf=np.ones((16, 16, 3, 3), F)), FLOATS
    ),
    "float data": Example("L16", conv(data=[], last=node("Conv", ["x", "wd"], ["y"], "layer")), FLOATS),
    "one float activation": Example(
        "L16",
        graph(
            [*pair("x", "a"), node("MatMul", ["a", "v"], ["y"], "layer")],
            x=(FLOAT, (4, 16, 64)),
            more=[("v", FLOAT, (4, 64, 16))],
        ),
        FLOATS,
    ),
    "activation after DQ": Example("L16", conv(data=[*pair("x", "d"), node("Relu", ["d"], ["a"], "relu")]), FLOATS),
    "operator on codes": Example(
        "L17",
        conv(
            data=[
                node("QuantizeLinear", ["x", "s", "z"], ["q"], "Q"),
                node("Relu", ["q"], ["r"], "relu"),
                node("DequantizeLinear", ["r", "s", "z"], ["a"], "DQ"),
            ]
        ),
        INT8,
    ),
    "codes without Q": Example(
        "L17",
        conv(
            data=[
                node("Cast", ["x"], ["q"], "cast", to=TensorProto.INT8),
                node("DequantizeLinear", ["q", "s", "z"], ["a"], "DQ"),
            ]
        ),
        INT8,
    ),
    "before ReLU": Example(
        "L18", two_convs([*pair("c", "d", "s2"), node("Relu", ["d"], ["r"], "relu"), *pair("r", "m")]), INT8
    ),
    "Concat of two scales": Example(
        "L19",
        two_convs(
            [
                *pair("c", "d"),
                *pair("c", "e", "s2"),
                node("Concat", ["d", "e"], ["k"], "concat", axis=2),
                *pair("k", "m"),
            ]
        ),
        INT8,
    ),
    "no importer": Example("L20", graph([node("Det", ["x"], ["y"], "det")], x=(FLOAT, (3, 3))), REFUSED),
    "integer operator": Example(
        "L20",
        graph(
            [node("MatMulInteger", ["x", "m"], ["i"], "layer"), node("Cast", ["i"], ["y"], "cast", to=FLOAT)],
            x=(TensorProto.INT8, (16, 64)),
        ),
        REFUSED,
    ),
    "unknown type": Example(
        "L21",
        graph([node("Cast", ["x"], ["i"], "cast", to=TensorProto.INT16), node("Cast", ["i"], ["y"], "back", to=FLOAT)]),
        REFUSED,
    ),
    "uint8 inside": Example(
        "L21",
        graph([node("Cast", ["x"], ["i"], "cast", to=TensorProto.UINT8), node("Cast", ["i"], ["y"], "back", to=FLOAT)]),
        REFUSED,
        "does not support UINT8",
    ),
    "float64": Example(
        "L22",
        graph(
            [node("Cast", ["x"], ["i"], "cast", to=TensorProto.DOUBLE), node("Cast", ["i"], ["y"], "back", to=FLOAT)]
        ),
        FLOATS,
    ),
    "codes that are reshaped": Example(
        "L23",
        conv(
            kernel=[node("Reshape", ["flat", "shape"], ["codes"], "reshape"), weight("codes", "sw", "wd", axis=0)],
            flat=codes(16, 144),
            shape=np.array([16, 16, 3, 3]),
        ),
        REFUSED,
        "only allowed before DQ",
    ),
    "table of codes": Example(
        "L23",
        graph([node("Gather", ["m", "x"], ["row"], "gather"), weight("row", "s", "y")], x=(TensorProto.INT64, (3,))),
        REFUSED,
        "only allowed before DQ",
    ),
}
