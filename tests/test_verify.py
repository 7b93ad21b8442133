"""`calib verify` on real builds: TensorRT-RTX compiles on the CPU."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib import verify
from calib.errors import ConfigError, DataError, ModelError
from calib.profiles import METADATA_KEY, Profile, encode
from calib.verify import compare, listing
from calib.verify.asked import Asked, Operand
from calib.verify.build import Engine

from .conftest import Answer, assert_refused, run_calib

Calib = Callable[..., Answer]
Nodes = list[onnx.NodeProto]
FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16
DRAWS = np.random.default_rng(0)


def codes(*shape: int) -> np.ndarray:
    return DRAWS.integers(-127, 128, shape).astype(np.int8)


def node(op: str, inputs: str, outputs: str, name: str | None = None, **attributes: object) -> onnx.NodeProto:
    """Make a node named after its first output, unless a name is given."""
    made = helper.make_node(op, inputs.split(), outputs.split(), **attributes)
    made.name = outputs.split()[0] if name is None else name
    return made


def qdq(tensor: str, scale: str = "s", zero: str = "z", **attributes: object) -> Nodes:
    """Quantize x to x_dq."""
    return [
        node("QuantizeLinear", f"{tensor} {scale} {zero}", f"{tensor}_q", **attributes),
        node("DequantizeLinear", f"{tensor}_q {scale} {zero}", f"{tensor}_dq", **attributes),
    ]


def weight(axis: int | None, name: str = "w", scale: str = "ws") -> Nodes:
    """Dequantize w to w_dq."""
    return [node("DequantizeLinear", f"{name} {scale}", f"{name}_dq", **({} if axis is None else {"axis": axis}))]


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    weights: dict[str, np.ndarray] | None = None,
    x: Sequence[int | str] = (2, 16, 12, 12),
    *,
    kind: int = FLOAT,
    metadata: dict[str, str] | None = None,
    external: bool = False,
) -> Path:
    """Write a model of x that ends in y."""
    dtype = np.float16 if kind == HALF else np.float32
    constants = {"s": np.asarray(0.02, dtype), "s2": np.asarray(0.03, dtype), "z": np.int8(0), **(weights or {})}
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", kind, x)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path, save_as_external_data=external, size_threshold=0, location="weights.bin")
    return path


def conv(x: str = "x_dq", w: str = "w_dq", y: str = "y", name: str = "conv", **attributes: object) -> onnx.NodeProto:
    return node("Conv", f"{x} {w}", y, name, **attributes)


def scales(count: int, kind: int = FLOAT) -> np.ndarray:
    return np.full(count, 0.01, np.float16 if kind == HALF else np.float32)


CONV = {"w": codes(32, 16, 3, 3), "ws": scales(32), "wf": np.ones((32, 16, 3, 3), np.float32)}
IMAGE = (2, 16, 12, 12)

BUILT = {
    "Conv": ([*qdq("x"), *weight(0), conv()], CONV, IMAGE),
    "depthwise Conv": ([*qdq("x"), *weight(0), conv(group=16)], {"w": codes(16, 1, 3, 3), "ws": scales(16)}, IMAGE),
    "grouped Conv": ([*qdq("x"), *weight(0), conv(group=2)], {"w": codes(32, 8, 3, 3), "ws": scales(32)}, IMAGE),
    "Conv of one channel": ([*qdq("x"), *weight(0), conv()], {"w": codes(1, 16, 1, 1), "ws": scales(1)}, IMAGE),
    "1-D Conv": ([*qdq("x"), *weight(0), conv()], {"w": codes(32, 16, 3), "ws": scales(32)}, (2, 16, 40)),
    "3-D Conv": ([*qdq("x"), *weight(0), conv()], {"w": codes(16, 4, 3, 3, 3), "ws": scales(16)}, (1, 4, 8, 8, 8)),
    "Conv, weights with Q and DQ": ([*qdq("x"), *qdq("wf"), conv(w="wf_dq")], CONV, IMAGE),
    "Gemm": ([*qdq("x"), *weight(1), node("Gemm", "x_dq w_dq", "y")], {"w": codes(16, 8), "ws": scales(8)}, (4, 16)),
    "Gemm, transB": (
        [*qdq("x"), *weight(0), node("Gemm", "x_dq w_dq", "y", transB=1)],
        {"w": codes(8, 16), "ws": scales(8)},
        (4, 16),
    ),
    "MatMul": (
        [*qdq("x"), *weight(1), node("MatMul", "x_dq w_dq", "y")],
        {"w": codes(16, 8), "ws": scales(8)},
        (3, 4, 16),
    ),
    "MatMul, weight transposed": (
        [*qdq("x"), *weight(0), node("Transpose", "w_dq", "w_t", perm=[1, 0]), node("MatMul", "x_dq w_t", "y")],
        {"w": codes(8, 16), "ws": scales(8)},
        (3, 4, 16),
    ),
    "MatMul, weight first": (
        [*qdq("x"), *weight(0), node("MatMul", "w_dq x_dq", "y")],
        {"w": codes(8, 16), "ws": scales(8)},
        (3, 16, 4),
    ),
    "MatMul of two activations": (
        [*qdq("x"), node("Transpose", "x_dq", "t", perm=[0, 2, 1]), node("MatMul", "x_dq t", "y")],
        {},
        (3, 8, 16),
    ),
    "MatMul of a tensor with itself": ([*qdq("x"), node("MatMul", "x_dq x_dq", "y")], {}, (3, 16, 16)),
}
MOVED = {
    "Cast": [node("Cast", "x_dq", "m", to=FLOAT)],
    "Concat": [node("Concat", "x_dq x_dq", "m", axis=2)],
    "DepthToSpace": [node("DepthToSpace", "x_dq", "d", blocksize=2), node("Concat", "d d d d", "m", axis=1)],
    "MaxPool": [node("MaxPool", "x_dq", "m", kernel_shape=[2, 2])],
    "Pad": [node("Pad", "x_dq pads", "m")],
    "Tile": [node("Tile", "x_dq twice", "m")],
    "Expand": [node("Expand", "x_dq larger", "m")],
    "SpaceToDepth": [node("SpaceToDepth", "x_dq", "d", blocksize=2), node("DepthToSpace", "d", "m", blocksize=2)],
    "Dropout": [node("Dropout", "x_dq", "m")],
    "Reshape": [node("Reshape", "x_dq shape", "m")],
    "Slice": [node("Slice", "x_dq one eight two", "m")],
    "Split": [node("Split", "x_dq", "m n", axis=2, num_outputs=2)],
    "Transpose": [node("Transpose", "x_dq", "m", perm=[0, 1, 3, 2])],
}
FLOAT_INSTEAD = {
    "weight alone": ([*weight(0), conv(x="x")], CONV, "its activation 'x' has no Q/DQ"),
    "Relu between": (
        [*qdq("x"), node("Relu", "x_dq", "r", "rectify"), *weight(0), conv(x="r")],
        CONV,
        "Relu 'rectify' stands",
    ),
    "scale per channel on the activation": (
        [*qdq("x", "cs", "cz", axis=1), *weight(0), conv()],
        {**CONV, "cs": scales(16), "cz": np.zeros(16, np.int8)},
        "'x_dq' has a scale per channel",
    ),
    "weight's scales along the wrong axis": (
        [*qdq("x"), *weight(1), conv()],
        {**CONV, "ws": scales(16)},
        "'w_dq' has scales along axis 1; its output channels lie along axis 0",
    ),
    "ConvTranspose": (
        [*qdq("x"), *weight(None), node("ConvTranspose", "x_dq w_dq", "y", strides=[2, 2])],
        {"w": codes(16, 8, 2, 2), "ws": np.float32(0.01)},
        "no INT8 kernel for ConvTranspose",
    ),
}


@pytest.mark.parametrize("name", BUILT)
def test_built_in_int8(tmp_path: Path, name: str) -> None:
    nodes, weights, x = BUILT[name]
    found = verify.verify(save(tmp_path / "m.onnx", nodes, weights, x))
    assert [(layer.asked, layer.built, layer.reason) for layer in found.layers] == [("int8", "int8", "")]
    assert not found.failed


@pytest.mark.parametrize("name", MOVED)
def test_int8_passes_operators_that_move_values(tmp_path: Path, name: str) -> None:
    constants = {
        "one": np.array([1]),
        "two": np.array([2]),
        "eight": np.array([8]),
        "pads": np.array([0, 0, 1, 1] * 2),
        "shape": np.array([2, 16, 9, 16]),
        "twice": np.array([1, 1, 2, 1]),
        "larger": np.array([2, 16, 12, 12]),
    }
    nodes = [*qdq("x"), *MOVED[name], *weight(0), conv(x="m")]
    layer = verify.verify(save(tmp_path / "m.onnx", nodes, {**CONV, **constants})).layers[0]
    assert (layer.built, layer.reason) == ("int8", "")


@pytest.mark.parametrize("name", FLOAT_INSTEAD)
def test_asked_in_int8_and_built_in_float(tmp_path: Path, calib: Calib, name: str) -> None:
    nodes, weights, reason = FLOAT_INSTEAD[name]
    answer = calib("verify", save(tmp_path / "m.onnx", nodes, weights), "--json")
    (layer,) = json.loads(answer.out)["layers"]
    assert (answer.status, layer["asked"], layer["built"]) == (3, "int8", "fp32")
    assert reason in layer["reason"]


@pytest.mark.parametrize(("axis", "built"), [(1, "fp16"), (None, "int8")])
def test_packed_projection(tmp_path: Path, axis: int | None, built: str) -> None:
    # Query, key and value from one MatMul: TensorRT-RTX cuts the weight and dequantizes first. Found in PP-OCRv4.
    parts = [node("Gather", f"t i{i}", name, axis=0) for i, name in enumerate("qkv")]
    nodes = [
        *qdq("x"),
        *weight(axis),
        node("MatMul", "x_dq w_dq", "m", "project"),
        node("Reshape", "m five", "r"),
        node("Transpose", "r", "t", perm=[2, 0, 3, 1, 4]),
        *parts,
        node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
        node("MatMul", "q kt", "a", "attend"),
        node("Softmax", "a", "p"),
        node("MatMul", "p v", "y", "mix"),
    ]
    weights = {
        "w": codes(64, 192),
        "ws": np.float16(0.01) if axis is None else scales(192, HALF),
        "five": np.array([2, -1, 3, 4, 16]),
        **{f"i{i}": np.int64(i) for i in range(3)},
    }
    found = verify.verify(save(tmp_path / "m.onnx", nodes, weights, (2, 40, 64), kind=HALF))
    layers = {layer.name: layer for layer in found.layers}
    assert layers["project"].built == built
    assert ("cut into several tensors" in layers["project"].reason) == (built == "fp16")
    assert [layers[name].built for name in ("attend", "mix")] == ["fp16", "fp16"]
    assert len(found.failed) == (built == "fp16")


def test_only_the_activation_is_quantized(tmp_path: Path, calib: Calib) -> None:
    # A layer that a plan keeps in float may read a tensor that others read in INT8.
    answer = calib("verify", save(tmp_path / "m.onnx", [*qdq("x"), conv(w="wf")], CONV))
    assert answer.status == 0
    assert "only 'x_dq' is quantized, 'wf' is not" in " ".join(answer.out.split())
    assert "No layer is asked in INT8" in answer.out


def test_mixed_plan(tmp_path: Path, calib: Calib) -> None:
    nodes = [
        *qdq("x"),
        *weight(0),
        conv(y="c"),
        conv("c", "v", "d", "head"),
        *qdq("d", "s2"),
        *weight(1, "u", "us"),
        node("MatMul", "d_dq u_dq", "y", "last"),
    ]
    weights = {**CONV, "v": np.ones((8, 32, 1, 1), np.float32), "u": codes(10, 4), "us": scales(4)}
    path = save(tmp_path / "m.onnx", nodes, weights)
    answer = calib("verify", path, "--all", "-o", tmp_path / "v.json")
    assert answer.status == 0, answer.err
    assert "All 2 layers asked in INT8 were built in INT8" in answer.out
    found = verify.load(tmp_path / "v.json")
    assert [(layer.name, layer.asked, layer.built) for layer in found.layers] == [
        ("conv", "int8", "int8"),
        ("head", "fp32", "fp32"),
        ("last", "int8", "int8"),
    ]
    for layer in found.layers:
        assert layer.name in answer.out
        (kernel,) = [kernel for kernel in found.build.kernels if kernel.name in layer.kernels]
        assert layer.name in kernel.nodes
    assert found.builder == "TensorRT-RTX"
    assert found.build.seconds > 0
    assert sum(found.build.types().values()) == len(found.build.kernels)


def test_fp16_rest(tmp_path: Path) -> None:
    nodes = [*qdq("x"), *weight(0), conv(y="c"), conv("c", "v", "y", "head")]
    weights = {"w": codes(32, 16, 3, 3), "ws": scales(32, HALF), "v": np.ones((8, 32, 1, 1), np.float16)}
    found = verify.verify(save(tmp_path / "m.onnx", nodes, weights, kind=HALF))
    assert [(layer.asked, layer.built) for layer in found.layers] == [("int8", "int8"), ("fp16", "fp16")]


def test_int8_bridges_fp32_to_fp16(tmp_path: Path) -> None:
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q half z", "d"),
        *weight(0),
        conv(x="d", y="c"),
        node("Cast", "c", "y", to=FLOAT),
    ]
    weights = {"w": codes(32, 16, 3, 3), "ws": scales(32, HALF), "half": np.float16(0.02)}
    (layer,) = verify.verify(save(tmp_path / "m.onnx", nodes, weights)).layers
    assert (layer.asked, layer.built) == ("int8", "int8")


NAMES = (
    "",
    "conv",
    "a b",
    "a]b[c",
    "[ONNX Layer: conv]",
    "x: y",
    "new\nline",
    "calib_n7",
    "Metadata: ",
    '"q"',
    "ünï",
    "n" * 3000,
)


def test_any_name_is_mapped_back(tmp_path: Path, calib: Calib) -> None:
    # A chain of Convs of which every second is in float; whatever they are called, each gets its own answer.
    nodes: Nodes = [*weight(0)]
    tensor = "x"
    for index, name in enumerate((*NAMES, *NAMES)):
        if index % 2 == 0:
            nodes += qdq(tensor)
        reads = f"{tensor}_dq" if index % 2 == 0 else tensor
        last = index == 2 * len(NAMES) - 1
        nodes.append(conv(reads, "w_dq" if index % 2 == 0 else "v", "y" if last else f"t{index}", name))
        tensor = f"t{index}"
    weights = {"w": codes(16, 16, 1, 1), "ws": scales(16), "v": np.ones((16, 16, 1, 1), np.float32)}
    path = save(tmp_path / "m.onnx", nodes, weights)
    found = verify.verify(path)
    assert [(layer.asked, layer.built) for layer in found.layers] == [("int8", "int8"), ("fp32", "fp32")] * len(NAMES)
    labels = [layer.name for layer in found.layers]
    assert len(set(labels)) == len(labels)
    for label, name in zip(labels, (*NAMES, *NAMES), strict=True):
        assert label.startswith(f"{name or 'Conv'} (node ")
    assert calib("verify", path, "--all").status == 0


def test_equal_layers_are_merged(tmp_path: Path) -> None:
    # Each has its own Q/DQ; TensorRT keeps one kernel, which names one of them.
    nodes = [
        *qdq("x"),
        *weight(0),
        conv(y="a", name="one"),
        node("QuantizeLinear", "x s z", "q_too"),
        node("DequantizeLinear", "q_too s z", "x_too"),
        node("DequantizeLinear", "w ws", "w_too", axis=0),
        conv("x_too", "w_too", "b", "two"),
        node("Relu", "a", "r"),
        node("Add", "r b", "y"),
    ]
    found = verify.verify(save(tmp_path / "m.onnx", nodes, CONV))
    assert [layer.built for layer in found.layers] == ["int8", "int8"]
    assert found.layers[0].kernels == found.layers[1].kernels


def test_layers_that_need_no_kernel(tmp_path: Path) -> None:
    nodes = [*qdq("x"), *weight(0), conv(name="dead", y="unread"), node("Relu", "x", "y")]
    found = verify.verify(save(tmp_path / "m.onnx", nodes, CONV))
    assert [(layer.asked, layer.built) for layer in found.layers] == [("int8", "removed")]
    assert not found.failed


@pytest.mark.parametrize("identity", ["x_dq", "x"])
def test_residual_add(tmp_path: Path, identity: str) -> None:
    weights = {"w": codes(16, 16, 3, 3), "ws": scales(16)}
    nodes = [*qdq("x"), *weight(0), conv(y="c", pads=[1] * 4), node("Add", f"c {identity}", "y", "join")]
    found = verify.verify(save(tmp_path / "m.onnx", nodes, weights))
    assert [(add.name, add.built) for add in found.residuals] == ([("join", "int8")] if identity == "x_dq" else [])


def test_layer_in_a_subgraph(tmp_path: Path) -> None:
    def branch(name: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{name}_out", FLOAT, None)
        return helper.make_graph([conv(y=f"{name}_out", name=name)], name, [], [out])

    nodes = [
        *qdq("x"),
        *weight(0),
        node("ReduceMax", "x", "top", keepdims=0),
        node("Greater", "top s", "yes"),
        node("If", "yes", "y", then_branch=branch("then"), else_branch=branch("else")),
    ]
    found = verify.verify(save(tmp_path / "m.onnx", nodes, CONV))
    assert {(layer.name, layer.asked, layer.built) for layer in found.layers} == {
        ("then", "int8", "fp32"),
        ("else", "int8", "fp32"),
    }
    assert all("lies in a subgraph" in layer.reason for layer in found.layers)


def test_external_weights_are_read_from_beside_the_model(tmp_path: Path) -> None:
    nodes, weights, x = BUILT["Conv"]
    path = save(tmp_path / "m.onnx", nodes, weights, x, external=True)
    assert (tmp_path / "weights.bin").is_file()
    assert not verify.verify(path).failed
    assert path.stat().st_size < 2000


def test_against_the_float_model(tmp_path: Path, calib: Calib) -> None:
    nodes, weights, x = BUILT["Conv"]
    quantized = save(tmp_path / "q.onnx", nodes, weights, x)
    plain = save(tmp_path / "f.onnx", [conv("x", "wf")], CONV)
    answer = calib("verify", quantized, "--against", plain, "--json", "-o", tmp_path / "v.json")
    found = json.loads(answer.out)
    assert answer.status == 0
    assert found["against"]["model"] == "f.onnx"
    assert all("int8" not in kernel["inputs"] for kernel in found["against"]["kernels"])
    verify.save(verify.load(tmp_path / "v.json"), tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "v.json").read_bytes()
    assert (
        json.loads((tmp_path / "v.json").read_text()).items()
        >= {key: found[key] for key in ("build", "layers")}.items()
    )
    assert "kernels of the float model" in calib("verify", quantized, "--against", plain).out


DYNAMIC = ("N", 16, 12, "W")


def test_dynamic_shapes(tmp_path: Path, calib: Calib) -> None:
    nodes, weights, _ = BUILT["Conv"]
    path = save(tmp_path / "m.onnx", nodes, weights, DYNAMIC)
    assert_refused(calib("verify", path), "input 'x' has the dynamic shape ?x16x12x?", "--shape x=")
    answer = calib("verify", path, "--shape", "x=1x16x12x8,2x16x12x16,4x16x12x64", "--json")
    assert answer.status == 0
    assert json.loads(answer.out)["build"]["profiles"] == {"x": "1x16x12x8,2x16x12x16,4x16x12x64"}
    assert calib("verify", path, "--shape", "x=2x16x12x16").status == 0


def test_shapes_of_the_metadata(tmp_path: Path) -> None:
    nodes, weights, _ = BUILT["Conv"]
    profile = Profile((1, 16, 12, 8), (2, 16, 12, 16), (4, 16, 12, 64))
    metadata = {METADATA_KEY: encode({"x": profile})}
    path = save(tmp_path / "m.onnx", nodes, weights, DYNAMIC, metadata=metadata)
    assert verify.verify(path).build.profiles == {"x": str(profile)}
    given = Profile(*[(3, 16, 12, 9)] * 3)
    assert verify.verify(path, {"x": given}).build.profiles == {"x": "3x16x12x9"}


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("x=1x16x12x8,2x16x12x16", "must be NAME=MIN,OPT,MAX"),
        ("1x16x12x8", "must be NAME=MIN,OPT,MAX"),
        ("x=4x16x12x8,2x16x12x16,1x16x12x8", "min <= opt <= max"),
        ("x=0x16x12x8", "min <= opt <= max"),
        ("x=2x8x12x16", "'x' is ?x16x12x? and the profile 2x8x12x16 does not fit"),
        ("x=2x16x12", "does not fit"),
        ("z=2x16x12x16", "'z', which is no input of the model; it has x"),
    ],
)
def test_wrong_shapes_are_refused(tmp_path: Path, calib: Calib, option: str, says: str) -> None:
    nodes, weights, _ = BUILT["Conv"]
    assert_refused(calib("verify", save(tmp_path / "m.onnx", nodes, weights, DYNAMIC), "--shape", option), says)


def test_broken_metadata_are_refused(tmp_path: Path) -> None:
    nodes, weights, _ = BUILT["Conv"]
    for text in ("{", "[]", '{"x": {"min": [1]}}', '{"x": {"min": [2], "opt": [1], "max": [1]}}'):
        path = save(tmp_path / "m.onnx", nodes, weights, DYNAMIC, metadata={METADATA_KEY: text})
        with pytest.raises(ModelError, match=r"metadata 'calib.profile' are broken"):
            verify.verify(path)


def test_dimensions_of_one_name(tmp_path: Path) -> None:
    # PaddleOCR's text direction classifier calls its height and its width "?", and TensorRT takes them as equal.
    nodes, weights, _ = BUILT["Conv"]
    path = save(tmp_path / "m.onnx", nodes, weights, (1, 16, "?", "?"))
    with pytest.raises(ModelError, match="give them names of their own"):
        verify.verify(path, {"x": Profile(*[(1, 16, 12, 24)] * 3)})


REFUSED = {
    "zero scale": ([*qdq("x", "zero"), *weight(0), conv()], {"zero": np.float32(0)}, ("L01", "'x_q'", "not positive")),
    "FP16 scale that underflows": (
        [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q tiny z", "y", "bridge")],
        {"tiny": np.float16(2e-8)},
        ("L01", "'bridge'", "not positive"),
    ),
    "zero-point": ([*qdq("x", "s", "zp"), *weight(0), conv()], {"zp": np.int8(3)}, ("'x_q'", "symmetric")),
    "quantized bias": (
        [*qdq("x"), *weight(0), *weight(0, "b", "bs"), node("Conv", "x_dq w_dq b_dq", "y")],
        {"b": np.zeros(32, np.int32), "bs": scales(32)},
        ("L14", "'b_dq'", "leave the bias in float"),
    ),
    "mixed types": (
        [node("Cast", "x", "h", to=HALF), node("Add", "x h", "y", "join")],
        {},
        ("L11", "'join'", "converts nothing by itself"),
    ),
    "unknown operator": (
        [node("FusedConv", "x wf", "y", "fused", domain="com.microsoft")],
        {},
        ("'fused'", "no such operator"),
    ),
    "integer operator": (
        [
            node("QuantizeLinear", "x s z", "q"),
            node("ConvInteger", "q w", "i", "whole"),
            node("Cast", "i", "y", to=FLOAT),
        ],
        {},
        ("'whole'", "between DequantizeLinear and QuantizeLinear"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_build_failures_say_where_and_what_helps(tmp_path: Path, calib: Calib, name: str) -> None:
    nodes, weights, says = REFUSED[name]
    answer = calib("verify", save(tmp_path / "m.onnx", nodes, {**CONV, **weights}), "--json")
    assert_refused(answer, "TensorRT cannot build", *says)
    assert answer.out == ""
    assert "calib_n" not in answer.err


def test_what_is_no_model_is_refused(tmp_path: Path, calib: Calib) -> None:
    assert_refused(calib("verify", tmp_path / "none.onnx"), "none.onnx does not exist")
    (tmp_path / "text.onnx").write_text("hello")
    assert_refused(calib("verify", tmp_path / "text.onnx"), "is not an ONNX model")


def test_broken_verification_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('{"format": "calib-verification", "version": 1, "builder": "x"}')
    with pytest.raises(DataError, match="not a valid verification"):
        verify.load(tmp_path / "v.json")


def test_profile_checks_its_shapes() -> None:
    with pytest.raises(ConfigError, match="one rank"):
        Profile((1, 2), (1, 2, 3), (1, 2, 3))


# Of TensorRT-RTX's list for PP-OCRv4's recognizer with plain Q/DQ: its first Conv (node 49); a packed projection (416) whose
# weight is dequantized, to be multiplied in float; and a MatMul of two activations (440).
LOG = Path(__file__).parent / "golden" / "tensorrt_rtx_1_7_layers.txt"


def kernel(name: str, kind: str, inputs: str, **other: object) -> dict[str, object]:
    """Make an entry of the engine inspector's JSON; `inputs` is the format of each, by semicolons."""
    read = [{"Name": "t", "Dimensions": [8, 16, 4], "Format/Datatype": text} for text in inputs.split(";")]
    return {"Name": name, "LayerType": kind, "Inputs": read, "Outputs": read[:1], **other}


