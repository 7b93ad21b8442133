"""Normalization's passes, by their numbers in calib/graph/normalize.py: what each changes, and that outputs stay."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from calib.errors import ModelError
from calib.graph import load, normalize
from calib.graph.normalize import Normalized
from calib.runtime import ort

Array = npt.NDArray[np.generic]
Check = Callable[..., Normalized]


def parsed(text: str, opset: int = 17, **weights: Array) -> onnx.ModelProto:
    """Return a model of its text form; weights are added as initializers, and an output `float[]` gets its shape."""
    domains = f'["" : {opset}, "custom" : 1]' if "custom." in text else f'["" : {opset}]'
    proto = onnx.parser.parse_model(f"<ir_version: 8, opset_import: {domains}> {text}")
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    if "float[] y" in text:
        outputs = onnx.shape_inference.infer_shapes(proto).graph.output
        del proto.graph.output[:]
        proto.graph.output.extend(outputs)
    return proto


def draw(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def norm(channels: int, seed: int = 0) -> dict[str, Array]:
    """Return a BatchNormalization's inputs; the first gamma is 0, the second negative."""
    gamma = draw(channels, seed=seed + 1)
    gamma[:2] = 0, -1.5
    beta, mean, variance = (draw(channels, seed=seed + number) for number in (2, 3, 4))
    return {"gamma": gamma, "beta": beta, "mean": mean, "var": np.abs(variance) + np.float32(0.01)}


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(proto, path)
    return path


