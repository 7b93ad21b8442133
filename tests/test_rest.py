"""The FP16 rest: rules 1 to 8 of calib/qdq/rest.py, each by its number."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from calib import observe, qdq, verify
from calib.errors import DataError
from calib.plan import Plan
from calib.qdq import Form
from calib.qdq.fp16 import round_scale
from calib.qdq.rest import HEADROOM
from calib.ranges import Range, RangeCounter
from calib.scales import Origin, Scales
from tests.models import Memory, node, parse, quantized, run, weight

X = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)
TWO = "g (float[n, 8] x) => (float[n, 8] y) { h = MatMul(x, w1)  r = Relu(h)  y = MatMul(r, w2) }"
W = {"w1": weight(8, 8), "w2": weight(8, 8, seed=1)}


def types(model: ir.Model) -> dict[str, str]:
    """Return the type of each node's first output, of the nodes that have one of float."""
    return {str(n.name): str(n.outputs[0].dtype) for n in model.graph if n.outputs[0].dtype is not None}


def check(result: qdq.Quantized, feeds: dict[str, np.ndarray], model: ir.Model, tmp_path: Path, atol: float) -> None:
    """Valid ONNX, with the same signature and about the same output."""
    ir.save(result.model, tmp_path / "q.onnx")
    onnx.checker.check_model(tmp_path / "q.onnx", full_check=True)
    assert [(v.name, v.dtype, v.shape) for v in (*model.graph.inputs, *model.graph.outputs)] == [
        (v.name, v.dtype, v.shape) for v in (*result.model.graph.inputs, *result.model.graph.outputs)
    ]
    expected, found = run(model, feeds), run(result.model, feeds)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, atol=atol)


def test_the_rest_is_fp16_and_the_signature_is_kept(tmp_path: Path) -> None:
    model = parse(TWO, **W)
    result = quantized(model, {"x": X})
    assert result.kept == {}
    found = types(result.model)
    assert (found["h"], found["r"], found["y"]) == ("FLOAT16", "FLOAT16", "FLOAT16")
    check(result, {"x": X}, model, tmp_path, atol=0.1)


def test_int8_bridges_the_types_without_a_cast() -> None:
    """x is FP32 and is quantized as it is; DequantizeLinear gives FP16. The only cast is the output's."""
    casts = [n for n in quantized(parse(TWO, **W), {"x": X}).model.graph if n.op_type == "Cast"]
    assert [n.outputs[0].name for n in casts] == ["y"]


def test_scales_and_weights_agree_with_the_fp16_scale() -> None:
    """Codes are made with the scale that TensorRT will multiply with, which is not quite the calibrated one."""
    graph = quantized(parse(TWO, **W), {"x": X}).model.graph
    codes, scale = graph.initializers["w1_int8"].const_value.numpy(), graph.initializers["w1_scale_fp16"].const_value
    assert scale.dtype is ir.DataType.FLOAT16
    wanted = np.rint(W["w1"] / scale.numpy().astype(np.float32))
    np.testing.assert_array_equal(codes, np.clip(wanted, -128, 127))


@pytest.mark.parametrize(("rest", "kept"), [("fp16", "fp32"), ("fp32", "fp16")])
def test_rule_1_the_plan_names_a_float_type(rest: str, kept: str, tmp_path: Path) -> None:
    model = parse(TWO, **W)
    result = quantized(model, {"x": X}, Plan(layers={"h": kept}), Form(rest))
    found = types(result.model)
    kinds = {"fp16": "FLOAT16", "fp32": "FLOAT"}
    beside = kinds["fp32"] if kept == "fp32" else kinds[rest]  # rule 7
    assert (found["h"], found["r"], found["y"]) == (kinds[kept], beside, kinds[rest])
    check(result, {"x": X}, model, tmp_path, atol=0.1)