WIDE = "Thirty-two wide channel vectorized row major Int8 format"
WEIGHTS = {"Type": "Int8", "Count": 4608}
INSPECTED = {
    "8.6, Conv": (kernel("calib_n1 + calib_n2", "CaskConvolution", WIDE, Weights=WEIGHTS), "int8"),
    "8.6, float Conv": (
        kernel(
            "calib_n1", "CaskConvolution", "Channel major FP16 format where channel % 8 == 0", Weights={"Type": "Half"}
        ),
        "fp16",
    ),
    "8.6, residual in": (kernel("calib_n1", "CaskConvolution", f"{WIDE};{WIDE}", Weights=WEIGHTS), "int8"),
    "8.6, dynamic": (kernel("calib_n1", "CaskConvolution", "N/A due to dynamic shapes", Weights=WEIGHTS), "int8"),
    "8.6, nothing said": (kernel("calib_n1", "CaskConvolution", "N/A due to dynamic shapes"), "unknown"),
    "8.6, hidden": (kernel("{ForeignNode[calib_n1...calib_n9]}", "Myelin", "Row major linear FP16 format"), "unknown"),
    "10, gemm": (
        kernel(
            "__mye1",
            "gemm",
            "Int8",
            Metadata="[ONNX Layer: calib_n1]\x1e[ONNX Layer: calib_n0]",
            TacticName="sm80_i8i8_i8",
        ),
        "int8",
    ),
    "10, gemm of which only the input is known": (kernel("calib_n1", "gemm", "Int8", TacticName="sm80_f16"), "unknown"),
    "10, fusion": (
        kernel("calib_n1", "fusion", "Int8", TacticName="sm80_xmma_gemm_i8f32_i8i32_f32_by_fusion_tactic"),
        "int8",
    ),
    "10, dequantizes first": (kernel("calib_n1", "fusion", "Int8;Half", TacticName="sm80_xmma_gemm_f16"), "fp16"),
    "11, Conv": (
        kernel(
            "calib_n1", "correlation", "", Inputs=[{"Dimensions": [1, 4, 4, 4], "Format": "NHWC", "Datatype": "Int8"}]
        )
        | {
            "Constants": [
                {"Dimensions": [8, 4, 3, 3], "Datatype": "Int8"},
                {"Dimensions": [1, 8, 1, 1], "Datatype": "Float"},
            ]
        },
        "int8",
    ),
}


