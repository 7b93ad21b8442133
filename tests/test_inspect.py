"""calib inspect: products counted by multiplying ones, types that layers will get, and operators that TensorRT's parser lacks."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib import cli_inspect, inspection
from calib.errors import ConfigError
from calib.graph import load, macs, normalize, operators, shapes

from . import rtx
from .broken_qdq import conv, graph, node, pair
from .conftest import Answer, assert_refused, make_model, text_model

OCR = load.locate("package:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx", Path())


def ones_model(made: onnx.NodeProto, *given: tuple[int, ...]) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(made.input, given, strict=True)
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made.output]
    made_graph = helper.make_graph([made], "g", inputs, outputs)
    return helper.make_model(made_graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def products(op: str, *given: tuple[int, ...], **attributes) -> int:
    """Count a node's products: of ones each adds one to the output."""
    model = ones_model(helper.make_node(op, ["a", "b"], ["y"], **attributes), *given)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {name: np.ones(shape, np.float32) for name, shape in zip("ab", given, strict=True)})
    return int(np.asarray(y, np.float64).sum())


def padded(shape: tuple[int, ...], pads: list[int]) -> tuple[int, ...]:
    half = len(pads) // 2
    return (*shape[:2], *(size + pads[i] + pads[half + i] for i, size in enumerate(shape[2:])))