def run(model: ir.Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    with ort.in_memory(model) as runner:
        return runner.run(feeds)


def operators(found: Normalized) -> Counter[str]:
    return Counter(node.op_type for node in load.all_nodes(found.model))


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Normalize a model; it must be valid after, and ONNX Runtime's outputs the same, bit for bit or to rounding."""

    def checked(proto: onnx.ModelProto, rtol: float = 1e-5, **feeds: Array) -> Normalized:
        found = normalize.normalize(load.load(saved(proto, tmp_path)))
        onnx.checker.check_model(ir.to_proto(found.model), full_check=True)
        for node in proto.graph.node:
            node.ClearField("name")  # ONNX Runtime loads no two of one name
        with ort.OrtRunner(saved(proto, tmp_path)) as runner:
            before = runner.run(feeds)
        after = run(found.model, feeds)
        assert list(before) == list(after)
        for name, array in before.items():
            assert (array.dtype, array.shape) == (after[name].dtype, after[name].shape)
            np.testing.assert_allclose(array, after[name], rtol=rtol, atol=rtol, err_msg=name)
        return found

    return checked


class TestPass1LocalFunctions:
    def test_are_inlined(self, check: Check) -> None:
        proto = parsed(
            """m (float[N, 4] x) => (float[N, 4] y) { a = custom.act(x) y = custom.act(a) }
            <domain: "custom", opset_import: ["" : 17, "custom" : 1]> act (t) => (u) { i = custom.twice(t) u = Relu(i) }
            <domain: "custom", opset_import: ["" : 17]> twice (t) => (u) { c = Constant <value_float = 2.0> () u = Mul(t, c) }
            """
        )
        found = check(proto, x=draw(3, 4))
        assert operators(found) == {"Mul": 2, "Relu": 2}
        assert not found.model.functions
        assert found.model.opset_imports == {"": 19}
        assert "2 local functions were put in place of their calls" in found.steps

    def test_that_call_each_other_in_a_circle_are_refused(self, tmp_path: Path) -> None:
        proto = parsed(
            """m (float[4] x) => (float[4] y) { y = custom.f(x) }
            <domain: "custom", opset_import: ["custom" : 1]> f (t) => (u) { u = custom.f(t) }"""
        )
        with pytest.raises(ModelError, match=r"cannot be inlined.*export it without functions"):
            normalize.normalize(load.load(saved(proto, tmp_path)))


def test_2_initializers_are_no_inputs(check: Check) -> None:
    proto = parsed("m (float[N, 3] x, float[3, 2] w) => (float[N, 2] y) { y = MatMul(x, w) }", w=draw(3, 2))
    proto.ir_version = 3
    found = check(proto, x=draw(4, 3))
    assert [value.name for value in found.model.graph.inputs] == ["x"]
    assert "1 initializers were taken out of the inputs" in found.steps


def test_3_what_no_output_needs_is_removed(check: Check) -> None:
    proto = parsed(
        """m (float[N, 3] x) => (float[N, 3] y) {
            dead = custom.unknown(x) deader = Exp(dead) y, mask = Dropout(x)
        }""",
        unused=draw(5),
    )
    del proto.graph.node[:2]  # ONNX Runtime does not load an operator that it does not know
    known = check(proto, x=draw(2, 3))
    assert "1 initializers that no node reads were removed" in known.steps
    proto = parsed("m (float[3] x) => (float[3] y) { dead = custom.unknown(x) deader = Exp(dead) y = Relu(x) }", 11)
    found = normalize.normalize(ir.from_proto(proto))
    assert operators(found) == {"Relu": 1}
    assert "custom" not in found.model.opset_imports
    assert "2 nodes that no output needs were removed" in found.steps


class TestPass4Constants:
    def test_become_initializers(self, check: Check) -> None:
        proto = parsed(
            """m (float[2, 3] x) => (float[2, 3] y, int64[2] z, float o) {
                i = Constant <value_ints = [3, 2]> () r = Reshape(x, i) b = Constant <value_floats = [1.5, 2.5]> ()
                a = Add(r, b) o = Constant <value_float = 7.0> ()
                j = Constant <value_ints = [2, 3]> () y = Reshape(a, j) z = Identity(i)
            }"""
        )
        found = check(proto, x=draw(2, 3))
        assert operators(found)["Constant"] == 1, "that which is an output"
        assert {"i", "b", "j"} <= set(found.model.graph.initializers)
        assert "3 Constant nodes became initializers" in found.steps

    def test_in_subgraphs_too(self, check: Check) -> None:
        """Both branches name their weight v and what they make h and y; one reads an outer tensor, one an input."""
        proto = parsed(
            """m (bool c, float[2, 3] x) => (float[2, 2] o) {
                w = Relu(x)
                o = If (c) <
                    then_branch = t () => (float[2, 2] y) { v = Constant <value = float[3, 2] {1, 2, 3, 4, 5, 6}> ()
                        h = Exp(w) y = MatMul(h, v) },
                    else_branch = e () => (float[2, 2] y) { v = Constant <value = float[3, 2] {6, 5, 4, 3, 2, 1}> ()
                        h = Neg(x) y = MatMul(h, v) }
                >
            }""",
            19,
        )
        for chosen in (True, False):
            found = check(proto, c=np.array(chosen), x=draw(2, 3))
            assert "Constant" not in operators(found)
            assert len(found.model.graph.initializers) == 2


class TestPass5Names:
    def test_are_unique(self, check: Check) -> None:
        proto = parsed("m (float[3] x) => (float[3] y) { a = Relu(x) b = Neg(a) c = Neg(b) y = Relu(c) }")
        for node, name in zip(proto.graph.node, ("same", "", "", "same"), strict=True):
            node.name = name
        found = check(proto, x=draw(3))
        assert [node.name for node in found.model.graph] == ["same", "Neg", "Neg_1", "same_1"]
        assert "3 nodes without a name of their own were named" in found.steps

    def test_an_omitted_output_stays_omitted(self, check: Check) -> None:
        proto = parsed(
            "m (float[S, 1, 4] x) => (float[1, 1, 2] h) { , h = GRU <hidden_size = 2> (x, w, r) }",
            w=draw(1, 6, 4),
            r=draw(1, 6, 2, seed=1),
        )
        found = check(proto, x=draw(5, 1, 4))
        (node,) = found.model.graph
        assert [value.name for value in node.outputs] == ["", "h"]

    def test_what_subgraphs_name_alike_is_told_apart(self, check: Check) -> None:
        """The subgraph's a is named like what a later node of the main graph makes."""
        proto = parsed(
            """m (bool c, float[3] x) => (float[3] y) {
                i = If (c) <
                    then_branch = t () => (float[3] o) { a = Neg(x) o = Relu(a) },
                    else_branch = e () => (float[3] o) { a = Abs(x) o = Neg(a) }
                >
                a = Relu(i) y = Sub(a, x)
            }"""
        )
        for chosen in (True, False):
            found = check(proto, c=np.array(chosen), x=draw(3))
            names = [value.name for node in load.all_nodes(found.model) for value in node.outputs]
            assert len(names) == len(set(names))
            assert "a" in {value.name for node in found.model.graph for value in node.outputs}, "the main graph's stays"


class TestPass6Shapes:
    def test_stale_ones_are_replaced(self, check: Check) -> None:
        proto = parsed("m (float[N, 4] x) => (float[N, M] y) { a = Relu(x) b = Transpose(a) y = Transpose(b) }")
        proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 4]))
        proto.graph.value_info.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [7, "N"]))
        found = check(proto, x=draw(2, 4))
        made = {value.name: load.describe(value) for node in found.model.graph for value in node.outputs}
        assert made == {"a": "float32[N, 4]", "b": "float32[4, N]", "y": "float32[N, M]"}
        assert "1 tensors whose type or shape was missing or wrong got the inferred one" in found.steps

    def test_a_size_of_minus_one_is_none(self, check: Check) -> None:
        """Paddle's exporter writes the batch so."""
        proto = parsed("m (float[N, 4] x) => (float[N, 4] y) { a = Relu(x) y = Neg(a) }")
        for value in (proto.graph.input[0], proto.graph.output[0]):
            value.type.tensor_type.shape.dim[0].dim_value = -1
        found = check(proto, x=draw(2, 4))
        assert load.describe(found.model.graph.inputs[0]) == "float32[-1, 4]", "inputs stay as they are"
        assert load.describe(found.model.graph[0].outputs[0]) == "float32[?, 4]"

    def test_missing_ones_are_inferred_from_all_weights(self, check: Check) -> None:
        proto = parsed("m (float[N, 40] x) => (float[N, K] y) { a = MatMul(x, w) y = Relu(a) }", w=draw(40, 30))
        found = check(proto, x=draw(2, 40))
        assert load.describe(found.model.graph[0].outputs[0]) == "float32[N, 30]"

    def test_what_inference_cannot_know_is_kept(self) -> None:
        text = "m (float[N, 4] x) => (float[N, 4] y) { a = custom.unknown(x) b = Relu(a) y = Neg(b) }"
        proto = parsed(text, 19)
        proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, ["N", 4]))
        found = normalize.normalize(ir.from_proto(proto))
        made = {value.name: load.describe(value) for node in found.model.graph for value in node.outputs}
        assert made == dict.fromkeys("aby", "float32[N, 4]")

    def test_a_shape_behind_a_computed_one_is_kept_unless_others_are_wrong(self) -> None:
        text = "m (float[N, 4] x, int64[2] s) => (float[N, 4] y) { a = Relu(x) b = Reshape(a, s) y = Reshape(b, s) }"
        for stated, kept in (
            (["N", 4], "float32[N, 4]"),
            (["N", 5], "float32[?, ?]"),
            ([1, 4], "float32[?, ?]"),
            (["N", 4, 1], "float32[?, ?]"),
        ):
            proto = parsed(text, 19)
            for name, shape in (("a", stated), ("b", ["N", 4])):
                proto.graph.value_info.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
            found = normalize.normalize(ir.from_proto(proto))
            assert load.describe(found.model.graph[1].outputs[0]) == kept

    def test_a_sequence_stays_one(self, check: Check) -> None:
        text = "m (float[4, 2] x) => (float[A, B] y) { s = SplitToSequence(x) y = ConcatFromSequence <axis = 1> (s) }"
        check(parsed(text), x=draw(4, 2))


