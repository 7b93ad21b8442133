"""Random graphs: whatever the shapes, opsets and quirks, the quantized model is valid and as near as its scales allow."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from onnx import helper, numpy_helper

from calib import verify
from calib.errors import DataError
from calib.graph import layers
from calib.plan import Plan
from calib.qdq import Form
from calib.runtime import ort

from .checked import FORMS, Compared, Prepared, check, prepare, run, within
from .error_bounds import bounds
from .random_graphs import QUIRKS, SAMPLES, Graph, draw, graphs


def planned(kind: str) -> Callable[[ir.Model], Plan]:
    """Return what chooses a plan: the default one, all layers by name, or a third of them each in a type."""

    def choose(model: ir.Model) -> Plan:
        names = [layer.name for layer in layers.find(model)]
        mixed = {name: ("fp32", "int8", "fp16")[index % 3] for index, name in enumerate(names)}
        return Plan(layers={"default": {}, "all": {"*": "int8"}, "mixed": mixed}[kind])

    return choose


def quantize_and_check(graph: Graph) -> list[Compared]:
    proto, samples = graph.wild(), graph.samples()
    try:
        prepared = prepare(proto, samples, planned(graph.plan))
    except DataError as error:
        if "is zero for every sample, so it has no INT8 scale" in str(error):
            return []  # a layer reads nothing but zeros
        raise
    return check(prepared, proto, samples, graph.plain())


def test_every_operator_opset_and_quirk_is_drawn() -> None:
    drawn = [draw(Random(seed)) for seed in range(200)]
    operators = {node.op_type for graph in drawn for node in graph.nodes}
    computing = (
        "Conv ConvTranspose Gemm MatMul BatchNormalization LayerNormalization Softmax Sigmoid Relu Clip HardSwish"
    )
    moving = "Add Mul Concat MaxPool AveragePool Reshape Transpose Resize Split Slice Gather Pad ReduceMean Identity"
    assert operators >= {*computing.split(), *moving.split()}
    assert {graph.opset for graph in drawn} == set(range(11, 22))
    assert {quirk for graph in drawn for quirk in graph.quirks} == set(QUIRKS)
    assert {graph.batch for graph in drawn} == {None, SAMPLES}
    assert any(graph.ids for graph in drawn)


# The same graphs on every machine: a change is judged by what it does, not by the draw. Other draws: remove derandomize.
@settings(max_examples=120, derandomize=True)
@given(graphs())
def test_a_quantized_graph_is_as_near_as_its_scales_allow(graph: Graph) -> None:
    quantize_and_check(graph)


def test_sizes_from_before_the_batch_was_made_free_are_not_believed() -> None:
    """A common edit: the input's 1 becomes "N", and what the file says of inner tensors is left."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"], "gemm"),
        helper.make_node("Reshape", ["a", "parts"], ["b"], "split"),
        helper.make_node("Shape", ["b"], ["sizes"], "sizes"),
        helper.make_node("Slice", ["sizes", "zero", "one"], ["batch"], "batch"),
        helper.make_node("Concat", ["batch", "eight"], ["shape"], "shape", axis=0),
        helper.make_node("Reshape", ["b", "shape"], ["y"], "join"),
    ]
    numbers = {"parts": [-1, 4, 2], "zero": [0], "one": [1], "eight": [8]}
    weights = [numpy_helper.from_array(diagonal(8, 8), "w")]
    weights += [numpy_helper.from_array(np.int64(values), name) for name, values in numbers.items()]
    free = [helper.make_tensor_value_info(name, 1, ("N", 8)) for name in ("x", "y")]
    stale = [helper.make_tensor_value_info("a", 1, (1, 8)), helper.make_tensor_value_info("b", 1, (1, 4, 2))]
    graph = helper.make_graph(nodes, "freed", free[:1], free[1:], weights, value_info=stale)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    samples = {"x": np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)}
    assert len(check(prepare(proto, samples), proto, samples)) == len(FORMS)