@pytest.mark.parametrize(
    ("op", "first", "second", "attributes"),
    [
        ("Conv", (2, 6, 9, 7), (8, 6, 3, 3), {}),
        ("Conv", (1, 6, 9, 7), (8, 6, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        ("Conv", (1, 6, 9, 9), (6, 1, 3, 3), {"group": 6, "dilations": [2, 1]}),
        ("Conv", (1, 6, 9, 9), (4, 3, 1, 3), {"group": 2, "pads": [0, 1, 0, 1]}),
        ("Conv", (3, 4, 11), (5, 4, 3), {"strides": [3]}),
        ("Conv", (1, 2, 5, 6, 7), (3, 2, 2, 3, 1), {"pads": [1, 1, 1, 0, 0, 0]}),
        ("ConvTranspose", (2, 6, 4, 5), (6, 3, 3, 2), {"strides": [2, 2]}),
        ("ConvTranspose", (1, 6, 4, 5), (6, 3, 3, 3), {"group": 2, "dilations": [1, 2]}),
        ("ConvTranspose", (1, 4, 7), (4, 5, 2), {"strides": [2]}),
        ("Gemm", (3, 4), (4, 5), {}),
        ("Gemm", (4, 3), (5, 4), {"transA": 1, "transB": 1}),
        ("MatMul", (3, 4), (4, 5), {}),
        ("MatMul", (2, 1, 3, 4), (7, 4, 5), {}),
        ("MatMul", (4,), (2, 4, 5), {}),
        ("MatMul", (2, 3, 4), (4,), {}),
        ("MatMul", (4,), (4,), {}),
    ],
)
def test_products_are_counted_as_ones_are_multiplied(
    op: str, first: tuple[int, ...], second: tuple[int, ...], attributes: dict
) -> None:
    made = helper.make_node(op, ["a", "b"], ["y"], **attributes)
    model = shapes.infer(ir.from_proto(ones_model(made, first, second)), {})
    unpadded = {name: value for name, value in attributes.items() if name != "pads"}
    real = padded(first, attributes["pads"]) if "pads" in attributes else first
    assert macs.count(model.graph[0]) == products(op, real, second, **unpadded)


def test_cropped_taps_of_a_transposed_convolution_are_counted() -> None:
    first, second = (1, 4, 6, 6), (4, 3, 4, 4)
    made = helper.make_node("ConvTranspose", ["a", "b"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])
    model = shapes.infer(ir.from_proto(ones_model(made, first, second)), {})
    assert macs.count(model.graph[0]) == products("ConvTranspose", first, second, strides=[2, 2])


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_products_of_recurrent_layers(op: str, gates: int) -> None:
    steps, batch, inputs, hidden = 5, 2, 3, 7
    made = helper.make_node(op, ["x", "w", "r"], ["", "last"], hidden_size=hidden, direction="bidirectional")
    given = (steps, batch, inputs), (2, gates * hidden, inputs), (2, gates * hidden, hidden)
    proto = ones_model(helper.make_node(op, ["x", "w", "r"], ["y"]), *given)
    proto.graph.node[0].CopyFrom(made)
    proto.graph.output[0].name = "last"
    model = shapes.infer(ir.from_proto(proto), {})
    assert macs.count(model.graph[0]) == steps * batch * 2 * gates * hidden * (inputs + hidden)


def test_the_recognizers_products() -> None:
    """Its total, from the shapes that ONNX Runtime sees and from ones that are multiplied."""
    found = inspection.inspect(OCR, {"x": (1, 3, 48, 320)}, None)
    model = normalize.normalize(load.load(OCR)).model
    layers = [made for made in model.graph if made.op_type in ("Conv", "MatMul")]
    seen = run_with_inner_tensors(model, [value for made in layers for value in made.inputs[:2]])
    total = 0
    for made in layers:
        attributes = {key: made.attributes.get_ints(key) for key in ("strides", "dilations") if key in made.attributes}
        group = {"group": made.attributes.get_int("group", 1)} if made.op_type == "Conv" else {}
        first, second = (seen[value.name].shape for value in made.inputs[:2])
        first = padded(first, list(made.attributes.get_ints("pads", [0, 0, 0, 0]))) if made.op_type == "Conv" else first
        one = products(made.op_type, first, second, **attributes, **group)
        assert next(layer.macs for layer in found.layers if layer.name == made.name) == one
        total += one
    assert found.macs == total == 702_469_440


def run_with_inner_tensors(model: ir.Model, values: list[ir.Value]) -> dict[str, np.ndarray]:
    proto = ir.to_proto(model)
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    names = dict.fromkeys(value.name for value in values if value.name not in constants and value.name != "x")
    proto.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.zeros((1, 3, 48, 320), np.float32)
    return constants | {"x": x} | dict(zip(names, session.run(list(names), {"x": x}), strict=True))


def pad_model(path: Path) -> Path:
    """Write what torch makes of F.pad on an open size: pads computed with Concat, Reshape, Slice, Transpose and Cast."""
    weights = {
        "given": np.array([1, 2], np.int64),
        "others": np.zeros(4, np.int64),
        "pairs": np.array([-1, 2], np.int64),
        "last": np.array([-1], np.int64),
        "before": np.array([-(2**63) + 1], np.int64),
        "axis": np.array([0], np.int64),
        "kernel": np.ones((4, 3, 3), np.float32),
        "flat": np.array([-1], np.int64),
    }
    nodes = [
        node("Concat", ["given", "others"], ["all"], "all", axis=0),
        node("Reshape", ["all", "pairs"], ["rows"], "rows"),
        node("Slice", ["rows", "last", "before", "axis", "last"], ["turned"], "turned"),
        node("Transpose", ["turned"], ["columns"], "columns", perm=[1, 0]),
        node("Reshape", ["columns", "flat"], ["pads"], "pads"),
        node("Pad", ["x", "pads"], ["wide"], "pad"),
        node("Conv", ["wide", "kernel"], ["y"], "conv"),
    ]
    return make_model(path, nodes, {"x": ["N", 3, "T"]}, ["N", 4, "S"], weights)


def test_shapes_that_onnx_does_not_follow(tmp_path: Path) -> None:
    model = ir.load(pad_model(tmp_path / "m.onnx"))
    sized = shapes.infer(model, {"x": (2, 3, 10)})
    assert shapes.sizes(sized.graph.outputs[0]) == (2, 4, 11)
    assert str(model.graph.outputs[0].shape) == "[N,4,S]", "the model itself is left as it is"


def test_shapes_that_depend_on_constants_in_another_file(tmp_path: Path) -> None:
    proto = onnx.load(pad_model(tmp_path / "m.onnx"))
    onnx.save(proto, tmp_path / "e.onnx", save_as_external_data=True, size_threshold=0, location="e.data")
    sized = shapes.infer(ir.load(tmp_path / "e.onnx"), {"x": (2, 3, 10)})
    assert shapes.sizes(sized.graph.outputs[0]) == (2, 4, 11)


def test_stale_shapes_are_dropped(tmp_path: Path) -> None:
    proto = onnx.load(text_model(tmp_path / "m.onnx"))
    proto.graph.value_info.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, [9, 9, 9, 9]))
    sized = shapes.infer(ir.from_proto(proto), {"x": (2, 1, 4, 12)})
    assert shapes.sizes(sized.graph[0].outputs[0]) == (2, 4, 1, 12)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"z": (1,)}, "'z', which is no input of the model; it has x"),
        ({"x": (1, 1, 4)}, "'x' is float32[N, 1, 4, T] and cannot have the shape 1x1x4"),
        ({"x": (1, 2, 4, 12)}, "cannot have the shape 1x2x4x12"),
    ],
)
def test_shapes_that_contradict_the_model(given: dict, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        inspection.inspect(text_model(tmp_path / "m.onnx"), given, None)
    assert says in str(error.value)


def test_inspect_lists_what_a_plan_can_name(calib: Callable[..., Answer]) -> None:
    found = json.loads(calib("inspect", OCR, "--shape", "x=1x3x48x320", "--json").out)
    assert found["inputs"] == {"x": "float32[p2o.DynamicDimension.0, 3, ?, p2o.DynamicDimension.1]"}
    assert (found["opset"], found["macs"], round(found["parameters"], -4)) == (12, 702_469_440, 2_690_000)
    kinds = [layer["operator"] for layer in found["layers"]]
    assert (kinds.count("Conv"), kinds.count("MatMul")) == (38, 13)
    assert found["layers"][0] == {
        "name": "p2o.Conv.0",
        "operator": "Conv",
        "precision": "int8",
        "reason": "",
        "parameters": 448,
        "macs": 1_658_880,
        "activations": ["x"],
        "weights": ["conv2d_10.w_0 16x3x3x3"],
    }
    assert found["operators"][0]["name"] == "Conv"
    assert sum(row["parameters"] for row in found["operators"]) == found["parameters"]
    assert found["findings"] == []


def test_inspect_is_readable_in_120_columns(calib: Callable[..., Answer]) -> None:
    lines = calib("inspect", OCR, "--shape", "x=1x3x48x320").out.splitlines()
    assert max(map(len, lines)) <= 120
    assert "MACs         702.5 M at x 1x3x48x320" in lines
    assert sum(line.startswith(" p2o.") for line in lines) == 51
    assert lines[-1] == "47 of 51 layers in INT8, with 99.9% of their MACs"


def test_without_sizes_products_are_unknown_and_the_hint_says_how_to_give_them(calib: Callable[..., Answer]) -> None:
    out = calib("inspect", OCR).out
    assert "MACs         ?\n" in out
    assert "give --shape x=?x3x?x? with numbers for the ?" in out


def test_a_plan_decides_and_its_mistakes_are_errors(tmp_path: Path, calib: Callable[..., Answer]) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[layers]\n"p2o.Conv.0" = "fp32"\n"p2o.MatMul.2" = "int8"\n', encoding="utf-8")
    found = {layer.name: layer for layer in inspection.inspect(OCR, {}, plan).layers}
    assert (found["p2o.Conv.0"].precision, found["p2o.Conv.0"].reason) == ("fp32", "the plan keeps it in fp32")
    assert found["p2o.MatMul.2"].precision == "int8"
    assert (found["p2o.MatMul.4"].precision, found["p2o.MatMul.4"].reason[:8]) == ("fp16", "TensorRT")
    plan.write_text('[layers]\n"p2o.Conv.99" = "fp32"\n', encoding="utf-8")
    assert_refused(calib("inspect", OCR, "--plan", plan), "the plan names 'p2o.Conv.99', which matches no layer")


def branching_model(path: Path) -> Path:
    """Write a model whose MatMul and Det are inside an If."""
    branches = [
        helper.make_graph(
            [
                node("MatMul", ["x", "matrix"], [f"{name}_y"], f"{name}_matmul"),
                node("Det", ["x"], [f"{name}_d"], f"{name}_det"),
            ],
            name,
            [],
            [
                helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None),
                helper.make_tensor_value_info(f"{name}_d", TensorProto.FLOAT, None),
            ],
        )
        for name in ("yes", "no")
    ]
    nodes = [
        node("ReduceMax", ["x"], ["peak"], "peak", keepdims=0),
        node("Greater", ["peak", "zero"], ["positive"], "greater"),
        node("If", ["positive"], ["z", "d"], "choice", then_branch=branches[0], else_branch=branches[1]),
        node("Add", ["z", "d"], ["y"], "add"),
    ]
    weights = {"matrix": np.eye(4, dtype=np.float32), "zero": np.array(0, np.float32)}
    return make_model(path, nodes, {"x": [4, 4]}, [4, 4], weights)


