"""What other tools were reported to do wrong (peers.md, section 4), rebuilt: the right result here, or a clear error."""

import ast
import functools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from calib import verify
from calib.data import writing
from calib.graph import save
from calib.qdq import Form
from calib.runtime.ort import OrtRunner

from . import reported_layers as layers
from . import reported_nets as nets
from .checked import FORMS, Prepared, check, prepare, run, within
from .conftest import Answer, assert_refused
from .error_bounds import bounds
from .reported import REPORTS, cases
from .reported_case import Case, model, node, normal

Command = Callable[..., Answer]
ROWS = [
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    13,
    14,
    15,
    16,
    18,
    19,
    20,
    21,
    22,
    23,
    25,
    27,
    28,
    29,
    30,
    31,
    35,
    36,
    37,
    40,
    41,
    43,
    44,
    45,
]
ROWS += [48, 50]


# The table


def test_the_table_names_every_report() -> None:
    assert list(REPORTS) == ROWS
    for row, report in REPORTS.items():
        assert report.threads, row
        assert report.tests or report.cases or report.without, row
        assert not (report.cases and report.without), row


def test_the_tests_that_the_table_names_exist() -> None:
    for row, report in REPORTS.items():
        for test in report.tests:
            file, *path = test.split("::")
            found: ast.AST = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
            for name in path:
                members = {getattr(member, "name", ""): member for member in getattr(found, "body", [])}
                assert name in members, f"row {row}: {test}"
                found = members[name]


# Every rebuilt model


@pytest.fixture(scope="module")
def ready() -> Callable[[str], tuple[Case, Prepared]]:
    """Return a function that makes a case by name, and calibrates it, once."""

    @functools.cache
    def make(name: str) -> tuple[Case, Prepared]:
        case = cases()[name]()
        return case, prepare(case.proto, case.samples, lambda _: case.plan)

    return make


Ready = Callable[[str], tuple[Case, Prepared]]


@pytest.mark.parametrize("name", cases())
def test_a_reported_model_is_as_near_as_its_scales_allow(name: str, ready: Ready) -> None:
    case, prepared = ready(name)
    for compared in check(prepared, case.proto, case.samples, case.reference):
        assert len(compared.quantized.placement.int8) == case.int8, compared.quantized.placement.left
        for output in compared.expected:
            assert compared.relative(output) <= case.within


@pytest.mark.parametrize("name", cases())
def test_tensorrt_builds_a_reported_model_as_planned(name: str, ready: Ready, tmp_path: Path) -> None:
    case, prepared = ready(name)
    for form in Form("fp16", "int8"), Form("fp32", "qdq"):
        quantized = prepared.quantize(form)
        ir.save(quantized.model, tmp_path / "model.onnx")
        built = {layer.name: layer for layer in verify.verify(tmp_path / "model.onnx").layers}
        for layer in quantized.placement.int8:
            assert built[layer.name].asked == "int8"
            assert built[layer.name].failed == (not case.builds_int8), built[layer.name]


@pytest.mark.parametrize("name", cases())
def test_no_bias_is_quantized(name: str, ready: Ready) -> None:
    for form in FORMS:
        for node_ in ready(name)[1].quantize(form).model.graph:
            if node_.op_type in ("Conv", "ConvTranspose", "Gemm") and len(node_.inputs) > 2 and node_.inputs[2]:
                producer = node_.inputs[2].producer()
                assert producer is None or producer.op_type == "Cast"


def bias_clipped_to_int32(proto: onnx.ModelProto) -> None:
    """Row 18: the bias as int32 codes, whose scale is that of the products."""
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    x, w, bias = (numpy_helper.to_array(tensors[name]) for name in ("x_scale", "w_scale", "b"))
    clipped = np.clip(bias, -(x * w) * 2.0**31, (x * w) * 2.0**31).astype(np.float32)
    tensors["b"].CopyFrom(numpy_helper.from_array(clipped, "b"))


def one_scale_for_boxes_and_scores(proto: onnx.ModelProto) -> None:
    """Row 22: the Concat's output through Q/DQ."""
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(640 / 127), "coarse"))
    zero = next(one.input[2] for one in proto.graph.node if one.op_type == "QuantizeLinear")
    (concat,) = (one for one in proto.graph.node if one.op_type == "Concat")
    concat.output[0] = "joined"
    proto.graph.node.append(node("QuantizeLinear", ["joined", "coarse", zero], "codes"))
    proto.graph.node.append(node("DequantizeLinear", ["codes", "coarse", zero], "y"))