def half(proto: onnx.ModelProto, kind: int) -> onnx.ModelProto:
    """Return a copy of an FP32 model in FP16 or BF16: inputs, outputs, weights, attributes and subgraphs."""
    result = onnx.ModelProto.FromString(proto.SerializeToString())
    narrow_graph(result.graph, kind)
    return result


def narrow_graph(graph: onnx.GraphProto, kind: int) -> None:
    for tensor in graph.initializer:
        narrow_tensor(tensor, kind)
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = kind
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.name in ("to", "dtype") and attribute.i == TensorProto.FLOAT:
            attribute.i = kind
        if attribute.HasField("t"):
            narrow_tensor(attribute.t, kind)
        if attribute.HasField("g"):
            narrow_graph(attribute.g, kind)


def narrow_tensor(tensor: onnx.TensorProto, kind: int) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(kind))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


class TestPass7Widening:
    TEXT = """m (float[N, 4] x, bool c) => (float[N, 4] y, float[N, 4] z, float s) {
        h = MatMul(x, w) s = Identity(k)
        n = Shape(h) o = ConstantOfShape <value = float[1] {0.5}> (n) i = Cast <to = 7> (h) f = Cast <to = 1> (i)
        p = Constant <value = float[4] {1, 2, 3, 4}> ()
        q = Sum(o, f, p, h)
        z = If (c) <
            then_branch = t () => (float[N, 4] u) { a = Constant <value = float[1] {3.0}> () u = Mul(q, a) },
            else_branch = e () => (float[N, 4] v) { b = RandomUniformLike <high = 2.0, low = 2.0, dtype = 1> (q) v = Mul(q, b) }
        >
        y = Relu(z)
    }"""

    @pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
    def test_computes_in_fp32_and_keeps_inputs_and_outputs(self, kind: int, tmp_path: Path) -> None:
        weight = draw(4, 4).astype(ml_dtypes.bfloat16 if kind == TensorProto.BFLOAT16 else np.float16)
        wide = parsed(self.TEXT, w=weight.astype(np.float32), k=np.float32(0.75))
        narrow = half(wide, kind)
        published = load.load(saved(narrow, tmp_path))
        found = normalize.normalize(published)
        for graph in found.model.graphs():
            assert not {value.dtype for value in graph.initializers.values()} & {published.graph.inputs[0].dtype}
        for one, other in zip(
            (*published.graph.inputs, *published.graph.outputs),
            (*found.model.graph.inputs, *found.model.graph.outputs),
            strict=True,
        ):
            assert (one.name, load.describe(one)) == (other.name, load.describe(other))
        name = "BF16" if kind == TensorProto.BFLOAT16 else "FP16"
        assert f"{name} became FP32 inside" in found.steps
        x = draw(3, 4).astype(weight.dtype)
        for chosen in (True, False):
            expected = ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float32), "c": np.array(chosen)})
            got = ReferenceEvaluator(ir.to_proto(found.model)).run(None, {"x": x, "c": np.array(chosen)})
            for one, other in zip(expected, got, strict=True):
                assert other.dtype == weight.dtype
                np.testing.assert_array_equal(one.astype(weight.dtype), other)

    def test_fp16_in_onnx_runtime(self, check: Check) -> None:
        narrow = half(parsed(self.TEXT, w=draw(4, 4), k=np.float32(0.75)), TensorProto.FLOAT16)
        found = check(narrow, rtol=1e-2, x=draw(3, 4).astype(np.float16), c=np.array(True))
        assert operators(found)["Cast"] == 6, "an input, three outputs, and the two that are no identity"

    def test_the_model_that_was_given_stays_narrow(self, tmp_path: Path) -> None:
        published = load.load(
            saved(half(parsed(self.TEXT, w=draw(4, 4), k=np.float32(1)), TensorProto.FLOAT16), tmp_path)
        )
        normalize.normalize(published)
        assert {value.dtype for value in published.graph.initializers.values()} == {ir.DataType.FLOAT16}
        assert published.graph.outputs[0].dtype == ir.DataType.FLOAT16

    def test_float64_is_left_alone(self, check: Check) -> None:
        text = "m (double[N, 4] x) => (double[N, 4] y) { h = MatMul(x, w) y = Clip(h, l, l) }"
        found = check(
            parsed(text, w=draw(4, 4).astype(np.float64), l=np.float64(0.25)), x=draw(2, 4).astype(np.float64)
        )
        assert found.model.graph.initializers["w"].dtype == ir.DataType.DOUBLE

    def test_a_sequence_output_is_refused(self, tmp_path: Path) -> None:
        proto = parsed("m (float16[4, 2] x) => (seq(float16[2]) y) { y = SplitToSequence(x) }")
        with pytest.raises(ModelError, match=r"'y'.*sequence.*export the model in FP32"):
            normalize.normalize(load.load(saved(proto, tmp_path)))