@pytest.mark.parametrize(
    ("factor", "says"),
    [(6e4, "too near to FP16's 65504"), (1e6, "too near"), (1e-7, "can hardly tell from 0"), (1.0, None)],
)
def test_rule_2_values_that_fp16_cannot_hold(factor: float, says: str | None, tmp_path: Path) -> None:
    text = (
        "g (float[n, 8] x) => (float[n, 8] y) { big = Mul(x, up)  b = Relu(big)  s = Mul(b, down)  y = MatMul(s, w) }"
    )
    up, down = np.float32(np.sqrt(factor)), np.float32(1 / factor)
    model = parse(
        text.replace("Mul(x, up)", "Mul(x2, up)").replace("{ ", "{ x2 = Mul(x, up) "), up=up, down=down, w=W["w1"]
    )
    result = quantized(model, {"x": X})
    if says is None:
        assert result.kept == {}
    else:
        assert {"big", "b", "s"} <= set(result.kept), "it is made, moved, and read"
        assert "MatMul" not in {node(result.model, name).op_type for name in result.kept}
        assert says in result.kept["b"]
    check(result, {"x": X}, model, tmp_path, atol=0.1)


def test_rule_2_leaves_room_for_larger_values() -> None:
    limit = 65504 / HEADROOM
    text = "g (float[n, 8] x) => (float[n, 8] y) { y = Abs(x) }".replace("y = Abs(x)", "a = Abs(x)  y = MatMul(a, w)")
    for amax, kept in ((0.99 * limit, False), (1.01 * limit, True)):
        x = X / np.abs(X).max() * np.float32(amax)
        assert ("a" in quantized(parse(text, w=W["w1"]), {"x": x}).kept) is kept


@pytest.mark.parametrize("value", [1e-12, 1e6, 3.4e38])
def test_rule_3_a_constant_that_fp16_cannot_hold(value: float, tmp_path: Path) -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { m = Mul(x, x)  a = Add(m, c)  q = Sqrt(a)  d = Div(x, q)  y = MatMul(d, w) }"
    model = parse(text, c=np.float32(value), w=W["w1"])
    result = quantized(model, {"x": X})
    assert f"constant 'c' does not fit FP16 ({value:.3g})" in result.kept["a"]
    check(result, {"x": X}, model, tmp_path, atol=0.2)


def test_rule_3_a_small_addend_beside_large_values_is_no_reason() -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { a = Add(x, c)  y = MatMul(a, w) }"
    assert quantized(parse(text, c=np.float32(2.7e-6), w=W["w1"]), {"x": X}).kept == {}


def test_rule_3_bounds_of_a_clip_are_saturated(tmp_path: Path) -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { c = Clip(x, low, high)  y = MatMul(c, w) }"
    model = parse(text, low=np.float32(0), high=np.float32(3.4e38), w=W["w1"])
    result = quantized(model, {"x": X})
    assert result.kept == {}
    check(result, {"x": X}, model, tmp_path, atol=0.1)


@pytest.mark.parametrize("operator", ["Sqrt(a)", "Log(a)", "Reciprocal(a)", "Div(x, a)"])
def test_rule_4_small_values_that_matter(operator: str) -> None:
    text = f"g (float[n, 8] x) => (float[n, 8] y) {{ m = Mul(x, x)  a = Add(m, c)  d = {operator}  y = MatMul(d, w) }}"
    model, x = parse(text, c=np.float32(1e-5), w=W["w1"]), X.copy()
    x[0, 0] = 0  # so that a = 1e-5, which FP16 holds as a subnormal
    assert "needs it exact" in quantized(model, {"x": x}).kept["d"]
    assert "d" not in quantized(model, {"x": np.abs(X) + 1}).kept


def test_rule_5_scales_are_rounded_to_fp16_where_that_keeps_them() -> None:
    kept = np.array([1e-3, 0.7, 60000], np.float32)
    assert (np.abs(round_scale(kept) / kept - 1) < 1 / 254).all()
    assert round_scale(kept).astype(np.float16).astype(np.float32).tolist() == round_scale(kept).tolist()
    for lost in (np.array([1e-8], np.float32), np.array([1e5], np.float32)):
        assert round_scale(lost).tolist() == lost.tolist()
    channels = np.array([1e-20, 1e-6, 0.01], np.float32)  # two dead ones
    assert round_scale(channels).tolist() == pytest.approx([2**-17, 2**-17, 0.01], rel=1e-3)