@pytest.mark.parametrize(
    ("name", "bug"),
    [("18: tiny weights", bias_clipped_to_int32), ("22: boxes and scores", one_scale_for_boxes_and_scores)],
)
def test_the_bound_catches_the_bug_that_was_reported(
    name: str, bug: Callable[[onnx.ModelProto], None], ready: Ready
) -> None:
    """What other tools did, done to our result; test_random_graphs.py has the wrong axes and scales."""
    case, prepared = ready(name)
    quantized = prepared.quantize(Form("fp32"))
    broken = ir.to_proto(quantized.model)
    bug(broken)
    allowed = bounds(prepared.model, quantized, prepared.scales, case.samples)
    with pytest.raises(AssertionError, match="the bound is"):
        within(run(broken, case.samples), run(case.proto, case.samples), allowed)


# What a report needs beyond that


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Case], tuple[Path, Path]]:
    """Return a function that writes a case's model and samples."""

    def write(case: Case) -> tuple[Path, Path]:
        onnx.save(case.proto, tmp_path / "model.onnx")
        np.savez(tmp_path / "data.npz", **case.samples)
        return tmp_path / "model.onnx", tmp_path / "data.npz"

    return write


Written = Callable[[Case], tuple[Path, Path]]


def test_memory_does_not_grow_with_the_samples(tmp_path: Path) -> None:
    """Three Convs of 64 channels: 100 samples more make 210 MB of activations."""
    nodes = [node("Conv", ["x", "w1"], "a"), node("Conv", ["a", "w2"], "b"), node("Conv", ["b", "w2"], "y")]
    weights = {"w1": normal(64, 1, 1, 1), "w2": normal(64, 64, 1, 1) / 8}
    onnx.save(model(nodes, {"x": ("N", 1, 64, 64)}, {"y": ("N", 64, 64, 64)}, weights), tmp_path / "model.onnx")
    program = (
        "import resource, sys; from calib.cli import main\n"
        "try: main()\n"
        "except SystemExit as left: assert not left.code\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peak = []
    for count in (20, 120):
        np.savez(tmp_path / "data.npz", x=normal(count, 1, 64, 64))
        arguments = ["calibrate", "model.onnx", "data.npz", "-m", "entropy", "-o", "scales.json"]
        command = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        peak.append(int(done.stdout.split()[-1]) / 1024)
    assert peak[1] - peak[0] < 60, peak


@pytest.mark.parametrize("method", ["max", "mse", "entropy", "percentile-99.9"])
def test_scales_depend_on_neither_batch_size_nor_order(
    method: str, written: Written, tmp_path: Path, calib: Command
) -> None:
    case = layers.first_samples_of_zeros()
    samples = normal(16, 3, 6, 6)
    samples[3, 1, 2, 2] = 30
    found = set()
    for size, values in ((1, samples), (3, samples[::-1]), (16, np.roll(samples, 5, axis=0))):
        paths = written(replace(case, samples={"x": values}))
        out = tmp_path / "scales.json"
        assert calib("calibrate", *paths, "-m", method, "--batch-size", size, "-o", out).status == 0
        found.add(json.dumps({key: json.loads(out.read_text())[key] for key in ("activations", "weights", "ranges")}))
    assert len(found) == 1


@pytest.mark.parametrize("method", ["max", "mse", "entropy", "percentile-99.9"])
def test_a_first_batch_of_zeros_changes_no_scale(method: str, written: Written, tmp_path: Path, calib: Command) -> None:
    case = layers.first_samples_of_zeros()
    found = []
    for values in (case.samples["x"], case.samples["x"][::-1]):
        out = tmp_path / "scales.json"
        assert calib("calibrate", *written(replace(case, samples={"x": values})), "-m", method, "-o", out).status == 0
        found.append(json.loads(out.read_text())["activations"])
    assert found[0] == found[1]
    assert min(found[0].values()) > 0.001


def test_a_dead_relu_is_named_and_a_plan_helps(written: Written, tmp_path: Path, calib: Command) -> None:
    paths, out, plan = written(layers.dead_relu()), tmp_path / "scales.json", tmp_path / "plan.toml"
    assert_refused(calib("calibrate", *paths, "-o", out), "tensor 'dead' is zero for every sample", "in the plan")
    plan.write_text('[layers]\nreader = "fp16"')
    assert calib("calibrate", *paths, "--plan", plan, "-o", out).status == 0
    assert calib("quantize", paths[0], out, "--plan", plan, "-o", tmp_path / "int8.onnx").status == 0


def test_fp16_where_values_are_large_or_small_stays_exact(ready: Ready) -> None:
    (name,) = REPORTS[9].cases or {}
    quantized = ready(f"9: {name}")[1].quantize(Form("fp16"))
    assert "'c1' reaches 4.769e+04, too near to FP16's 65504" in quantized.kept["Conv_c1"]
    assert "does not fit FP16" in quantized.kept["Conv_c2"]  # 1e-6 is in its weights by now
    assert "does not fit FP16" in quantized.kept["Conv_y"]


def test_free_sizes_are_calibrated_with_images_of_several(tmp_path: Path, calib: Command) -> None:
    case = nets.convolutions("batch", "h", "w")
    images = [normal(3, *size) for size in ((16, 24), (16, 24), (11, 40), (20, 9), (16, 24))]
    writing.write(tmp_path / "set", ((f"image-{i}", {"x": image}, {}) for i, image in enumerate(images)))
    onnx.save(case.proto, tmp_path / "model.onnx")
    calibrate = calib("calibrate", tmp_path / "model.onnx", tmp_path / "set", "-m", "max", "-o", tmp_path / "s.json")
    assert calibrate.status == 0, calibrate.err
    profile = json.loads((tmp_path / "s.json").read_text())["profile"]["x"]
    assert (profile["min"][1:], profile["opt"][1:], profile["max"][1:]) == ([3, 11, 9], [3, 16, 24], [3, 20, 40])
    assert calib("quantize", tmp_path / "model.onnx", tmp_path / "s.json", "-o", tmp_path / "int8.onnx").status == 0
    int8 = onnx.load(tmp_path / "int8.onnx")
    for image in images:
        found, expected = run(int8, {"x": image[None]})["y"], run(case.proto, {"x": image[None]})["y"]
        assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()
    assert calib("verify", tmp_path / "int8.onnx").status == 0


def test_a_batch_of_one_is_calibrated_with_eight_samples(written: Written, tmp_path: Path, calib: Command) -> None:
    case = nets.convolutions(1, 16, 24)
    paths, scales, int8 = written(case), tmp_path / "scales.json", tmp_path / "int8.onnx"
    assert calib("calibrate", *paths, "-m", "max", "-o", scales).status == 0
    assert calib("quantize", paths[0], scales, "-o", int8).status == 0
    for image in case.samples["x"]:
        found, expected = run(onnx.load(int8), {"x": image[None]})["y"], run(case.proto, {"x": image[None]})["y"]
        assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()
    assert calib("verify", int8).status == 0


@pytest.mark.parametrize("form", FORMS)
def test_nothing_stands_between_a_conv_and_its_silu(form: Form) -> None:
    case = nets.silu_chain()
    graph = prepare(case.proto, case.samples).quantize(form).model.graph
    gates = [node_ for node_ in graph if node_.op_type == "Sigmoid"]
    assert len(gates) == 4
    for gate in gates:
        source = gate.inputs[0]
        assert source is not None and source.producer().op_type == "Conv"


def test_what_is_no_layer_cannot_be_left_out(written: Written, tmp_path: Path, calib: Command) -> None:
    paths, plan = written(nets.silu_chain()), tmp_path / "plan.toml"
    plan.write_text('[layers]\n"*Sigmoid*" = "fp16"')
    refused = calib("calibrate", *paths, "--plan", plan, "-o", tmp_path / "scales.json")
    assert_refused(refused, "'*Sigmoid*'", "matches no layer", "calib inspect")


@pytest.mark.parametrize("made", [nets.silu_chain, nets.linear_stack, nets.small_resnet])
def test_all_that_is_not_int8_is_fp16(made: Callable[[], Case]) -> None:
    """But for the graph's own inputs and outputs, and the casts there."""
    case = made()
    quantized = prepare(case.proto, case.samples).quantize(Form("fp16"))
    graph = quantized.model.graph
    assert quantized.kept == {}
    own = {*graph.inputs, *graph.outputs}
    assert {out.name for node_ in graph for out in node_.outputs if out.dtype is ir.DataType.FLOAT} <= {
        v.name for v in own
    }


def test_scores_beside_boxes_keep_their_resolution(ready: Ready) -> None:
    case, prepared = ready("22: boxes and scores")
    for compared in check(prepared, case.proto, case.samples):
        errors, expected = compared.errors["y"], compared.expected["y"]
        assert expected[:, :4].max() > 500
        assert errors[:, 4:].max() < 0.02, "one scale for boxes up to 640 has a step of 5"
        kinds = {node_.op_type for node_ in compared.quantized.model.graph for out in node_.outputs if "y" in out.name}
        assert "DequantizeLinear" not in kinds


@pytest.mark.parametrize("downsample", [False, True])
def test_the_residual_is_read_through_qdq(downsample: bool, tmp_path: Path) -> None:
    case = nets.residual_block(downsample)
    for form in FORMS:
        quantized = prepare(case.proto, case.samples).quantize(form)
        (read,) = quantized.reads
        assert (read.node, read.rule) == ("Add_a", 5)
        assert read.tensor == ("c2" if downsample else "r0")
        (add,) = (node_ for node_ in quantized.model.graph if node_.op_type == "Add")
        assert [value.producer().op_type for value in add.inputs].count("DequantizeLinear") == 1
        ir.save(quantized.model, tmp_path / "model.onnx")
        (residual,) = verify.verify(tmp_path / "model.onnx").residuals
        assert downsample or residual.built == "int8"  # the sum of two Convs is one kernel with both


def test_a_model_that_has_qdq_already_is_refused(tmp_path: Path, calib: Command) -> None:
    weights = {"scale": np.float16(0.1), "zero": np.int8(0), "w": normal(4, 2)}
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], "q"),
        node("DequantizeLinear", ["q", "scale", "zero"], "d"),
        node("MatMul", ["d", "w"], "y"),
    ]
    proto = model(nodes, {"x": ("N", 4)}, {"y": ("N", 2)}, weights, opset=19, valid=False)
    onnx.save(proto, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=normal(4, 4))
    refused = calib("calibrate", tmp_path / "model.onnx", tmp_path / "data.npz", "-o", tmp_path / "scales.json")
    assert_refused(refused, "model.onnx is already quantized", "QuantizeLinear", "start from the float model")