class TestPass8Opset:
    @pytest.mark.parametrize(
        ("axis", "shape", "kept"),
        [
            (1, ("N", 6), 1),
            (None, ("N", 6), 1),
            (-1, ("N", 2, 6), -1),
            (2, ("N", 2, 6), 2),
            (1, ("N", 6, 1, 1), 1),
            (1, ("N", 1, "W"), 2),
            (1, (2, 1, 1), 1),
            (1, ("N", 2, 6), None),
            (0, ("N", 6), None),
        ],
    )
    @pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
    def test_softmax_below_13(
        self, operator: str, axis: int | None, shape: tuple[int | str, ...], kept: int | None, check: Check
    ) -> None:
        attributes = {} if axis is None else {"axis": axis}
        node = helper.make_node(operator, ["x"], ["y"], **attributes)
        proto = one_node(node, {"x": shape}, ["?"] * len(shape), opset=12)
        found = check(proto, x=draw(*(size if isinstance(size, int) else 3 for size in shape)))
        assert operators(found)[operator] == 1
        assert (operators(found).total() == 1) == (kept is not None)
        if kept is not None:
            assert found.model.graph[0].attributes.get_int("axis") == kept

    def test_softmax_whose_rank_only_the_new_opset_tells(self, check: Check) -> None:
        """As PaddleOCR's classifier: a Reshape by a shape that is put together of a Shape and constants."""
        text = """m (float[N, 6, 1, 1] x) => (float[N, 6] y) {
            s = Shape(x) a = Slice(s, zero, one) b = Concat <axis = 0> (a, six) r = Reshape(x, b) t = Softmax(r) y = Relu(t)
        }"""
        zero, one, six = (np.array([number]) for number in (0, 1, 6))
        found = check(parsed(text, 11, zero=zero, one=one, six=six), x=draw(3, 6, 1, 1))
        assert operators(found)["Flatten"] == 0

    @pytest.mark.parametrize(
        ("operator", "opset", "scales"),
        [
            *(("Upsample", opset, scales) for opset in (7, 9) for scales in ((2.0, 2.0), (1.5, 3.0))),
            *(("Resize", 10, scales) for scales in ((2.0, 2.0), (1.5, 3.0), (0.6, 0.6), (0.5, 1.0))),
        ],
    )
    @pytest.mark.parametrize("mode", ["nearest", "linear"])
    def test_resize_below_11(
        self, mode: str, operator: str, opset: int, scales: tuple[float, float], check: Check
    ) -> None:
        both = (1.0, 1.0, *scales)
        if opset == 7:
            node = helper.make_node(operator, ["x"], ["y"], mode=mode, scales=both)
            proto = one_node(node, {"x": (1, 2, 5, 5)}, ["?"] * 4, opset=opset)
        else:
            node = helper.make_node(operator, ["x", "s"], ["y"], mode=mode)
            proto = one_node(node, {"x": (1, 2, 5, 5)}, ["?"] * 4, opset=opset, s=np.array(both, np.float32))
        found = check(proto, x=draw(1, 2, 5, 5))
        assert operators(found) == {"Resize": 1}

    def test_resize_that_rounds_as_tensorflow(self, check: Check) -> None:
        node = helper.make_node(
            "Resize",
            ["x", "roi", "s"],
            ["y"],
            coordinate_transformation_mode="tf_half_pixel_for_nn",
            nearest_mode="floor",
        )
        for scale in (2.0, 1.7, 0.6, 0.5):
            scales = np.array([1, 1, scale, scale], np.float32)
            proto = one_node(node, {"x": (1, 2, 7, 7)}, ["?"] * 4, opset=12, roi=np.zeros(8, np.float32), s=scales)
            found = check(proto, x=draw(1, 2, 7, 7))
            assert found.model.graph[0].attributes.get_string("coordinate_transformation_mode") == "half_pixel"

    @pytest.mark.parametrize("opset", [9, 10, 11, 12])
    def test_attributes_that_became_inputs(self, opset: int, check: Check) -> None:
        old = opset < 11
        limits = "c = Clip <min = -1.0, max = 0.5> (d)" if old else "c = Clip(d, low, high)"
        pads = "p = Pad <pads = [0, 1, 0, 0, 1, 0]> (c)" if old else "p = Pad(c, pads)"
        more = "y = Pad <pads = [0, 0, 0, 0, 0, 1]> (h)" if old else "y = Pad(h, more)"
        ratio = "<ratio = 0.3>" if opset < 12 else ""
        proto = parsed(
            f"""m (float[N, 3, 4] x) => (float[N, 2, 5] y, float[N, 1, 4] z) {{
                u = Unsqueeze <axes = [1]> (x) s = Squeeze <axes = [1]> (u) d = Dropout {ratio} (s) {limits} {pads}
                a, b = Split <axis = 1, split = [2, 3]> (p) e, f = Split <axis = 1> (a) g = ReduceSum <axes = [1]> (f)
                z = ReduceMean <axes = [1], keepdims = 1> (b) h = Concat <axis = 1> (e, g) {more}
            }}""",
            opset,
            low=np.float32(-1),
            high=np.float32(0.5),
            pads=np.array([0, 1, 0, 0, 1, 0]),
            more=np.array([0, 0, 0, 0, 0, 1]),
        )
        found = check(proto, x=draw(2, 3, 4))
        assert load.opset(found.model) == 19
        assert f"opset raised from {opset} to 19" in found.steps
        assert "Constant" not in operators(found)

    def test_in_subgraphs(self, check: Check) -> None:
        proto = parsed(
            """m (bool c, float[2, 1, 3] x) => (float[2, 3] y) {
                y = If (c) <
                    then_branch = t () => (float[2, 3] o) { o = Squeeze <axes = [1]> (x) },
                    else_branch = e () => (float[2, 3] o) {
                        a = Softmax <axis = 1> (x) o = ReduceSum <axes = [1], keepdims = 0> (a) }
                >
            }""",
            11,
        )
        for chosen in (True, False):
            found = check(proto, c=np.array(chosen), x=draw(2, 1, 3))
            assert operators(found) == {"If": 1, "Squeeze": 1, "Softmax": 1, "ReduceSum": 1}

    @pytest.mark.parametrize("opset", [19, 20, 21])
    def test_19_and_above_stay(self, opset: int, check: Check) -> None:
        found = check(parsed("m (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }", opset), x=draw(2, 3))
        assert load.opset(found.model) == opset
        assert found.steps == ("1 nodes without a name of their own were named",)

    def test_what_cannot_be_raised_is_named(self, tmp_path: Path) -> None:
        node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], name="recurrent", hidden_size=2)
        weights = {"w": draw(1, 8, 3), "r": draw(1, 8, 2)}
        proto = one_node(node, {"x": (4, 1, 3)}, ["?"] * 4, opset=6, **weights)
        with pytest.raises(
            ModelError, match=r"from 6 to 19: LSTM \(node 'recurrent'\) has no adapter.*export the model again"
        ):
            normalize.normalize(load.load(saved(proto, tmp_path)))

    def test_metadata_stays(self) -> None:
        proto = parsed("m (float[N, 3] x) => (float[N, 3] y) { a = Relu(x) y = Exp(a) }", 13)
        for holder in (proto, proto.graph, proto.graph.node[0]):
            holder.metadata_props.add(key="module", value="encoder.0")
        found = normalize.normalize(ir.from_proto(proto)).model
        for held in (found, found.graph, found.graph[0]):
            assert held.metadata_props == {"module": "encoder.0"}