def test_layers_and_operators_inside_subgraphs(tmp_path: Path, calib: Callable[..., Answer]) -> None:
    path = branching_model(tmp_path / "m.onnx")
    found = inspection.inspect(path, {}, None)
    assert [(layer.name, layer.precision, layer.reason) for layer in found.layers] == [
        ("no_matmul", "fp32", "inside If 'choice'"),
        ("yes_matmul", "fp32", "inside If 'choice'"),
    ]
    assert (found.macs, found.uncounted, found.parameters) == (0, ("If",), 17)
    assert [(finding.rule, finding.where) for finding in found.findings] == [
        ("L20", "node 'no_det'"),
        ("L20", "node 'yes_det'"),
    ]
    out = calib("inspect", path).out
    assert "(1) inside If 'choice'" in out
    assert "L20 error  node 'no_det', node 'yes_det': TensorRT has no importer for Det\n" in out
    plan = tmp_path / "plan.toml"
    plan.write_text('[layers]\n"yes_matmul" = "int8"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="matches no layer"):
        inspection.inspect(path, {}, plan)


def test_a_quantized_model_is_linted(tmp_path: Path, calib: Callable[..., Answer]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(conv(sw=np.zeros(16, np.float32)), path)
    found = inspection.inspect(path, {}, None)
    (layer,) = found.layers
    assert (layer.precision, layer.activations, layer.weights) == ("int8", ("x",), ("w 16x16x3x3",))
    assert (layer.parameters, layer.macs) == (16 * 16 * 9, 2 * 16 * 6 * 6 * 16 * 9)
    assert (found.parameters, found.macs) == (layer.parameters, layer.macs)
    assert [finding.rule for finding in found.findings] == ["L01"]
    assert "L01 error  node 'DQ_wd': 16 of its 16 scales are not positive (0)\n" in calib("inspect", path).out
    plan = tmp_path / "plan.toml"
    plan.write_text("", encoding="utf-8")
    assert_refused(calib("inspect", path, "--plan", plan), "has Q/DQ already")
    onnx.save(
        graph([*pair("x", "a"), node("Conv", ["a", "wf"], ["y"], "layer")], wf=np.ones((16, 16, 1, 1), np.float32)),
        path,
    )
    (layer,) = inspection.inspect(path, {}, None).layers
    assert (layer.precision, layer.reason) == ("fp32", "only one operand has Q/DQ")


@pytest.mark.parametrize("option", ["x", "x=1x", "x=1x-3", "x=axb", "=3", "x=0"])
def test_a_shape_that_is_none(option: str, tmp_path: Path, calib: Callable[..., Answer]) -> None:
    answer = calib("inspect", text_model(tmp_path / "m.onnx"), "--shape", option)
    assert_refused(answer, f"--shape {option} must be an input and its sizes, like x=1x3x48x320")


def test_shapes_of_several_inputs() -> None:
    found = cli_inspect.parse_shapes(["x=1x3x48x320", "a=b=7", "number="])
    assert found == {"x": (1, 3, 48, 320), "a=b": (7,), "number": ()}


TENSORRT_10_15 = """
AffineGrid Bernoulli BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im Compress
ConcatFromSequence ConvInteger DFT Det DynamicQuantizeLinear ImageDecoder MatMulInteger MaxRoiPool MaxUnpool
MelWeightMatrix Multinomial NegativeLogLikelihoodLoss Optional OptionalGetElement OptionalHasElement
QLinearConv QLinearMatMul RegexFullMatch SequenceAt SequenceConstruct SequenceEmpty SequenceErase
SequenceInsert SequenceLength SequenceMap SoftmaxCrossEntropyLoss SplitToSequence StringConcat
StringNormalizer StringSplit TfIdfVectorizer Unique
"""  # the rows with an N in onnx-tensorrt's docs/operators.md


def test_the_table_of_operators_is_that_of_both_parsers() -> None:
    table = set(operators.UNSUPPORTED)
    assert all(operators.UNSUPPORTED.values())
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    assert {name for name in names if not rtx.supports(name)} == table & names
    assert not any(map(rtx.supports, table))
    newer = {"BitCast", "CumProd", "SwiGLU"}  # than opset 24
    assert set(TENSORRT_10_15.split()) == table - newer - {"DeformConv"}, "DeformConv is a plugin of TensorRT's"


def one_operator(domain: str, operator: str, kind: int = TensorProto.FLOAT, **attributes) -> onnx.ModelProto:
    model = graph([node(operator, ["x"], ["y"], "one", domain=domain, **attributes)], x=(kind, (3, 3)))
    model.opset_import.extend([helper.make_opsetid(domain, 1)] if domain else [])
    return model


def with_function() -> onnx.ModelProto:
    model = one_operator("mine", "Twice")
    body = [node("Add", ["a", "a"], ["b"], "add")]
    model.functions.append(helper.make_function("mine", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 19)]))
    return model


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        (one_operator("", "Relu"), ""),
        (one_operator("com.microsoft", "Gelu"), ""),
        (with_function(), ""),
        (one_operator("com.microsoft", "QuickGelu"), "it comes from ONNX Runtime's optimizer"),
        (one_operator("ai.onnx.ml", "Normalizer"), "it is no neural network's"),
        (one_operator("mine", "Foo"), "load a TensorRT plugin named Foo"),
        (one_operator("", "Det"), "write the determinant out"),
    ],
)
def test_the_parser_finds_operators_by_name_or_not(model: onnx.ModelProto, advice: str) -> None:
    findings = operators.check(ir.from_proto(model))
    assert [finding.fix[: len(advice)] for finding in findings] == ([advice] if advice else [])
    assert bool(rtx.build(model).error) == bool(advice)


TYPES = (
    *("BFLOAT16", "BOOL", "COMPLEX64", "DOUBLE", "FLOAT16", "INT8", "INT16", "INT32", "INT64", "STRING"),
    *("UINT8", "UINT16", "UINT32", "UINT64"),
)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("place", ["input", "inside", "output"])
def test_types_that_the_parser_takes(name: str, place: str) -> None:
    kind = getattr(TensorProto, name)
    back = node("Cast", ["i"], ["y"], "back", to=TensorProto.FLOAT)
    model = {
        "input": lambda: one_operator("", "Cast", kind, to=TensorProto.FLOAT),
        "inside": lambda: graph([node("Cast", ["x"], ["i"], "there", to=kind), back], x=(TensorProto.FLOAT, (3, 3))),
        "output": lambda: graph([node("Cast", ["x"], ["y"], "there", to=kind)], x=(TensorProto.FLOAT, (3, 3)), y=kind),
    }[place]()
    findings = operators.check(shapes.infer(ir.from_proto(model), {}))
    assert bool(rtx.build(model).error) == any(finding.severity == "error" for finding in findings)
    assert [finding.rule for finding in findings] == (["L22"] if name == "DOUBLE" else ["L21"] * len(findings))