@pytest.mark.parametrize("factor", [1e-9, 1e9])
def test_rule_5_a_layer_whose_scale_fp16_loses_stays_fp32(factor: float, tmp_path: Path) -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { h = MatMul(x, w1)  s = Mul(h, back)  y = MatMul(s, w2) }"
    model = parse(text, w1=W["w1"] * np.float32(factor), back=np.float32(1 / factor), w2=W["w2"])
    result = quantized(model, {"x": X})
    assert "the scale of 'w1_int8' does not fit FP16" in result.kept["h"]
    assert types(result.model)["y"] == "FLOAT16"
    check(result, {"x": X}, model, tmp_path, atol=0.1)


def test_rule_6_masks_and_positions_stay_fp32(tmp_path: Path) -> None:
    text = """g (float[n, 8] x, int64[n, 8] keep) => (float[n, 8] y) {
        k = Cast <to = 1> (keep)  off = Sub(one, k)  m = Mul(off, low)  s = Add(x, m)  p = Softmax(s)  y = MatMul(p, w) }"""
    model = parse(text, one=np.float32(1), low=np.float32(-1e4), w=W["w1"])
    feeds = {"x": X, "keep": np.ones((4, 8), np.int64)}
    feeds["keep"][:, 5:] = 0
    result = quantized(model, feeds)
    assert all("from integers" in result.kept[name] for name in ("k", "off", "m"))
    check(result, feeds, model, tmp_path, atol=0.1)


def test_rule_6_what_becomes_a_large_integer_stays_fp32() -> None:
    text = (
        "g (float[n, 8] x) => (float[n, 8] y, int64[n, 8] i) { b = Mul(x, c)  i = Cast <to = 7> (b)  y = MatMul(x, w) }"
    )
    for factor, kept in ((3000.0, True), (100.0, False)):
        result = quantized(parse(text, c=np.float32(factor), w=W["w1"]), {"x": X})
        assert ("i" in result.kept) is kept


def test_rule_8_operators_without_fp16_and_subgraphs(tmp_path: Path) -> None:
    text = """g (float[n, 8] x, bool c) => (float[n, 8] y) {
        h = MatMul(x, w1)
        i = If (c) <then_branch = t () => (float[n, 8] a) { a = Relu(h) }, else_branch = e () => (float[n, 8] b) { b = Neg(h) }>
        y = MatMul(i, w2) }"""
    model = parse(text, **W)
    for choice in (True, False):
        feeds = {"x": X, "c": np.array(choice)}
        result = quantized(model, feeds)
        assert result.kept == {"i": "it holds a subgraph, which stays in FP32"}
        assert types(result.model)["h"] == "FLOAT16"
        check(result, feeds, model, tmp_path, atol=0.1)


def test_resize_keeps_its_float_scales(tmp_path: Path) -> None:
    """An input whose type ONNX fixes stays FP32 while the node is FP16."""
    text = 'g (float[1, 3, h, w] x) => (float[1, 3, a, b] y) { c = Conv(x, k)  y = Resize <mode = "linear"> (c, , s) }'
    model = parse(text, k=weight(3, 3, 1, 1), s=np.array([1, 1, 2, 2], np.float32))
    x = np.random.default_rng(2).normal(size=(1, 3, 4, 4)).astype(np.float32)
    result = quantized(model, {"x": x})
    assert types(result.model)["y"] == "FLOAT16"
    check(result, {"x": x}, model, tmp_path, atol=0.1)


def test_an_output_that_is_also_read_inside(tmp_path: Path) -> None:
    text = "g (float[n, 8] x) => (float[n, 8] h, float[n, 8] y) { h = MatMul(x, w1)  r = Relu(h)  y = MatMul(r, w2) }"
    model = parse(text, **W)
    check(quantized(model, {"x": X}), {"x": X}, model, tmp_path, atol=0.1)


def test_an_infinite_value_is_a_range_and_no_error(tmp_path: Path) -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { l = Log(x)  e = Exp(l)  y = MatMul(e, w) }"
    model, x = parse(text, w=W["w1"]), np.abs(X)
    x[0, 0] = 0  # Log gives -inf
    result = quantized(model, {"x": x})
    assert {"l", "e"} <= set(result.kept)
    check(result, {"x": x}, model, tmp_path, atol=0.1)