def one_node(
    node: onnx.NodeProto, inputs: Mapping[str, tuple[int | str, ...]], outputs: list[str], opset: int, **weights: Array
) -> onnx.ModelProto:
    """Return a model of one node; its outputs have sizes that the model does not say."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None for _ in outputs])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "m", values, [out], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


class TestPass9Identities:
    def test_go_and_names_stay(self, check: Check) -> None:
        proto = parsed(
            """m (float[N, 3] x) => (float[N, 3] y, float[N, 3] z, float[3] k, float[N, 3] u) {
                a = Identity(x) b = Relu(a) c = Identity(b) y = Identity(c) d = Cast <to = 1> (y) e = Dropout(d) z = Exp(e)
                k = Identity(w) u = Identity(x)
            }""",
            w=draw(3),
        )
        found = check(proto, x=draw(2, 3))
        assert [(node.op_type, node.outputs[0].name) for node in found.model.graph] == [
            ("Relu", "y"),
            ("Exp", "z"),
            ("Identity", "k"),
            ("Identity", "u"),
        ], "an output that is a weight or an input needs its node"
        assert "5 Identity nodes were removed" in found.steps

    def test_of_one_output_into_another_stays(self, check: Check) -> None:
        found = check(parsed("m (float[3] x) => (float[3] y, float[3] z) { y = Relu(x) z = Identity(y) }"), x=draw(3))
        assert [node.op_type for node in found.model.graph] == ["Relu", "Identity"]

    def test_what_is_no_identity_stays(self, check: Check) -> None:
        proto = parsed(
            """m (float[N, 3] x) => (int64[N, 3] y, float[N, 3] z, bool[N, 3] m) {
                y = Cast <to = 7> (x) a = Relu(x) z, m = Dropout(a)
            }"""
        )
        assert operators(check(proto, x=draw(2, 3))) == {"Cast": 1, "Relu": 1, "Dropout": 1}

    def test_a_subgraph_does_not_return_an_outer_tensor(self, check: Check) -> None:
        proto = parsed(
            """m (bool c, float[3] x) => (float[3] y) {
                a = Relu(x) b = Identity(a)
                y = If (c) <
                    then_branch = t () => (float[3] o) { o = Identity(b) },
                    else_branch = e () => (float[3] o) { d = Identity(b) f = Neg(d) o = Identity(f) }
                >
            }"""
        )
        for chosen in (True, False):
            found = check(proto, c=np.array(chosen), x=draw(3))
            assert operators(found) == {"Relu": 1, "If": 1, "Identity": 1, "Neg": 1}

    def test_the_inputs_shape_stays(self, check: Check) -> None:
        proto = parsed("m (float[N, M] x) => (float[N, 3] y) { a = Identity(x) y = Add(a, w) }", w=draw(3))
        proto.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 3]))
        found = check(proto, x=draw(2, 3))
        assert load.describe(found.model.graph.inputs[0]) == "float32[N, M]"


class TestPass10Constants:
    def test_are_folded(self, check: Check) -> None:
        """ORT#13358: a weight that comes through Cast; here through Transpose, a product and a Reshape too."""
        proto = parsed(
            """m (float[N, 4] x) => (float[N, 6] y, float[N, 4] z) {
                a = Cast <to = 1> (w) b = Transpose <perm = [1, 0]> (a) g = Sqrt(s) h = Reciprocal(g) i = Mul(b, h)
                h1 = MatMul(x, i) c = Reshape(b2, two) d = Squeeze(c) y = Add(h1, d)
                j = Unsqueeze(one, zero) k = Concat <axis = 0> (j, j) e = Gather(k, zero) f = Slice(k, zero, j)
                q = Sub(e, f) r = Neg(q) t = Div(r, r2) v = Add(t, t) o = Pow(v, v) z = Sum(x, o)
            }""",
            w=draw(6, 4).astype(np.float16),
            s=np.abs(draw(6)),
            b2=draw(6),
            two=np.array([1, 6]),
            one=np.float32(3).reshape(()),
            zero=np.array([0]),
            r2=np.array([2], np.float32),
        )
        node = next(node for node in proto.graph.node if node.op_type == "Slice")
        node.input[2] = "one64"
        proto.graph.initializer.append(numpy_helper.from_array(np.array([1]), "one64"))
        found = check(proto, x=draw(2, 4))
        assert operators(found) == {"MatMul": 1, "Add": 1, "Sum": 1}
        weight = found.model.graph.initializers["i"]
        assert weight.const_value is not None
        assert (weight.dtype, weight.const_value.numpy().flags.c_contiguous) == (ir.DataType.FLOAT, True)

    def test_of_subgraphs_too(self, check: Check) -> None:
        proto = parsed(
            """m (bool c, float[2, 3] x) => (float[2, 4] y) {
                y = If (c) <
                    then_branch = t () => (float[2, 4] o) { v = Transpose(w) o = MatMul(x, v) },
                    else_branch = e () => (float[2, 4] o) { v = Transpose(w) u = Neg(v) o = MatMul(x, u) }
                >
            }""",
            w=draw(4, 3),
        )
        for chosen in (True, False):
            assert operators(check(proto, c=np.array(chosen), x=draw(2, 3))) == {"If": 1, "MatMul": 2}

    @pytest.mark.parametrize(
        ("nodes", "weights"),
        [
            ("a = Mul(v, h)", {"v": draw(200, 1), "h": draw(1, 200)}),
            ("a = Gather(v, i)", {"v": draw(2, 200), "i": np.zeros(200, np.int64)}),
            ("a = Expand(v, s)", {"v": draw(200, 1), "s": np.array([200, 200])}),
        ],
    )
    def test_that_would_inflate_the_file_are_not(self, nodes: str, weights: dict[str, Array], check: Check) -> None:
        proto = parsed(f"m (float[200] x) => (float[200, 200] y) {{ {nodes} y = Add(a, x) }}", **weights)
        found = check(proto, x=draw(200))
        assert load.parameters(found.model) == sum(array.size for array in weights.values())

    def test_that_are_outputs_stay(self, check: Check) -> None:
        proto = parsed("m (float[3] x) => (float[3] y, float[3] z) { z = Neg(w) y = Add(x, z) }", w=draw(3))
        assert operators(check(proto, x=draw(3))) == {"Neg": 1, "Add": 1}

    def test_an_integer_division_truncates(self, check: Check) -> None:
        proto = parsed(
            "m (int64[2] x) => (int64[2] y) { a = Div(v, w) y = Add(a, x) }", v=np.array([-7, 7]), w=np.array([2, -2])
        )
        assert operators(check(proto, x=np.array([0, 0]))) == {"Add": 1}