def renamed(case: Case, old: str, new: str) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    proto.CopyFrom(case.proto)
    for one in proto.graph.node:
        one.input[:] = [new if name == old else name for name in one.input]
        one.output[:] = [new if name == old else name for name in one.output]
    return proto


def test_a_tensor_renamed_after_calibration_is_noticed(written: Written, tmp_path: Path, calib: Command) -> None:
    case = nets.silu_chain()
    paths, scales, out = written(case), tmp_path / "scales.json", tmp_path / "int8.onnx"
    assert calib("calibrate", *paths, "-o", scales).status == 0
    assert calib("cache", "export", scales, "-o", tmp_path / "old.cache").status == 0
    other, imported = tmp_path / "renamed.onnx", tmp_path / "imported.json"
    onnx.save(renamed(case, "m1", "m1_simplified"), other)
    assert_refused(calib("quantize", other, scales, "-o", out), "scales.json was made for the model", "calibrate this")
    assert calib("cache", "import", tmp_path / "old.cache", "-o", imported).status == 0
    assert calib("quantize", paths[0], imported, "--rest", "fp32", "-o", out).status == 0
    refused = calib("quantize", other, imported, "--rest", "fp32", "-o", tmp_path / "other.onnx")
    assert_refused(refused, "layer 'Conv_c2'", "hold none for its input 'm1_simplified'", "calibrate this model")
    assert not (tmp_path / "other.onnx").exists()