def asked_int8(node: str, *, needless: bool = False) -> Asked:
    operands = Operand("x", constant=False, dequantized=True), Operand("w", constant=True, dequantized=True)
    return Asked(node, "Conv", "int8", operands, twin=node, needless=needless)


def test_build_log() -> None:
    kernels = listing.from_log(LOG.read_text())
    assert [kernel.type for kernel in kernels] == ["shape_call", "correlation", "kgen", "runtime_fusion", "gemm"]
    assert [kernel.counts for kernel in kernels] == [False, True, True, True, True]
    first = kernels[1]
    assert first.nodes == ("calib_n49", "calib_n48", "calib_n46")
    kinds = [tensor.kind for tensor in (*first.inputs, *first.constants, *first.outputs)]
    assert kinds == ["int8", "int8", "fp32", "fp32", "fp32"]
    assert (first.inputs[0].shape, first.constants[0].shape) == ((-1, 4, 48, -1), (16, 4, 3, 3))
    asked = [asked_int8(f"calib_n{index}", needless=index == 8) for index in (49, 416, 440, 7, 8)]
    labels = {layer.node: f"layer {layer.node.removeprefix('calib_n')}" for layer in asked}
    found = compare.layers(asked, Engine("TensorRT-RTX", "1.7", 1.0, kernels), labels)
    assert [layer.built for layer in found] == ["int8", "fp32", "int8", "unknown", "removed"]
    assert found[0].kernels == ("layer 49_myl0_2",)
    assert "TensorRT-RTX's choice" in found[1].reason
    assert "dequantizes first" in found[1].reason