LAYERS = {
    "Conv": ("Conv(x{})", (2, 3, 5, 5), (4, 3, 3, 3)),
    "Conv of groups": ("Conv <group = 2> (x{})", (2, 6, 5, 5), (4, 3, 3, 3)),
    "Conv of one axis": ("Conv(x{})", (2, 3, 8), (4, 3, 3)),
    "ConvTranspose": ("ConvTranspose <strides = [2, 2]> (x{})", (2, 3, 5, 5), (3, 4, 2, 2)),
    "ConvTranspose of groups": ("ConvTranspose <group = 2> (x{})", (2, 6, 5, 5), (6, 2, 2, 2)),
    "Gemm": ("Gemm(x{})", (2, 3), (3, 4)),
    "Gemm transB": ("Gemm <transB = 1> (x{})", (2, 3), (4, 3)),
    "Gemm alpha beta": ("Gemm <alpha = 0.5, beta = 2.0, transB = 1> (x{})", (2, 3), (4, 3)),
    "Gemm transA": ("Gemm <transA = 1> (x{})", (3, 2), (3, 4)),
}


class TestPass11Affine:
    @pytest.mark.parametrize("bias", ["none", "bias"])
    @pytest.mark.parametrize("layer", LAYERS)
    def test_norm(self, layer: str, bias: str, check: Check) -> None:
        """aimet#3060: gamma 0 and negative too."""
        call, shape, weight = LAYERS[layer]
        weights = {"w": draw(*weight), **norm(4)} | ({"b": draw(4, seed=9)} if bias == "bias" else {})
        text = f"c = {call.format(', w, b' if bias == 'bias' else ', w')} n = BatchNormalization(c, gamma, beta, mean, var)"
        found = check(parsed(ranked(f"{text} y = Relu(n)", shape), 15, **weights), x=draw(*shape))
        (node, _) = found.model.graph
        assert node.op_type == layer.split()[0]
        assert node.outputs[0].name == "n", "tensors keep their names"
        assert "w" in found.model.graph.initializers
        assert "1 BatchNormalizations were folded into the layer before them" in found.steps

    @pytest.mark.parametrize("nodes", ["Add(c, k)", "Add(k, c)", "Sub(c, k)", "Sub(k, c)", "Mul(c, k)", "Div(c, k)"])
    @pytest.mark.parametrize("constant", [(), (1,), (1, 4, 1, 1), (4, 1, 1)])
    def test_constant_factors_and_terms(self, constant: tuple[int, ...], nodes: str, check: Check) -> None:
        text = f"c = Conv(x, w) a = {nodes} y = Relu(a)"
        found = check(parsed(ranked(text, (2, 3, 5, 5)), w=draw(4, 3, 3, 3), k=draw(*constant)), x=draw(2, 3, 5, 5))
        assert operators(found) == {"Conv": 1, "Relu": 1}

    def test_behind_each_other_and_before_an_output(self, check: Check) -> None:
        text = (
            "c = Conv(x, w) m = Mul(c, k) a = Add(m, k) n = BatchNormalization(a, gamma, beta, mean, var) y = Add(k, n)"
        )
        weights = {"w": draw(4, 3, 1, 1), "k": draw(1), **norm(4)}
        found = check(parsed(ranked(text, (2, 3, 5, 5)), **weights), x=draw(2, 3, 5, 5))
        assert [(node.op_type, node.outputs[0].name) for node in found.model.graph] == [("Conv", "y")]
        assert (
            "1 BatchNormalizations and 3 constant factors or terms were folded into the layer before them"
            in found.steps
        )

    def test_a_shared_weight_is_copied(self, check: Check) -> None:
        text = """c = Conv(x, w, b) n = BatchNormalization(c, gamma, beta, mean, var) d = Conv(x, w, b) e = Conv(x, w, b)
            f = Mul(e, k) s = Sum(n, d, f) y = Relu(s)"""
        weights = {"w": draw(4, 3, 1, 1), "b": draw(4), "k": draw(1), **norm(4)}
        found = check(parsed(ranked(text, (2, 3, 5, 5)), **weights), x=draw(2, 3, 5, 5))
        assert operators(found) == {"Conv": 3, "Sum": 1, "Relu": 1}
        assert {"w", "w_folded", "w_folded_2"} <= set(found.model.graph.initializers)

    def test_a_shared_weight_is_not_copied_for_a_bias(self, check: Check) -> None:
        text = "c = Conv(x, w) a = Add(c, k) d = Conv(x, w) y = Sum(a, d)"
        found = check(parsed(ranked(text, (2, 3, 5, 5)), w=draw(4, 3, 1, 1), k=draw(4, 1, 1)), x=draw(2, 3, 5, 5))
        assert operators(found) == {"Conv": 2, "Sum": 1}
        assert load.parameters(found.model) == 12 + 4

    @pytest.mark.parametrize(
        "nodes",
        [
            "c = Conv(x, w) n = BatchNormalization(c, gamma, beta, mean, var) e = Exp(c) y = Add(n, e)",
            "y = BatchNormalization(x, three, three, three, three)",
            "r = Relu(x) n = BatchNormalization(r, three, three, three, three) y = Conv(n, w)",
            "b = ReduceMax <axes = [1, 2, 3], keepdims = 0> (f) c = Conv(x, w, b) y = Mul(c, k)",
            "v = Exp(f) c = Conv(x, v) y = Mul(c, k)",
            "c = Conv(x, w) y = Add(c, wide)",
            "c = Conv(x, w) y = Add(c, high)",
            "c = Conv(x, w) y = Div(k, c)",
            "c = Conv(x, w) y = Mul(c, c)",
            "c = Conv(x, w) m = ReduceMax(x) y = Mul(c, m)",
        ],
    )
    def test_stays_where_it_cannot_be_folded(self, nodes: str, check: Check) -> None:
        weights = {"w": draw(4, 3, 1, 1), "three": np.abs(draw(3)), "k": draw(4, 1, 1), **norm(4)}
        weights |= {"wide": draw(5), "high": draw(1, 1, 1, 1, 1)}
        proto = parsed(f"m (float[2, 3, 5, 5] x, float[4, 3, 1, 1] f) => (float[] y) {{ {nodes} }}", **weights)
        before = Counter(node.op_type for node in proto.graph.node)
        assert operators(check(proto, x=draw(2, 3, 5, 5), f=draw(4, 3, 1, 1))) == before

    def test_a_result_that_is_not_finite_stays(self, check: Check) -> None:
        weights = {"w": draw(4, 3, 1, 1), "zero": np.zeros(1, np.float32)}
        found = check(parsed(ranked("c = Conv(x, w) y = Div(c, zero)", (2, 3, 5, 5)), **weights), x=draw(2, 3, 5, 5))
        assert operators(found) == {"Conv": 1, "Div": 1}

    def test_a_norm_in_training_stays(self) -> None:
        text = "c = Conv(x, w) y, a, b = BatchNormalization <training_mode = 1> (c, gamma, beta, mean, var)"
        proto = parsed(ranked(text, (2, 3, 5, 5), "float[] y, float[] a, float[] b"), w=draw(4, 3, 1, 1), **norm(4))
        assert operators(normalize.normalize(ir.from_proto(proto))) == {"Conv": 1, "BatchNormalization": 1}

    def test_what_a_subgraph_reads(self, check: Check) -> None:
        """Branches read the folded tensor; one reads the layer before it, which then is not folded."""
        for read, left in (("n", 0), ("c", 1)):
            proto = parsed(
                f"""m (bool q, float[2, 3, 5, 5] x) => (float[2, 4, 5, 5] y) {{
                    c = Conv(x, w) n = BatchNormalization(c, gamma, beta, mean, var)
                    y = If (q) <
                        then_branch = t () => (float[2, 4, 5, 5] o) {{ o = Neg({read}) }},
                        else_branch = e () => (float[2, 4, 5, 5] o) {{
                            d = Conv(n, v) o = BatchNormalization(d, gamma, beta, mean, var) }}
                    >
                }}""",
                w=draw(4, 3, 1, 1),
                v=draw(4, 4, 1, 1),
                **norm(4),
            )
            for chosen in (True, False):
                found = check(proto, q=np.array(chosen), x=draw(2, 3, 5, 5))
                assert operators(found)["BatchNormalization"] == left


