"""Q/DQ: the written graph is TensorRT's arithmetic, where the plan wants it and nowhere else."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib import plan, qdq, scales
from calib.errors import ConfigError, DataError
from calib.graph import layers
from calib.plan import Plan
from calib.qdq import Form
from calib.runtime import ort
from calib.scales import Origin, Scales

DRAWS = np.random.default_rng(1)
WEIGHTS = {
    "w1": DRAWS.normal(size=(4, 3, 1, 1)).astype(np.float32)
    * np.array([1, 0.01, 0, 5], np.float32).reshape(4, 1, 1, 1),
    "b1": DRAWS.normal(size=4).astype(np.float32),
    "w2": DRAWS.normal(size=(4, 6)).astype(np.float32),
}
X = DRAWS.normal(size=(2, 3, 5, 4)).astype(np.float32)
FP32 = Form(rest="fp32")
SCALES = Scales({"x": scales.scale_of(2.5), "m": scales.scale_of(1.7), "unrelated": np.float32(1)}, {}, Origin("test"))


@pytest.fixture
def model() -> ir.Model:
    """x feeds two Convs that share their weight; the first goes on to a MatMul."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="conv1"),
        helper.make_node("Conv", ["x", "w1"], ["c2"], name="conv2"),
        helper.make_node("Transpose", ["c1"], ["m"], name="transpose", perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["m", "w2"], ["y1"], name="matmul"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 3, "h", "w"))]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", "a", "b", "c")) for name in ("y1", "c2")]
    tensors = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9))


def fake(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return (np.clip(np.rint(x / scale), -128, 127) * scale).astype(np.float32)


def reference(int8: set[str]) -> tuple[np.ndarray, np.ndarray]:
    """The same in numpy, from the formula alone."""
    w1, w2 = WEIGHTS["w1"], WEIGHTS["w2"]
    s1 = np.abs(w1).max(axis=(1, 2, 3), keepdims=True) / np.float32(127)
    s2 = np.abs(w2).max(axis=0, keepdims=True) / np.float32(127)
    q = {"x": fake(X, SCALES.activations["x"]), "w1": fake(w1, np.where(s1 == 0, 1, s1)), "w2": fake(w2, s2)}

    def conv(name: str) -> np.ndarray:
        data, kernel = (q["x"], q["w1"]) if name in int8 else (X, w1)
        return np.einsum("nchw,oc->nohw", data, kernel[:, :, 0, 0])

    m = (conv("conv1") + WEIGHTS["b1"].reshape(1, 4, 1, 1)).transpose(0, 2, 3, 1)
    y = fake(m, SCALES.activations["m"]) @ q["w2"] if "matmul" in int8 else m @ w2
    return y, conv("conv2")


@pytest.mark.parametrize(
    ("kept", "int8"),
    [
        ({}, {"conv1", "conv2", "matmul"}),
        ({"conv1": "fp32"}, {"conv2", "matmul"}),
        ({"conv*": "fp32"}, {"matmul"}),
        ({"conv*": "fp32", "conv2": "int8"}, {"conv2", "matmul"}),
        ({"*": "fp32"}, set()),
    ],
)
def test_the_graph_computes_what_the_formula_says(
    model: ir.Model, kept: dict[str, str], int8: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "q.onnx"
    ir.save(qdq.quantize(model, Plan(layers=kept), SCALES, FP32).model, path)
    onnx.checker.check_model(path, full_check=True)
    found = ort.OrtRunner(path).run({"x": X})
    for name, expected in zip(("y1", "c2"), reference(int8), strict=True):
        np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)


def test_rules(model: ir.Model) -> None:
    """Rules 1 to 4 of calib.qdq."""
    graph = qdq.quantize(model, Plan(), SCALES, FP32).model.graph
    operators = [node.op_type for node in graph]
    assert operators.count("QuantizeLinear") == 2, "rule 4: x has one pair for both Convs"
    assert operators.count("DequantizeLinear") == 4, "rule 4: the shared weight has one"
    conv1 = next(node for node in graph if node.name == "conv1")
    assert conv1.inputs[2].name == "b1", "rule 2"
    assert {out.name for out in graph.outputs} == {"y1", "c2"}, "rule 3"
    assert "w1" not in graph.initializers, "the float weight is gone"
    assert graph.initializers["w1_int8"].dtype == ir.DataType.INT8
    axes = {
        node.inputs[0].name: node.attributes.get_int("axis", 99) for node in graph if node.op_type == "DequantizeLinear"
    }
    assert (axes["w1_int8"], axes["w2_int8"]) == (0, 1)
    for node in graph:
        if node.op_type in ("QuantizeLinear", "DequantizeLinear"):
            scale = node.inputs[1].const_value.numpy()
            assert np.isfinite(scale).all()
            assert (scale > 0).all(), "an all-zero channel has a scale too (NVIDIA/TensorRT#1826)"


def test_the_model_that_was_given_is_left_as_it_was(model: ir.Model) -> None:
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    qdq.quantize(model, Plan(), SCALES, FP32)
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_names_that_are_taken_get_a_number(model: ir.Model) -> None:
    for node in model.graph:
        for out in node.outputs:
            if out.name == "c2":
                out.name = "x_quantized"
    graph = qdq.quantize(model, Plan(), SCALES, FP32).model.graph
    names = [out.name for node in graph for out in node.outputs]
    assert len(set(names)) == len(names)
    assert "x_quantized_2" in names


def test_a_missing_scale_names_layer_and_tensor(model: ir.Model) -> None:
    with pytest.raises(DataError, match="layer 'matmul' is planned in INT8 and the scales hold none for its input 'm'"):
        qdq.quantize(model, Plan(), Scales({"x": np.float32(1)}, {}, Origin("test")), FP32)
    qdq.quantize(model, Plan(layers={"matmul": "fp32"}), Scales({"x": np.float32(1)}, {}, Origin("test")), FP32)


def test_weight_scales_of_another_model_are_refused(model: ir.Model) -> None:
    other = Scales(SCALES.activations, {"w1": scales.WeightScale(np.ones(7, np.float32), 0)}, Origin("test"))
    with pytest.raises(DataError, match="belongs to another model"):
        qdq.quantize(model, Plan(), other, FP32)


def test_a_plan_that_matches_nothing_is_an_error(model: ir.Model) -> None:
    """ORT#12556, optimum#1418: an exclusion that matches nothing was ignored in silence."""
    names = [layer.name for layer in layers.find(model)]
    with pytest.raises(ConfigError, match="'conv3', which matches no layer of the model; did you mean conv2 or conv1"):
        plan.apply(Plan(layers={"conv3": "fp32"}), names)
    with pytest.raises(ConfigError, match="must be one of int8, fp16, fp32, not 'int4'"):
        Plan(layers={"conv1": "int4"})


def test_rounding_is_half_to_even_and_clamps_at_minus_128() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 1e9, -127.5, -128.5, -1e9], np.float32)
    assert scales.quantize(x, np.float32(1)).tolist() == [0, 2, 2, 0, -2, 127, 127, -128, -128, -128]


def test_a_quantized_conv_says_its_kernel_shape(model: ir.Model) -> None:
    """TensorRT 8.6 refuses one whose weight is no initializer: "checkSpatialDims ... misaligns with the input kernel shape"."""
    graph = qdq.quantize(model, Plan(), SCALES, FP32).model.graph
    kernels = [node.attributes["kernel_shape"].as_ints() for node in graph if node.op_type == "Conv"]
    assert [tuple(kernel) for kernel in kernels] == [(1, 1), (1, 1)]
