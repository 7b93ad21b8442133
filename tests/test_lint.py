"""Lint: every rule has an example, and what TensorRT-RTX does with it is held by building it."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

from calib.graph import lint as lint_module
from calib.graph.lint import lint

from . import broken_qdq, rtx
from .broken_qdq import (
    CRASH,
    EXAMPLES,
    HALF,
    INT8,
    REFUSED,
    TO_HALF,
    Example,
    codes,
    conv,
    factors,
    graph,
    node,
    pair,
    product,
    two_convs,
    weight,
)
from .conftest import make_model

CONV_INSIDE = node("Conv", ["a", "wd"], ["inner"], "layer")
DRAWS = np.random.default_rng(2)
RULES = re.findall(r"^    (L\d\d)  ", lint_module.__doc__, re.MULTILINE)
ALL = pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))

SOUND = {
    "Conv": conv(),
    "Conv, weight per tensor": conv(kernel=[weight("w", "s", "wd")]),
    "Conv, opset 13": conv(opset=13),
    "Conv, opset 23": conv(opset=23),
    "Conv, axis from the end": conv(kernel=[weight("w", "sw", "wd", axis=-4)]),
    "Conv in FP16": conv([TO_HALF], data=pair("xh", "a", "sh"), sw=factors(16).astype(np.float16), y=HALF),
    "Conv, cast after DQ": conv(
        data=[*pair("x", "d"), node("Cast", ["d"], ["a"], "cast", to=HALF)],
        kernel=[weight("w", "sw", "k", axis=0), node("Cast", ["k"], ["wd"], "cast_w", to=HALF)],
        y=HALF,
    ),
    "Conv, float weight with Q and DQ": conv(
        kernel=[
            node("QuantizeLinear", ["wf", "sw", "zw"], ["wq"], "Q_w", axis=0),
            node("DequantizeLinear", ["wq", "sw", "zw"], ["wd"], "DQ_w", axis=0),
        ],
        wf=np.ones((16, 16, 3, 3), np.float32),
        zw=np.zeros(16, np.int8),
    ),
    "Conv, data moved": conv(
        data=[
            *pair("x", "d"),
            node("MaxPool", ["d"], ["p"], "pool", kernel_shape=[2, 2]),
            node("Concat", ["p", "p"], ["a"], "concat", axis=2),
        ]
    ),
    "Conv, scale in a Constant": conv([node("Constant", [], ["s"], "constant", value_float=0.1)]),
    "Conv, scale computed from constants": conv([node("Mul", ["s2", "s2"], ["s"], "mul")]),
    "Conv, weight's scale behind Identity": conv(
        [node("Identity", ["given"], ["sw"], "same")], given=np.full(16, 0.1, np.float32)
    ),
    "MatMul": product(),
    "MatMul, transposed weight": product(
        [weight("t", "sm", "k", axis=0), node("Transpose", ["k"], ["md"], "transpose")], t=codes(32, 64)
    ),
    "MatMul of two activations": graph(
        [*pair("x", "a"), *pair("v", "b"), node("MatMul", ["a", "b"], ["y"], "layer")],
        x=(TensorProto.FLOAT, (4, 16, 64)),
        more=[("v", TensorProto.FLOAT, (4, 64, 16))],
    ),
    "Gemm": product(last=node("Gemm", ["a", "md"], ["y"], "layer")),
    "Gemm, transB": product(
        [weight("t", "sm", "md", axis=0)], node("Gemm", ["a", "md"], ["y"], "layer", transB=1), t=codes(32, 64)
    ),
    "after ReLU": two_convs([node("Relu", ["c"], ["r"], "relu"), *pair("r", "m")]),
}


def found(model: onnx.ModelProto) -> list[lint_module.Finding]:
    return list(lint(ir.from_proto(model)))


def test_every_rule_has_an_example() -> None:
    assert sorted({example.rule for example in EXAMPLES.values()}) == RULES


@ALL
def test_an_example_breaks_its_rule_and_no_other(example: Example) -> None:
    findings = found(example.model)
    assert {finding.rule for finding in findings} == {example.rule}, findings
    for finding in findings:
        assert re.match(r"(node|tensor) '\w+'", finding.where)
        assert finding.message
        assert finding.fix


@ALL
def test_an_error_is_what_tensorrt_refuses_or_what_is_wrong_all_the_same(example: Example) -> None:
    fails = example.outcome in (REFUSED, CRASH)
    assert found(example.model)[0].severity == ("error" if fails or example.yet else "warning")
    assert not (fails and example.yet)


@ALL
def test_tensorrt_rtx_does_what_the_table_says(example: Example, tmp_path: Path) -> None:
    if example.outcome == CRASH:
        onnx.save(example.model, tmp_path / "m.onnx")
        command = [sys.executable, rtx.__file__, tmp_path / "m.onnx"]
        assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == -signal.SIGSEGV
        return
    built = rtx.build(example.model)
    assert bool(built.error) == (example.outcome == REFUSED), built.error
    assert example.says in built.error
    assert built.error or built.int8 == (example.outcome == INT8), built.layers


@pytest.mark.parametrize("model", SOUND.values(), ids=list(SOUND))
def test_sound_models_have_no_finding_and_run_in_int8(model: onnx.ModelProto) -> None:
    assert found(model) == []
    built = rtx.build(model)
    assert not built.error
    assert built.int8, built.layers


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.yet == "onnxruntime"])
def test_onnx_runtime_refuses_what_is_no_valid_onnx(name: str) -> None:
    with pytest.raises(Exception, match=r"INVALID_GRAPH|INVALID_ARGUMENT|NOT_IMPLEMENTED|FAIL"):
        run(EXAMPLES[name].model, np.zeros((2, 16, 8, 8), np.float32))


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": x})
    return np.asarray(y)


def test_an_infinite_scale_gives_no_numbers() -> None:
    y = run(EXAMPLES["infinite"].model, np.ones((2, 16, 8, 8), np.float32))
    assert not np.isfinite(y).any()


def test_the_reciprocal_of_a_subnormal_scale_overflows() -> None:
    """TensorRT multiplies by it: the kernel is Mul, Min, Max, Round, Cast."""
    built = rtx.build(EXAMPLES["subnormal"].model)
    assert built.layers[0][0].startswith("__myl_MulMinMaxRounCast")
    with np.errstate(over="ignore"):
        assert np.isinf(np.float32(1) / np.float32(1e-40))


def test_uint8_has_other_values_than_the_int8_that_tensorrt_takes_it_for() -> None:
    x = DRAWS.normal(size=(2, 16, 8, 8)).astype(np.float32)
    as_int8, *as_uint8 = (run(m, x) for m in (same_weights(np.int8(0)), same_weights(np.uint8(0)), same_weights(None)))
    for y in as_uint8:
        assert np.abs(y - as_int8).max() > 0.5 * np.abs(as_int8).max(), "negative values are lost"


def same_weights(zero: np.generic | None) -> onnx.ModelProto:
    w, sw = np.ones((16, 16, 3, 3), np.int8), np.full(16, 0.01, np.float32)
    return conv(data=broken_qdq.NO_ZERO, w=w, sw=sw) if zero is None else conv(z=zero, w=w, sw=sw)


def test_scales_of_blocks_are_taken_for_scales_of_columns() -> None:
    """4 x 32 scales are one for each of the 32 columns in 4 blocks; the built kernel has a row of 128 for 32 columns."""
    built = rtx.build(EXAMPLES["weight in blocks"].model)
    multiply = built.layers[-1][2]
    assert "Dimensions: [1,128]" in multiply
    assert "Name: y, Dimensions: [16,32]" in multiply


def test_findings_of_subgraphs_and_their_place_in_an_error_message() -> None:
    inner = onnx.helper.make_graph(
        [*pair("x", "a"), weight("w", "zero", "wd"), CONV_INSIDE],
        "then",
        [],
        [onnx.helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)],
    )
    outer = onnx.helper.make_node("If", ["c"], ["y"], "choice", then_branch=inner, else_branch=inner)
    given = {"s": np.float32(0.1), "z": np.int8(0), "w": codes(16, 16, 3, 3), "zero": np.float32(0)}
    model = graph([outer], more=[("c", TensorProto.BOOL, ())])
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in given.items())
    first = found(model)[0]
    assert str(first) == (
        "L01 node 'DQ_wd': its scale is not positive (0); calibrate again; a channel of zeros may have any positive scale"
    )


def test_a_node_without_a_name_is_found_by_what_it_makes() -> None:
    model = conv(z=np.int8(1))
    model.graph.node[0].name = ""
    assert [finding.where for finding in found(model)] == ["node that makes 'a_codes'", "node 'DQ_a'"]


class Ones(CalibrationDataReader):
    """One sample for ONNX Runtime's calibration."""

    def __init__(self) -> None:
        self.left = [{"x": np.linspace(-1, 2, 2 * 16 * 8 * 8, dtype=np.float32).reshape(2, 16, 8, 8)}]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


@pytest.mark.parametrize(("symmetric", "rules"), [(False, {"L06", "L14"}), (True, {"L14"})])
def test_what_onnx_runtime_writes_is_refused_and_lint_says_why(
    symmetric: bool, rules: set[str], tmp_path: Path
) -> None:
    """ORT#14229, onnx-tensorrt#850: its default has zero-points and INT32 biases."""
    weights = {"w": np.linspace(-1, 1, 16 * 16, dtype=np.float32).reshape(16, 16, 1, 1), "b": np.ones(16, np.float32)}
    made = node("Conv", ["x", "w", "b"], ["y"], "layer")
    source = make_model(tmp_path / "m.onnx", [made], {"x": [2, 16, 8, 8]}, [2, 16, 8, 8], weights)
    options = {"ActivationSymmetric": symmetric}
    quantize_static(source, tmp_path / "q.onnx", Ones(), activation_type=QuantType.QInt8, extra_options=options)
    written = onnx.load(tmp_path / "q.onnx")
    assert {finding.rule for finding in found(written)} == rules
    assert "zero point is not supported" in rtx.build(written).error or "Int32" in rtx.build(written).error