class TestAll:
    def test_loop_and_scan(self, check: Check) -> None:
        """What an Identity, a Constant, a folded norm and a raised operator make outside is read inside, and the reverse."""
        proto = parsed(
            """m (int64 n, float[1, 3, 4, 4] x) => (float[1, 4, 4, 4] y, float[A, 1, 4, 4, 4] all, float[B, 4] sums) {
                i = Identity(x) c = Conv(i, w) b = BatchNormalization(c, gamma, beta, mean, var)
                half = Constant <value = float[1] {0.5}> ()
                y, all = Loop (n, , b) <body = l (int64 step, bool go, float[1, 4, 4, 4] t) =>
                    (bool go1, float[1, 4, 4, 4] t1, float[1, 4, 4, 4] t2) {
                        go1 = Identity(go) h = Mul(t, half) d = Conv(h, v) e = BatchNormalization(d, gamma, beta, mean, var)
                        t1 = Add(e, b) t2 = Identity(t1)
                    }>
                flat = Squeeze <axes = [0]> (b)
                sums = Scan <num_scan_inputs = 1, body = s (float[4, 4] row) => (float[4] sum) {
                    k = Constant <value = float[1] {2.0}> () m = Mul(row, k) sum = ReduceSum <axes = [0], keepdims = 0> (m)
                }> (flat)
            }""",
            12,
            w=draw(4, 3, 1, 1),
            v=draw(4, 4, 1, 1),
            **norm(4),
        )
        found = check(proto, rtol=1e-4, n=np.array(3), x=draw(1, 3, 4, 4))
        left = operators(found)
        assert not left.keys() & {"BatchNormalization", "Constant"}
        assert left["Identity"] == 2, "a body does not return its input, nor one tensor twice"

    def test_a_subgraph_in_a_subgraph(self, check: Check) -> None:
        proto = parsed(
            """m (bool p, bool q, float[2, 3] x) => (float[2, 3] y) {
                a = Identity(x) k = Constant <value = float[3] {1, 2, 3}> ()
                y = If (p) <
                    then_branch = t () => (float[2, 3] o) {
                        b = Add(a, k) j = Constant <value = float[1] {7.0}> ()
                        o = If (q) <
                            then_branch = t2 () => (float[2, 3] r) { d = Identity(b) e = Mul(d, j) r = Add(e, k) },
                            else_branch = e2 () => (float[2, 3] r) { r = Identity(a) }
                        >
                    },
                    else_branch = e () => (float[2, 3] o) { o = Softmax <axis = 1> (a) }
                >
            }""",
            11,
        )
        for p in (True, False):
            for q in (True, False):
                found = check(proto, p=np.array(p), q=np.array(q), x=draw(2, 3))
                assert operators(found) == {"If": 2, "Add": 2, "Mul": 1, "Identity": 1, "Softmax": 1}

    def test_several_and_integer_inputs(self, check: Check) -> None:
        proto = parsed(
            """m (int64[B, S] ids, int32[B, S] mask, float[S, 4] bias) => (float[B, S, 3] y, int64[B] length) {
                e = Gather(table, ids) a = Add(e, bias) f = Cast <to = 1> (mask) u = Unsqueeze(f, two) m = Mul(a, u)
                y = MatMul(m, w) l = Cast <to = 7> (mask) length = ReduceSum <keepdims = 0> (l, one)
            }""",
            table=draw(10, 4),
            w=draw(4, 3),
            two=np.array([2]),
            one=np.array([1]),
        )
        ids, mask = np.array([[1, 2, 9], [0, 3, 3]]), np.array([[1, 1, 0], [1, 0, 0]], np.int32)
        found = check(proto, ids=ids, mask=mask, bias=draw(3, 4))
        assert operators(found)["Gather"] == 1

    def test_the_model_that_was_given_is_left_as_it_was(self, tmp_path: Path) -> None:
        text = """m (float[1, 3, 4, 4] x) => (float[] y) {
            i = Identity(x) c = Conv(i, w) n = BatchNormalization(c, gamma, beta, mean, var) y = Softmax(n) }"""
        model = load.load(saved(parsed(text, 11, w=draw(4, 3, 1, 1), unused=draw(3), **norm(4)), tmp_path))
        before = ir.to_proto(model).SerializeToString(deterministic=True)
        normalize.normalize(model)
        assert ir.to_proto(model).SerializeToString(deterministic=True) == before

    def test_a_normalized_model_is_normalized(self, tmp_path: Path) -> None:
        text = """m (float[1, 3, 4, 4] x) => (float[] y) {
            i = Identity(x) c = Conv(i, w) n = BatchNormalization(c, gamma, beta, mean, var) y = Softmax(n) }"""
        first = normalize.normalize(load.load(saved(parsed(text, 11, w=draw(4, 3, 1, 1), **norm(4)), tmp_path)))
        second = normalize.normalize(first.model)
        assert second.steps == ()
        assert ir.to_proto(second.model) == ir.to_proto(first.model)


def ranked(nodes: str, shape: tuple[int, ...], outputs: str = "float[] y") -> str:
    """Return a model's text, where the outputs' shapes are not said."""
    return f"m (float{list(shape)} x) => ({outputs}) {{ {nodes} }}"