@pytest.mark.parametrize("seed", [13, 16, 25, 30, 38, 46, 49, 62])
def test_tensorrt_builds_random_graphs_as_planned(seed: int, tmp_path: Path) -> None:
    graph = draw(Random(seed))
    prepared = prepare(graph.wild(), graph.samples(), planned(graph.plan))
    for form in FORMS[0], FORMS[2], FORMS[3]:
        quantized = prepared.quantize(form)
        ir.save(quantized.model, tmp_path / "model.onnx")
        built = {layer.name: layer for layer in verify.verify(tmp_path / "model.onnx").layers}
        for layer in quantized.placement.int8:
            assert built[layer.name].asked == "int8"
            assert layer.op_type == "ConvTranspose" or not built[layer.name].failed, built[layer.name]


# That the bound is no larger than it must be


def diagonal(rows: int, columns: int) -> np.ndarray:
    """A matrix with one large entry a row, of rows that differ in size by 100."""
    draws = np.random.default_rng(rows)
    matrix = np.eye(rows, columns) + draws.normal(0, 0.02, (rows, columns))
    return (matrix * np.geomspace(0.02, 2, rows)[:, None]).astype(np.float32)


@pytest.fixture(scope="module")
def every_layer() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model with an output after each kind of layer."""
    weights = {
        "w_conv": diagonal(4, 4).reshape(4, 4, 1, 1),
        "b_conv": np.array([0.3, -0.5, 0.7, 0.2], np.float32),
        "w_add": diagonal(4, 4)[::-1].reshape(4, 4, 1, 1).copy(),
        "w_matmul": diagonal(8, 8).T.copy(),
        "w_gemm": diagonal(8, 8),
        "b_gemm": np.linspace(-1, 1, 8, dtype=np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w_conv", "b_conv"], ["conv"], "conv"),
        helper.make_node("Conv", ["x", "w_add"], ["c"], "before_add"),
        helper.make_node("Add", ["c", "x"], ["add"], "add"),
        helper.make_node("MatMul", ["z", "w_matmul"], ["matmul"], "matmul"),
        helper.make_node("MatMul", ["x", "z"], ["product"], "product"),
        helper.make_node("ReduceMean", ["z"], ["means"], "mean", axes=[1, 2], keepdims=0),
        helper.make_node("Gemm", ["means", "w_gemm", "b_gemm"], ["gemm"], "gemm", transB=1),
    ]
    shapes = {"x": (64, 4, 8, 8), "z": (64, 4, 8, 8)}
    outputs = {"conv": shapes["x"], "add": shapes["x"], "matmul": shapes["x"], "product": shapes["x"], "gemm": (64, 8)}
    graph = helper.make_graph(
        nodes,
        "every_layer",
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, 1, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    draws = np.random.default_rng(0)
    samples = {name: draws.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), samples


Change = Callable[[onnx.ModelProto], None]


def scaled(name: str, factor: float, channel: int | None = None) -> Change:
    """Multiply a scale, in the types in which it is written."""

    def change(proto: onnx.ModelProto) -> None:
        found = [tensor for tensor in proto.graph.initializer if tensor.name.startswith(f"{name}_scale")]
        assert found
        for tensor in found:
            array = numpy_helper.to_array(tensor).copy()
            array[... if channel is None else channel] *= array.dtype.type(factor)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    return change


def axis_swapped(weight: str) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        (node,) = (node for node in proto.graph.node if f"{weight}_int8" in node.input)
        (axis,) = (attribute for attribute in node.attribute if attribute.name == "axis")
        axis.i = 1 - axis.i

    return change


def requantized(weight: str, axis: int | None) -> Change:
    """Quantize a weight with scales along another axis, or one for all."""

    def change(proto: onnx.ModelProto) -> None:
        tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
        codes, scales = (numpy_helper.to_array(tensors[f"{weight}_{part}"]) for part in ("int8", "scale"))
        (node,) = (node for node in proto.graph.node if f"{weight}_int8" in node.input)
        own = next(attribute.i for attribute in node.attribute if attribute.name == "axis")
        values = codes * scales.reshape([-1 if i == own else 1 for i in range(codes.ndim)])
        moving = tuple(i for i in range(values.ndim) if i != axis)
        found = np.abs(values).max(axis=moving, keepdims=True) / np.float32(127)
        del node.attribute[:]
        if axis is not None:
            node.attribute.append(helper.make_attribute("axis", axis))
        shape = (-1,) if axis is not None else ()
        for part, array in ("int8", np.rint(values / found).astype(np.int8)), ("scale", found.reshape(shape)):
            tensors[f"{weight}_{part}"].CopyFrom(numpy_helper.from_array(array, f"{weight}_{part}"))

    return change


def without_bias(layer: str) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        (node,) = (node for node in proto.graph.node if node.name == layer)
        del node.input[2]

    return change


def zero_point_of_one(tensor: str) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.initializer.append(numpy_helper.from_array(np.ones((), np.int8), "one"))
        (node,) = (n for n in proto.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == tensor)
        node.input[2] = "one"

    return change


SCALES = {
    **{f"scale of {name} doubled": scaled(name, 2) for name in ("x", "z", "means")},
    **{f"scale of {name} halved": scaled(name, 0.5) for name in ("x", "z", "means")},
    **{f"scale of {name} 3 % off": scaled(name, 1.03) for name in ("w_conv", "w_add", "w_matmul", "w_gemm")},
    **{f"scale of channel {channel} doubled": scaled("w_matmul", 2, channel) for channel in range(8)},
}
CHANGES = {
    **{f"axis of {name} swapped": axis_swapped(name) for name in ("w_conv", "w_add", "w_matmul", "w_gemm")},
    **{f"{name} per tensor": requantized(name, None) for name in ("w_conv", "w_add", "w_matmul", "w_gemm")},
    "w_matmul along its inputs": requantized("w_matmul", 0),
    "w_gemm along its inputs": requantized("w_gemm", 1),
    **{f"{name} without its bias": without_bias(name) for name in ("conv", "gemm")},
    "zero point of x": zero_point_of_one("x"),
}


@pytest.fixture(scope="module")
def prepared(every_layer: tuple[onnx.ModelProto, dict[str, np.ndarray]]) -> Prepared:
    return prepare(*every_layer)


def test_the_model_whose_changes_are_caught_is_right(
    every_layer: tuple[onnx.ModelProto, dict[str, np.ndarray]], prepared: Prepared
) -> None:
    for compared in check(prepared, *every_layer):
        assert len(compared.quantized.placement.int8) == 5
        assert 0.4 < compared.used < 1


@pytest.mark.parametrize(
    ("form", "name"),
    [
        *((FORMS[0], name) for name in (*SCALES, *CHANGES)),
        *((FORMS[2], name) for name in SCALES if "means" not in name),
    ],
    ids=lambda value: value.rest if isinstance(value, Form) else value,
)
def test_the_bound_catches(
    form: Form, name: str, every_layer: tuple[onnx.ModelProto, dict[str, np.ndarray]], prepared: Prepared
) -> None:
    proto, samples = every_layer
    quantized = prepared.quantize(form)
    changed = ir.to_proto(quantized.model)
    {**SCALES, **CHANGES}[name](changed)
    allowed = bounds(prepared.model, quantized, prepared.scales, samples)
    with pytest.raises(AssertionError, match="the bound is"):
        within(run(changed, samples), run(proto, samples), allowed)


def test_the_runtime_runs_qdq_as_written() -> None:
    """ONNX Runtime 1.32 moves Q/DQ up through a Transpose, in front of a graph output, unless it is told not to."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["inner"], "first"),
        helper.make_node("Transpose", ["inner"], ["turned"], "turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["turned", "w"], ["y"], "second"),
    ]
    infos = [helper.make_tensor_value_info(name, 1, (2, 4, 4)) for name in ("x", "inner", "y")]
    weights = [numpy_helper.from_array(diagonal(4, 4), "w")]
    graph = helper.make_graph(nodes, "turned", infos[:1], infos[1:], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    samples = {"x": np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)}
    model = prepare(proto, samples).quantize(FORMS[0]).model
    found, as_written = ort.in_memory(model).run(samples), run(ir.to_proto(model), samples)
    for name, array in as_written.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