def test_a_cache_that_lacks_a_tensor_is_refused(written: Written, tmp_path: Path, calib: Command) -> None:
    paths, scales, cache = written(nets.silu_chain()), tmp_path / "scales.json", tmp_path / "old.cache"
    assert calib("calibrate", *paths, "-o", scales).status == 0
    assert calib("cache", "export", scales, "-o", cache).status == 0
    cache.write_text(
        "".join(line for line in cache.read_text().splitlines(keepends=True) if not line.startswith("m0: "))
    )
    assert calib("cache", "import", cache, "-o", scales).status == 0
    out, options = tmp_path / "int8.onnx", ("--rest", "fp32")
    refused = calib("quantize", paths[0], scales, *options, "-o", out)
    assert_refused(refused, "layer 'Conv_c1'", "hold none for its input 'm0'", "keep the layer in float in the plan")
    (tmp_path / "plan.toml").write_text('[layers]\nConv_c1 = "fp32"')
    assert calib("quantize", paths[0], scales, *options, "--plan", tmp_path / "plan.toml", "-o", out).status == 0


def test_weights_in_another_folder_and_over_the_limit_of_one_file(
    tmp_path: Path, calib: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of protobuf, 2 GiB, is lowered."""
    case = nets.small_resnet()
    source, target, elsewhere = (tmp_path / name for name in ("source", "target", "elsewhere"))
    for folder in (source, target, elsewhere):
        folder.mkdir()
    proto = onnx.ModelProto.FromString(case.proto.SerializeToString())
    onnx.save_model(proto, source / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    np.savez(source / "data.npz", **case.samples)
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(save, "LARGE", 1000)
    scales, int8 = target / "scales.json", target / "int8.onnx"
    calibrate = calib("calibrate", source / "model.onnx", source / "data.npz", "-m", "max", "-o", scales)
    assert calibrate.status == 0, calibrate.err
    assert calib("quantize", source / "model.onnx", scales, "-o", int8).status == 0
    for path in source.iterdir():
        path.unlink()
    assert (target / "int8.onnx.data").stat().st_size > int8.stat().st_size / 2
    onnx.checker.check_model(int8, full_check=True)
    expected = run(case.proto, case.samples)["y"]
    assert np.abs(OrtRunner(int8).run(case.samples)["y"] - expected).max() < case.within * np.abs(expected).max()
    assert calib("verify", int8).status == 0


def test_a_small_resnet_is_near_its_float_model(ready: Ready) -> None:
    case, prepared = ready("43: small ResNet")
    for compared in check(prepared, case.proto, case.samples):
        expected, found = compared.expected["y"], run(ir.to_proto(compared.quantized.model), case.samples)["y"]
        sqnr_db = 10 * np.log10((expected**2).mean() / ((expected - found) ** 2).mean())
        assert sqnr_db > 25
        assert (expected.argmax(axis=1) == found.argmax(axis=1)).all()


def test_verify_speaks_of_onnx_nodes(written: Written, tmp_path: Path, calib: Command) -> None:
    case = nets.silu_chain()
    paths, scales, plan, int8 = written(case), tmp_path / "s.json", tmp_path / "plan.toml", tmp_path / "int8.onnx"
    plan.write_text('[layers]\nConv_c1 = "fp32"')
    assert calib("calibrate", *paths, "--plan", plan, "-o", scales).status == 0
    assert calib("quantize", paths[0], scales, "--plan", plan, "--rest", "fp32", "-o", int8).status == 0
    answer = json.loads(calib("verify", int8, "--json").out)
    found = {layer["name"]: (layer["asked"], layer["built"]) for layer in answer["layers"]}
    assert {name: kinds for name, kinds in found.items() if name.startswith("Conv")} == {
        "Conv_c0": ("int8", "int8"),
        "Conv_c1": ("fp32", "fp32"),
        "Conv_c2": ("int8", "int8"),
        "Conv_h": ("int8", "int8"),
    }


def test_batch_normalization_is_folded_before_weights_are_quantized(ready: Ready) -> None:
    case, prepared = ready("48: Conv and BatchNormalization")
    assert [node_.op_type for node_ in prepared.model.graph] == ["Conv", "Relu", "Conv"]
    parts = {tensor.name: numpy_helper.to_array(tensor) for tensor in case.proto.graph.initializer}
    folded = parts["w"] * (parts["gamma"] / np.sqrt(parts["variance"] + 1e-5)).reshape(6, 1, 1, 1)
    amax = np.abs(folded).max(axis=(1, 2, 3))
    found = prepared.scales.weights["w"].values
    assert (found > 0).all()
    np.testing.assert_allclose(found[amax > 0], amax[amax > 0] / 127, rtol=1e-5)
