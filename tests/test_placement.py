"""Where Q/DQ goes: the rules of calib/qdq/__init__.py, each by its number (1 to 4 are in test_qdq.py too)."""

import numpy as np
import onnx_ir as ir
import pytest

from calib import qdq
from calib.plan import Plan, Precision
from calib.qdq import Form
from calib.qdq.placement import MAX_RATIO
from tests.models import node, parse, quantized, run, weight

IMAGE = np.random.default_rng(1).normal(size=(2, 4, 8, 8)).astype(np.float32)
K = {"k1": weight(4, 4, 1, 1, seed=1), "k2": weight(4, 4, 1, 1, seed=2), "k3": weight(4, 4, 1, 1, seed=3)}
ALL = Plan(layers={"*": "int8"})


def reads_quantized(model: ir.Model, name: str, index: int) -> bool:
    producer = node(model, name).inputs[index].producer()
    return producer is not None and producer.op_type == "DequantizeLinear"


def graph(body: str, output: str = "float[n, 4, 8, 8] y") -> str:
    return f"g (float[n, 4, 8, 8] x) => ({output}) {{ {body} }}"


@pytest.mark.parametrize(
    ("body", "weights", "axis"),
    [
        ("y = Conv(x, w)", {"w": weight(4, 4, 1, 1)}, 0),
        ("y = Conv <group = 4> (x, w)", {"w": weight(4, 1, 1, 1)}, 0),
        ("y = ConvTranspose(x, w)", {"w": weight(4, 4, 1, 1)}, None),
        ("y = ConvTranspose <group = 2> (x, w)", {"w": weight(4, 2, 1, 1)}, None),
        ("y = MatMul(x, w)", {"w": weight(8, 8)}, 1),
        ("y = MatMul(w, x)", {"w": weight(8, 8)}, 0),
        ("y = MatMul(x, w)", {"w": weight(4, 8, 8)}, 2),
        ("f = Flatten <axis = 3> (x)  g = Gemm(f, w)  y = Reshape(g, s)", {"w": weight(8, 8)}, 1),
        ("f = Flatten <axis = 3> (x)  g = Gemm <transB = 1> (f, w)  y = Reshape(g, s)", {"w": weight(8, 8)}, 0),
    ],
)
def test_rule_1_the_channel_axis_depends_on_the_operator(body: str, weights: dict, axis: int | None) -> None:
    if "Reshape" in body:
        weights = weights | {"s": np.array([-1, 4, 8, 8], np.int64)}
    w = weights["w"] * np.float32(1)
    w[tuple([slice(None)] * (axis or 0) + [0])] *= 50  # one channel far larger: any other axis would lose the rest
    model = parse(graph(body), **{**weights, "w": w})
    result = quantized(model, {"x": IMAGE}, ALL, Form("fp32"))
    (found,) = [n for n in result.model.graph if n.op_type == "DequantizeLinear" and n.inputs[0].is_initializer()]
    assert (found.attributes["axis"].as_int() if "axis" in found.attributes else None) == axis
    assert found.inputs[1].shape == ((w.shape[axis],) if axis is not None else ())
    expected, got = run(model, {"x": IMAGE})["y"], run(result.model, {"x": IMAGE})["y"]
    assert np.abs(got - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("activation", ["Relu(c)", "Clip(c, low, high)", "HardSwish(c)", "Mul(c, s)"])
def test_rule_3_nothing_stands_between_a_layer_and_what_fuses_into_it(activation: str) -> None:
    """NVIDIA/TensorRT#3629, yolov5#2509: Q/DQ inside SiLU broke fusion and accuracy."""
    sigmoid = "s = Sigmoid(c)" if "(c, s)" in activation else ""
    model = parse(
        graph(f"c = Conv(x, k1)  {sigmoid}  a = {activation}  y = Conv(a, k2)"),
        low=np.float32(0),
        high=np.float32(6),
        **K,
    )
    result = quantized(model, {"x": IMAGE}).model
    assert [n.inputs[0].name for n in result.graph if n.op_type == "QuantizeLinear"] == ["x", "a"]
    assert {reader.op_type for reader in node(result, "c").outputs[0].consumers()} <= {
        "Relu",
        "Clip",
        "HardSwish",
        "Mul",
        "Sigmoid",
    }


class TestResidual:
    """Rule 5: NVIDIA/TensorRT#1992, #3270, pytorch/TensorRT#2007."""

    BLOCK = "a = Conv(x, k1)  r = Relu(a)  b = Conv(r, k2)  s = Add(b, x)  y = Relu(s)"

    def test_the_identity_is_read_through_the_pair_that_its_layer_reads(self) -> None:
        result = quantized(parse(graph(self.BLOCK), **K), {"x": IMAGE})
        assert reads_quantized(result.model, "s", 1)
        assert not reads_quantized(result.model, "s", 0), "the Conv fuses with the Add"
        assert node(result.model, "s").inputs[1] is node(result.model, "a").inputs[0]

    def test_of_two_convs_the_earlier_is_the_residual(self) -> None:
        body = "d = Conv(x, k3)  a = Conv(x, k1)  r = Relu(a)  b = Conv(r, k2)  s = Add(d, b)  y = Relu(s)"
        result = quantized(parse(graph(body), **K), {"x": IMAGE}).model
        assert (reads_quantized(result, "s", 0), reads_quantized(result, "s", 1)) == (True, False)

    @pytest.mark.parametrize(
        "block",
        [
            "a = Conv(x, k1)  s = Add(a, k0)  y = Relu(s)",  # a bias
            "a = Conv(x, k1)  s = Add(a, x)  t = Relu(a)  y = Add(s, t)",  # the Conv cannot fuse: something else reads it
            "a = Relu(x)  s = Add(a, x)  y = Conv(s, k1)",  # no Conv
        ],
    )
    def test_other_additions_are_left(self, block: str) -> None:
        model = parse(graph(block), k0=np.ones((4, 1, 1), np.float32), **K)
        assert quantized(model, {"x": IMAGE}).reads == ()

    def test_a_conv_in_float_does_not_ask_for_it(self) -> None:
        model = parse(graph(self.BLOCK), **K)
        assert quantized(model, {"x": IMAGE}, Plan(layers={"b": "fp16"})).reads == ()


class TestSharedScales:
    """Rules 6 and 7."""

    def test_movement_shares_one_scale(self) -> None:
        body = (
            "a = Conv(x, k1)  p = MaxPool <kernel_shape = [1, 1]> (a)  b = Conv(p, k2)  c = Conv(a, k3)  y = Add(b, c)"
        )
        result = quantized(parse(graph(body), **K), {"x": IMAGE})
        assert ("a", "p") in result.shared
        scales = [n.inputs[1].const_value.numpy() for n in result.model.graph if n.op_type == "QuantizeLinear"]
        assert len({float(s) for s in scales if s is not None}) < len(scales)

    CONCAT = "a = Conv(x, k1)  r = Relu(a)  b = Conv(r, k2)  c = Concat <axis = 1> (r, b)  y = Conv(c, k6)"

    def test_a_concat_of_int8_layers_is_int8(self) -> None:
        model = parse(graph(self.CONCAT), **K, k6=weight(4, 8, 1, 1))
        result = quantized(model, {"x": IMAGE})
        assert [(read.node, read.index, read.rule) for read in result.reads] == [("c", 0, 7), ("c", 1, 7)]
        assert result.shared == (("r", "b", "c"),)

    def test_one_of_another_range_keeps_its_scale(self) -> None:
        """ORT#14233, ultralytics#26171: boxes (0 to 640) and scores (0 to 1) under one scale lost the scores."""
        model = parse(graph(self.CONCAT), k1=K["k1"] * np.float32(640), k2=K["k2"] / 640, k6=weight(4, 8, 1, 1))
        result = quantized(model, {"x": IMAGE}, form=Form("fp32"))
        assert result.reads == ()
        assert result.shared == ()

    def test_unify_takes_the_largest_within_the_ratio(self) -> None:
        amax = {"a": 1.0, "b": MAX_RATIO, "c": MAX_RATIO / 8, "d": 9.0}
        assert qdq.unify(amax, (("a", "b", "c"),)) == {"a": MAX_RATIO, "b": MAX_RATIO, "c": MAX_RATIO / 8, "d": 9.0}


@pytest.mark.parametrize(
    ("shapes", "left"),
    [(("n", 8), False), (("1", 8), True), (("n, 5", 8), False), (("n, 1", 8), True)],
)
def test_rule_8_a_product_with_a_vector_stays_in_float(shapes: tuple[str, int], left: bool) -> None:
    model = parse(f"g (float[{shapes[0]}, 8] x) => (float[{shapes[0]}, 4] y) {{ y = MatMul(x, w) }}", w=weight(8, 4))
    assert ("y" in qdq.place(model, Plan()).left) is left
    assert "y" not in qdq.place(model, ALL).left, "a plan that names it quantizes it"
    one_column = parse("g (float[n, 8] x) => (float[n, 1] y) { y = MatMul(x, w) }", w=weight(8, 1))
    assert "GEMV" in qdq.place(one_column, Plan()).left["y"]


def test_rule_9_a_layer_norm_lets_its_conv_write_int8() -> None:
    body = "c = Conv(x, k1)  y = LayerNormalization <axis = -1> (c, s)"
    result = quantized(parse(graph(body), s=np.ones(8, np.float32), **K), {"x": IMAGE})
    assert reads_quantized(result.model, "y", 0)
    first = "y = LayerNormalization <axis = -1> (x, s)  c = Conv(x, k1)"
    left = quantized(
        parse(graph(first, "float[n, 4, 8, 8] y, float[n, 4, 8, 8] c"), s=np.ones(8, np.float32), **K), {"x": IMAGE}
    )
    assert not reads_quantized(left.model, "y", 0)


def test_rule_10_a_table_that_is_also_a_weight_is_left_to_its_gather() -> None:
    text = "g (int64[n, t] ids) => (float[n, t, 8] y) { e = Gather(table, ids)  y = MatMul(e, table) }"
    result = quantized(parse(text, table=weight(8, 8)), {"ids": np.arange(6).reshape(2, 3)})
    assert node(result.model, "e").inputs[0].const_value.dtype is ir.DataType.FLOAT16
    assert reads_quantized(result.model, "y", 1)


ATTENTION = """g (float[n, 6, 8] x) => (float[n, 6, 8] y) {
    q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)  t = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul(q, t)  d = Div(s, c)  p = Softmax(d)  o = MatMul(p, v)  y = MatMul(o, wo) }"""
PROJECTIONS = {f"w{name}": weight(8, 8, seed=i) for i, name in enumerate("qkvo")}


def test_rule_11_attention_stays_in_fp16_unless_named() -> None:
    model = parse(ATTENTION, c=np.float32(3), **PROJECTIONS)
    placement = qdq.place(model, Plan())
    assert sorted(placement.left) == ["o", "s"]
    assert all("fuses attention in FP16" in reason for reason in placement.left.values())
    assert [layer.name for layer in qdq.place(model, ALL).int8] == ["q", "k", "v", "s", "o", "y"]


def test_rule_12_a_packed_projection_has_one_weight_scale() -> None:
    text = """g (float[n, 6, 8] x) => (float[n, 6, 8] y) {
        m = MatMul(x, w)  b = Add(m, bias)  r = Reshape(b, shape)  h = Transpose <perm = [2, 0, 3, 1, 4]> (r)
        q = Gather <axis = 0> (h, zero)  k = Gather <axis = 0> (h, one)  a = Add(q, k)  y = Reshape(a, back) }"""
    constants = {
        "bias": weight(24, 1)[:, 0],
        "shape": np.array([-1, 6, 3, 2, 4], np.int64),
        "back": np.array([-1, 6, 8], np.int64),
        "zero": np.int64(0),
        "one": np.int64(1),
    }
    (layer,) = qdq.place(parse(text, w=weight(8, 24), **constants), Plan()).int8
    assert layer.weights[0].axis is None


def test_conv_transpose_is_in_int8_only_when_named() -> None:
    model = parse(graph("y = ConvTranspose(x, k1)"), **K)
    assert "builds no ConvTranspose in INT8" in qdq.place(model, Plan()).left["y"]
    assert qdq.place(model, Plan(layers={"y": "int8"})).left == {}


def test_layers_inside_a_subgraph_stay_in_float_and_are_reported() -> None:
    text = """g (float[n, 8] x, bool c) => (float[n, 8] y) {
        h = MatMul(x, w)
        y = If (c) <then_branch = t () => (float[n, 8] a) { a = MatMul(h, w) },
                    else_branch = e () => (float[n, 8] b) { b = Neg(h) }> }"""
    model = parse(text, w=weight(8, 8))
    for inner in model.graph.subgraphs():
        for n in inner:
            n.name = n.name or str(n.outputs[0].name)
    left = qdq.place(model, Plan()).left
    assert [reason for reason in left.values()] == ["inside If 'y'"]


def test_what_may_be_quantized_covers_every_plan() -> None:
    """Statistics are made once, for plans that nobody has written yet."""
    body = "d = Conv(x, k3)  a = Conv(x, k1)  r = Relu(a)  b = Conv(r, k2)  s = Add(d, b)  y = Relu(s)"
    model = parse(graph(body), **K)
    known = set(qdq.quantizable(model))
    for kept in ((), ("b",), ("d",), ("a", "b"), ("a", "b", "d")):
        assert set(qdq.place(model, Plan(layers=dict.fromkeys(kept, Precision.FP16.value))).tensors) <= known


def test_weights_as_float_with_q_and_dq() -> None:
    """For TensorRT 8, which takes no INT8 constants beside an FP16 rest; the numbers are the same."""
    model = parse(graph("a = Conv(x, k1)  y = Conv(a, k2)"), **K)
    codes, pairs = (quantized(model, {"x": IMAGE}, form=Form("fp32", form)).model for form in ("int8", "qdq"))
    assert pairs.graph.initializers["k1"].dtype is ir.DataType.FLOAT
    assert "k1_int8" not in pairs.graph.initializers
    np.testing.assert_array_equal(run(codes, {"x": IMAGE})["y"], run(pairs, {"x": IMAGE})["y"])