def test_without_ranges_fp16_is_refused() -> None:
    model = parse(TWO, **W)
    scales = Scales({"x": np.float32(0.02), "r": np.float32(0.02)}, {}, Origin("tensorrt TRT-8601-EntropyCalibration2"))
    with pytest.raises(DataError, match=r"hold no ranges.*--data.*--rest fp32"):
        qdq.quantize(model, Plan(), scales, Form())
    qdq.quantize(model, Plan(), scales, Form(rest="fp32"))


def test_range_of_values() -> None:
    assert Range.of(np.array([0, -3, 1e-40, 2], np.float32)) == Range(3.0, float(np.float32(1e-40)))
    assert Range.of(np.zeros(3)) == Range(0.0, np.inf)
    assert Range.of(np.array([1, np.nan])) == Range(np.inf, 1.0)
    assert Range.join([Range(1, 0.5), Range(3, 2)]) == Range(3, 0.5)


def test_rule_7_a_layer_in_fp32_takes_its_reader_along(tmp_path: Path) -> None:
    """Built live: alone between two casts TensorRT-RTX computes the layer in FP16, and its weights become 0."""
    text = """g (float[n, 8] x) => (float[n, 8] y) {
        a = MatMul(x, w1)  h = MatMul(a, tiny)  s = Mul(h, up)  r = Relu(s)  y = MatMul(r, w2) }"""
    model = parse(text, tiny=W["w1"] * np.float32(1e-9), up=np.float32(1e9), **W)
    plan = Plan(layers={"h": "fp16"})
    result = quantized(model, {"x": X}, plan)
    assert "constant 'tiny' does not fit FP16" in result.kept["h"]
    ir.save(result.model, tmp_path / "m.onnx")
    found = {layer.name: layer for layer in verify.verify(tmp_path / "m.onnx").layers}
    assert (found["h"].asked, found["h"].built) == ("fp32", "fp32")
    check(result, {"x": X}, model, tmp_path, atol=0.2)


def test_rule_7_a_layer_that_the_plan_wants_in_fp32_is_built_so(tmp_path: Path) -> None:
    text = """g (float[n, 8] x) => (float[n, 8] y) {
        a = MatMul(x, w1)  r = Relu(a)  h = MatMul(r, w2)  l = LeakyRelu(h)  y = MatMul(l, w1) }"""
    result = quantized(parse(text, **W), {"x": X}, Plan(layers={"h": "fp32"}))
    assert result.kept == {"l": "it reads 'h', which TensorRT would else compute in FP16"}
    ir.save(result.model, tmp_path / "m.onnx")
    found = {layer.name: layer for layer in verify.verify(tmp_path / "m.onnx").layers}
    assert (found["h"].asked, found["h"].built) == ("fp32", "fp32")


def test_ranges_are_seen_and_the_smallest_only_where_it_matters() -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { a = Abs(x)  b = Add(a, c)  d = Div(x, b)  e = Exp(d)  y = MatMul(e, w) }"
    model = parse(text, c=np.float32(0.25), w=W["w1"])
    ranged = qdq.unranged(model)
    assert {tensor for tensor, small in ranged.items() if small} == {"b"}
    x = np.concatenate([X, np.full((1, 8), -7, np.float32)])
    seen = observe.observe(model, Memory({"x": x}), ("e",), ranged, batch_size=1)
    b = np.abs(x) + np.float32(0.25)
    assert seen.ranges["a"] == Range(7.0, 0.0)
    assert seen.ranges["b"] == Range(float(b.max()), float(b.min()))
    assert seen.ranges["x"] == Range(7.0, float(np.abs(x).min()))
    assert seen.ranges["d"].amax == pytest.approx(float(np.abs(x / b).max()), rel=1e-6)
    assert seen.ranges["e"].smallest > 0, "from its histogram"


def test_an_empty_array_has_no_range() -> None:
    counter = RangeCounter()
    counter.add_extremes(np.inf, -np.inf)
    assert counter.range() == Range(0.0, 0.0)
    counter.add_extremes(-np.inf, 2.0)
    assert counter.range() == Range(np.inf, 0.0)
