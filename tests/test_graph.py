"""Graphs: normalization keeps what a model computes, and layers are found with the right channel axes."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib import pipeline
from calib.errors import ModelError
from calib.graph import layers, load, normalize
from calib.runtime import ort

DRAWS = np.random.default_rng(0)


def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def weight(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(DRAWS.normal(size=shape).astype(np.float32), name)


def wild_model(opset: int) -> onnx.ModelProto:
    """Weights in Constant nodes, Identity, a dead branch, an unused initializer, unnamed and twice-named nodes."""
    nodes = [
        helper.make_node("Constant", [], ["w1"], value=weight("w1", 4, 3, 3, 3)),
        helper.make_node("Constant", [], ["w2"], value=weight("w2", 4, 5)),
        helper.make_node("Identity", ["x"], ["x1"]),
        helper.make_node("Conv", ["x1", "w1"], ["c"], name="same", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="same"),
        helper.make_node("Exp", ["c"], ["dead"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["m"]),
        helper.make_node("Identity", ["m"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", "n", 3, "h", 8)], [value("y", "n", 5)], [weight("unused", 7)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 19, 21])
def test_a_wild_model_is_normalized_and_computes_the_same(opset: int, tmp_path: Path) -> None:
    path = tmp_path / "wild.onnx"
    onnx.save(wild_model(opset), path)
    published = load.load(path)
    found = normalize.normalize(published)
    operators = [node.op_type for node in found.model.graph]
    assert "Constant" not in operators
    assert "Exp" not in operators
    assert load.opset(found.model) == max(opset, 19)
    names = [node.name for node in found.model.graph]
    assert all(names)
    assert len(set(names)) == len(names)
    assert "unused" not in found.model.graph.initializers
    assert load.signature(found.model.graph.inputs) == load.signature(published.graph.inputs)
    assert load.signature(found.model.graph.outputs) == load.signature(published.graph.outputs)
    assert [layer.activations for layer in layers.find(found.model)] == [("x",), ("f",)]
    assert len(published.graph) == 10, "the model that was given is left as it was"
    text = "\n".join(found.steps)
    assert "2 Constant nodes became initializers" in text
    assert "1 nodes that no output needs were removed" in text
    x = DRAWS.normal(size=(2, 3, 6, 8)).astype(np.float32)
    normalize.name_nodes(published)  # ONNX Runtime loads no two nodes of one name (ORT#8811)
    before, after = ort.in_memory(published).run({"x": x}), ort.in_memory(found.model).run({"x": x})
    np.testing.assert_allclose(before["y"], after["y"], rtol=1e-5, atol=1e-5)


def one_layer(op: str, weight_shape: tuple[int, ...], weight_first: bool = False, **attributes: int) -> ir.Model:
    x_shape = ("a", "b", "c", "d")[: 4 if op == "Conv" else 2]
    inputs = ["w", "x"] if weight_first else ["x", "w"]
    node = helper.make_node(op, inputs, ["y"], name="layer", **attributes)
    graph = helper.make_graph([node], "g", [value("x", *x_shape)], [value("y")], [weight("w", *weight_shape)])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]))


@pytest.mark.parametrize(
    ("op", "shape", "first", "attributes", "axis"),
    [
        ("Conv", (8, 3, 3, 3), False, {}, 0),
        ("MatMul", (4, 8), False, {}, 1),
        ("MatMul", (2, 4, 8), False, {}, 2),
        ("MatMul", (8, 4), True, {}, 0),
        ("MatMul", (4,), False, {}, None),
        ("Gemm", (4, 8), False, {}, 1),
        ("Gemm", (8, 4), False, {"transB": 1}, 0),
        ("Gemm", (8, 4), True, {}, 0),
        ("Gemm", (4, 8), True, {"transA": 1}, 1),
    ],
)
def test_the_channel_axis_is_that_of_the_output(
    op: str, shape: tuple[int, ...], first: bool, attributes: dict[str, int], axis: int | None
) -> None:
    """ORT#17718, sparseml#1701 and others: the axis of a MatMul or Gemm weight depends on its side and on transB."""
    (layer,) = layers.find(one_layer(op, shape, first, **attributes))
    assert layer.activations == ("x",)
    assert [w.axis for w in layer.weights] == [axis]
    scale = layers.weight_scales(one_layer(op, shape, first, **attributes), [layer])["w"]
    assert scale.values.size == (1 if axis is None else 8)


def test_a_layer_with_two_activations_has_no_weight() -> None:
    node = helper.make_node("MatMul", ["x", "z"], ["y"], name="attention")
    graph = helper.make_graph([node], "g", [value("x", "n", 4), value("z", 4, "m")], [value("y")])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]))
    (layer,) = layers.find(model)
    assert (layer.activations, layer.weights) == (("x", "z"), ())
    assert layers.consumers([layer]) == {"x": ("attention",), "z": ("attention",)}


def test_a_models_place_in_a_package_is_found_without_importing_it() -> None:
    inner = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
    assert load.locate(f"package:rapidocr-onnxruntime/{inner}", Path()).is_file()
    with pytest.raises(ModelError, match="holds no file"):
        load.locate("package:rapidocr-onnxruntime/no.onnx", Path())
    with pytest.raises(ModelError, match="is not installed"):
        load.locate("package:no-such-package/x.onnx", Path())


def test_inspect_lists_what_a_plan_can_name() -> None:
    path = load.locate("package:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", Path())
    found = pipeline.inspect(path)
    assert found["inputs"] == {"x": "float32[p2o.DynamicDimension.0, 3, ?, p2o.DynamicDimension.1]"}
    assert found["opset"] == 12
    operators = [layer["operator"] for layer in found["layers"]]
    assert (operators.count("Conv"), operators.count("MatMul")) == (38, 13)
    assert found["layers"][0] == {
        "name": "p2o.Conv.0",
        "operator": "Conv",
        "activations": ["x"],
        "weights": ["conv2d_10.w_0 [16, 3, 3, 3]"],
    }