@pytest.mark.parametrize("name", INSPECTED)
def test_engine_inspector(name: str) -> None:
    # Forms of the JSON as published for TensorRT 8.6 to 11; the control characters are TensorRT's own.
    entry, built = INSPECTED[name]
    text = json.dumps({"Layers": [entry]}).replace("\\u001e", "\x1e")
    engine = Engine("TensorRT", "10", 1.0, listing.from_inspector(text))
    (layer,) = compare.layers([asked_int8("calib_n1")], engine, {"calib_n1": "conv"})
    assert layer.built == built
    assert layer.failed == (built != "int8")


def test_inspector_without_detail_is_refused() -> None:
    with pytest.raises(ModelError, match="DETAILED"):
        listing.from_inspector('{"Layers": ["conv + relu"]}')


def test_a_layer_that_no_kernel_names_is_not_proven() -> None:
    nameless = {**kernel("__mye12", "gemm", "Half"), "Metadata": ""}
    engine = Engine("TensorRT", "10", 1.0, listing.from_inspector(json.dumps({"Layers": [nameless]})))
    (layer,) = compare.layers([asked_int8("calib_n1")], engine, {"calib_n1": "conv"})
    assert (layer.built, layer.failed) == ("unknown", True)


def test_without_tensorrt_the_message_says_what_to_install(
    tmp_path: Path, calib: Calib, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("tensorrt", "tensorrt_rtx"):
        monkeypatch.setitem(sys.modules, package, None)
    nodes, weights, x = BUILT["Conv"]
    assert_refused(calib("verify", save(tmp_path / "m.onnx", nodes, weights, x)), "pip install 'calib[verify]'")


def test_json_is_all_that_standard_output_holds(tmp_path: Path) -> None:
    nodes, weights, x = BUILT["Conv"]
    answer = run_calib("verify", save(tmp_path / "m.onnx", nodes, weights, x), "--json")
    assert json.loads(answer.out)["builder"] == "TensorRT-RTX"
    lean = "import sys, calib.verify; sys.exit(bool({'tensorrt', 'tensorrt_rtx'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", lean], check=False).returncode == 0
