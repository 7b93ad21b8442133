"""What is wrong with a user's input: exit status 1, one message that says what, where and what to do, and no file left."""

import json
import pickle
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from .conftest import (
    RECIPE,
    USER_CODE,
    Answer,
    assert_refused,
    make_model,
    matmul_model,
    run_calib,
    temporary_files,
    text_model,
    write_study,
)

CALIBRATORS = ["max", "mse", "entropy", "percentile-99.9"]
Command = Callable[..., Answer]


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def rows(count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 1, (count, 4)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return matmul_model(tmp_path / "model.onnx")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return npz(tmp_path / "data.npz", x=rows())


@pytest.fixture
def refused_scales(calib: Command, tmp_path: Path) -> Command:
    """Return a function that asserts that `calib calibrate` refuses, says all of `says`, and leaves no file."""

    def check(model: Path, data: Path, *says: str, method: str = "max", options: tuple[str, ...] = ()) -> None:
        out = tmp_path / "out" / "scales.json"
        assert_refused(calib("calibrate", model, data, "-m", method, "-o", out, *options), *says)
        assert not out.exists()
        assert temporary_files(tmp_path) == []

    return check


def test_a_process_ends_with_status_1_and_the_message_alone(tmp_path: Path, model: Path) -> None:
    values = rows()
    values[4, 2] = np.nan
    answer = run_calib("calibrate", model, npz(tmp_path / "data.npz", x=values), "-o", tmp_path / "scales.json")
    assert_refused(answer, "input 'x'", "'row-4'", "NaN")
    assert answer.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.npz", "model.onnx"]


class TestValues:
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_not_finite_in_an_input(self, bad: float, tmp_path: Path, model: Path, refused_scales: Command) -> None:
        values = rows()
        values[4, 2] = bad
        refused_scales(model, npz(tmp_path / "bad.npz", x=values), "input 'x'", "'row-4'", "NaN or Inf")

    @pytest.mark.parametrize("method", CALIBRATORS)
    @pytest.mark.parametrize("operator", ["Log", "Reciprocal"])  # NaN of a negative value, Inf of a zero
    def test_not_finite_inside_the_model(
        self, operator: str, method: str, tmp_path: Path, refused_scales: Command
    ) -> None:
        model = matmul_model(tmp_path / "m.onnx", [helper.make_node(operator, ["x"], ["inner"], "op")], "inner")
        values = np.abs(rows()) + 1
        values[3, 1] = -1 if operator == "Log" else 0
        data = npz(tmp_path / "d.npz", x=values)
        refused_scales(model, data, "tensor 'inner'", "'row-3'", "NaN or Inf", method=method)

    @pytest.mark.parametrize("method", CALIBRATORS)
    def test_a_tensor_that_is_zero_throughout(self, method: str, tmp_path: Path, refused_scales: Command) -> None:
        model = matmul_model(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["dead"], "relu")], "dead")
        data = npz(tmp_path / "d.npz", x=-np.abs(rows()))
        refused_scales(model, data, "tensor 'dead'", "zero for every sample", "plan", method=method)

    @pytest.mark.parametrize("method", CALIBRATORS)
    @pytest.mark.parametrize("constant", [0.1, -3.0, 1e-30, 7e30])
    def test_a_constant_tensor_has_an_exact_scale(
        self, constant: float, method: str, tmp_path: Path, model: Path, calib: Command
    ) -> None:
        data = npz(tmp_path / "d.npz", x=np.full((6, 4), constant, np.float32))
        assert calib("calibrate", model, data, "-m", method, "-o", tmp_path / "scales.json").status == 0
        scale = json.loads((tmp_path / "scales.json").read_text())["activations"]["x"]
        assert scale == float(np.abs(np.float32(constant)) / np.float32(127))


class TestSets:
    def test_an_empty_set(self, tmp_path: Path, model: Path, refused_scales: Command) -> None:
        refused_scales(model, npz(tmp_path / "d.npz", x=rows(0)), "d.npz", "N >= 1")
        refused_scales(model, npz(tmp_path / "e.npz"), "e.npz", "N >= 1")

    def test_what_does_not_fit_the_model(self, tmp_path: Path, model: Path, refused_scales: Command) -> None:
        for wrong, says in (
            ({"x": rows()[:, :3]}, ("shape [3]", "needs [4]", "'x'", "row-0")),
            ({"x": rows()[:, :, None]}, ("shape [4, 1]", "needs [4]")),
            ({"x": rows().astype(np.float64)}, ("float64", "float32", "'x'", "row-0")),
            ({"z": rows()}, ("input 'x' is missing", "no input 'z'")),
            ({"x": rows(), "z": rows()}, ("no input 'z'", "inputs are 'x'")),
            ({"x": rows(), "z": rows(5)}, ("same N",)),
        ):
            refused_scales(model, npz(tmp_path / "d.npz", **wrong), "d.npz", *says)

    def test_a_file_that_is_not_an_npz(self, tmp_path: Path, model: Path, data: Path, refused_scales: Command) -> None:
        whole = data.read_bytes()
        np.save(tmp_path / "array.npy", rows())
        contents = {
            "truncated": whole[: len(whole) // 2],
            "end": whole[:-10],
            "empty": b"",
            "text": b"not an archive",
            "array": (tmp_path / "array.npy").read_bytes(),
            "pickle": pickle.dumps({"x": 1}),
        }
        for name, content in contents.items():
            (tmp_path / f"{name}.npz").write_bytes(content)
            refused_scales(model, tmp_path / f"{name}.npz", f"{name}.npz", "write it again")

    def test_pickled_objects_are_never_loaded(self, tmp_path: Path, model: Path, refused_scales: Command) -> None:
        class Trap:
            def __reduce__(self) -> tuple[object, ...]:
                return (Path.touch, (tmp_path / "sprung",))

        data = npz(tmp_path / "d.npz", x=np.array([Trap()], dtype=object))
        refused_scales(model, data, "d.npz", "pickled Python objects, which are never loaded")
        assert not (tmp_path / "sprung").exists()

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda m: m["samples"][0].update(shard="../data.npz"), ("../data.npz", "leaves")),
            (lambda m: m["samples"][0].update(row=99), ("row 99",)),
            (lambda m: m["samples"][0].update(row="0"), ("manifest.json", "row")),
            (lambda m: m["samples"][0].update(row=-1), ("manifest.json", "row")),
            (lambda m: m["samples"][0].pop("sha256"), ("manifest.json", "sha256")),
            (lambda m: m.update(samples=[]), ("no samples",)),
            (lambda m: m.update(version=99), ("version 99", "make it again")),
            (lambda m: m.update(format="other"), ("not a calib-samples file",)),
        ],
    )
    def test_a_wrong_manifest(
        self, change: Callable[[dict], object], says: tuple[str, ...], study: Path, calib: Command, tmp_path: Path
    ) -> None:
        assert calib("data", "build", study.parent / "recipe.toml", "-o", tmp_path / "set").status == 0
        npz(tmp_path / "set" / "data.npz", x=np.ones((1, 1, 4, 12), np.float32))
        manifest = tmp_path / "set" / "calibration" / "manifest.json"
        document = json.loads(manifest.read_text())
        change(document)
        manifest.write_text(json.dumps(document))
        out = tmp_path / "scales.json"
        assert_refused(calib("calibrate", study.parent / "model.onnx", manifest.parent, "-o", out), *says)
        assert not out.exists()

    def test_a_truncated_shard(self, study: Path, calib: Command, tmp_path: Path) -> None:
        assert calib("data", "build", study.parent / "recipe.toml", "-o", tmp_path / "set").status == 0
        shard = tmp_path / "set" / "calibration" / "shard-00000.npz"
        shard.write_bytes(shard.read_bytes()[:100])
        answer = calib("calibrate", study.parent / "model.onnx", shard.parent, "-o", tmp_path / "scales.json")
        assert_refused(answer, str(shard), "truncated")


class TestFixedBatch:
    def test_of_one_works(self, tmp_path: Path, data: Path, calib: Command) -> None:
        fixed, free = matmul_model(tmp_path / "fixed.onnx", batch=1), matmul_model(tmp_path / "free.onnx")
        plan = tmp_path / "plan.toml"
        plan.write_text('[layers]\nmatmul = "int8"')  # a product with one row is in INT8 only when named
        scales = []
        for model in (fixed, free):
            assert calib("calibrate", model, data, "--plan", plan, "-o", tmp_path / "scales.json").status == 0
            scales.append(json.loads((tmp_path / "scales.json").read_text())["activations"])
        assert scales[0] == scales[1]

    def test_of_two_works_where_it_divides_the_samples(self, tmp_path: Path, data: Path, calib: Command) -> None:
        model = matmul_model(tmp_path / "fixed.onnx", batch=2)
        out = tmp_path / "scales.json"
        assert calib("calibrate", model, data, "-o", out, "--batch-size", 3).status == 0

    def test_of_four_and_six_samples(self, tmp_path: Path, data: Path, refused_scales: Command) -> None:
        model = matmul_model(tmp_path / "fixed.onnx", batch=4)
        refused_scales(model, data, "batch is fixed at 4", "2 samples are left", "free batch")


class TestModels:
    @pytest.mark.parametrize("name", ["model.onnx", "model.json", "model.textproto"])
    @pytest.mark.parametrize("content", [b"", b"This is text.", bytes(range(256)) * 4, b'{"graph": {}}'])
    def test_that_are_not_onnx(
        self, content: bytes, name: str, tmp_path: Path, data: Path, refused_scales: Command
    ) -> None:
        (tmp_path / name).write_bytes(content)
        refused_scales(tmp_path / name, data, name, "not an ONNX model")

    def test_that_are_missing_or_a_folder(self, tmp_path: Path, data: Path, refused_scales: Command) -> None:
        refused_scales(tmp_path / "none.onnx", data, "none.onnx", "does not exist")
        refused_scales(tmp_path, data, str(tmp_path), "not an ONNX model")

    def test_quantized_by_others(self, data: Path, refused_scales: Command) -> None:
        files = metadata.files("ddddocr") or []
        (model,) = [file.locate() for file in files if file.name == "common_old.onnx"]
        refused_scales(Path(str(model)), data, "common_old.onnx", "already quantized", "float model")

    def test_quantized_by_calib(
        self, tmp_path: Path, model: Path, data: Path, calib: Command, refused_scales: Command
    ) -> None:
        assert calib("calibrate", model, data, "-o", tmp_path / "s.json").status == 0
        assert calib("quantize", model, tmp_path / "s.json", "-o", tmp_path / "int8.onnx").status == 0
        refused_scales(tmp_path / "int8.onnx", data, "int8.onnx", "already quantized", "DequantizeLinear")

    def test_without_layers(self, tmp_path: Path, data: Path, refused_scales: Command) -> None:
        nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
        model = make_model(tmp_path / "relu.onnx", nodes, {"x": ["N", 4]}, ["N", 4])
        refused_scales(model, data, "nothing to quantize", "Conv")

    def test_that_fail_while_they_run(self, tmp_path: Path, data: Path, refused_scales: Command) -> None:
        nodes = [helper.make_node("Reshape", ["x", "shape"], ["inner"], "reshape")]
        model = matmul_model(tmp_path / "m.onnx", nodes, "inner", shape=np.array([5, -1], np.int64))
        refused_scales(model, data, "fails on inputs x float32[1, 4]")

    def test_external_weights(self, tmp_path: Path, data: Path, calib: Command, refused_scales: Command) -> None:
        model = matmul_model(tmp_path / "inline.onnx")
        proto = onnx.load(model)
        path = tmp_path / "external.onnx"
        onnx.save_model(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
        out = tmp_path / "scales.json"
        assert calib("calibrate", path, data, "-o", out).status == 0
        assert calib("quantize", path, out, "-o", tmp_path / "elsewhere" / "int8.onnx").status == 0
        first = json.loads(out.read_text())["model_sha256"]
        changed = bytearray((tmp_path / "weights.bin").read_bytes())
        changed[3] ^= 0x80
        (tmp_path / "weights.bin").write_bytes(changed)
        assert calib("calibrate", path, data, "-o", out).status == 0
        assert json.loads(out.read_text())["model_sha256"] != first, "other weights are another model"
        (tmp_path / "weights.bin").write_bytes(b"\0")
        refused_scales(path, data, "external.onnx", "weights")
        (tmp_path / "weights.bin").unlink()
        refused_scales(path, data, "external.onnx", "'matrix'", "weights.bin", "does not exist")

    @pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname"])
    def test_external_weights_outside_the_folder(
        self, location: str, tmp_path: Path, data: Path, refused_scales: Command
    ) -> None:
        (tmp_path / "secret.bin").write_bytes(b"\0" * 32)
        proto = onnx.load(matmul_model(tmp_path / "inline.onnx"))
        weight = proto.graph.initializer[0]
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value=location)
        path = tmp_path / "inner" / "model.onnx"
        path.parent.mkdir()
        path.write_bytes(proto.SerializeToString())
        refused_scales(path, data, "'matrix'", location, "leaves")


class TestConfiguration:
    @pytest.mark.parametrize(
        ("file", "change", "says"),
        [
            ("study.toml", ("max_drop", "max_dorp"), ("budget", "unknown key 'max_dorp'", "did you mean 'max_drop'")),
            ("study.toml", ("[report]", "[reprot]"), ("unknown key 'reprot'", "did you mean 'report'")),
            ("study.toml", ("max_drop = 0.05", ""), ("budget", "'max_drop' is missing")),
            ("study.toml", ("max_drop = 0.05", "max_drop = nan"), ("max_drop", "0 or more")),
            ("study.toml", ("max_drop = 0.05", 'max_drop = "no"'), ("max_drop", "a number")),
            ("study.toml", ('name = "small"', 'name = "../small"'), ("name", "../small")),
            ("study.toml", ('name = "small"', "name = small"), ("not valid TOML",)),
            ("study.toml", ('"mse"', '"msse"'), ("calibrate", "'msse'", "known are")),
            ("study.toml", ('"mse"', '"max"'), ("calibrate", "'max' is listed 2 times")),
            ("study.toml", ('"mse"', '"percentile-high"'), ("percentile-high", "needs a number")),
            ("study.toml", ('"mse"', '"percentile-101"'), ("percent", "101")),
            ("study.toml", ('"mse"', '"user_code.py:Calibrater"'), ("user_code.py", "no attribute 'Calibrater'")),
            ("study.toml", ('"mse"', '"user_code.py:Lines"'), ("user_code.py:Lines", "without arguments")),
            ("study.toml", ('"mse"', '"calib.calibrators:Max"'), ("two models", "'max'", "another name")),
            ("study.toml", ('"mse"', '"user_code.py:interrupt"'), ("not a calibrator",)),
            ("study.toml", ('"mse"', '"user_code.py:NamelessCalibrator"'), ("NamelessCalibrator", "../outside")),
            ("study.toml", ('"mse"', '"user_code.py:RaisingCalibrator"'), ("raising", "tensor 'x'", "nothing here")),
            ("study.toml", ("ctc-text", "ctc-txt"), ("'ctc-txt'", "known are")),
            ("study.toml", ("ctc-text", "none.py:Metric"), ("none.py", "does not exist")),
            ("study.toml", ("ctc-text", "user_code.py:Lines"), ("does not take these options",)),
            ("study.toml", ("ctc-text", "user_code.py:broken_metric"), ("broken_metric", "no dictionary")),
            ("study.toml", ("ctc-text", "user_code.py:RaisingMetric"), ("metric", "ZeroDivisionError", "line-")),
            ("study.toml", ('metric = "cer"', 'metric = "wer"'), ("budget", "'wer'", "cer, exact")),
            ("study.toml", ("[report]", '[report]\nslices = ["site"]'), ("report.slices", "'site'", "device")),
            ("study.toml", ("model.onnx", "none.onnx"), ("none.onnx", "does not exist")),
            ("study.toml", ("model.onnx", "package:no-such-package/m.onnx"), ("no-such-package", "pip install")),
            ("study.toml", ("recipe.toml", "none.toml"), ("none.toml", "does not exist")),
            (
                "study.toml",
                ("[report]", '[plan.layers]\nconvolution = "fp32"\n[report]'),
                ("'convolution'", "no layer"),
            ),
            ("study.toml", ("[report]", '[plan.layers]\nconv = "int4"\n[report]'), ("int4", "int8, fp16, fp32")),
            ("recipe.toml", ("seed", "sead"), ("unknown key 'sead'", "did you mean 'seed'")),
            ("recipe.toml", ("samples = 12", "samples = 0"), ("calibration", "at least 1")),
            ("recipe.toml", ("samples = 12", "samples = 1000"), ("too few samples", "calibration", "fewer samples")),
            ("recipe.toml", ('target = "text"', 'target = "txt"'), ("target 'txt'", "column")),
            ("recipe.toml", ('target = "text"', ""), ("cer", "target")),
            ("recipe.toml", ('"device"', '"divice"'), ("column 'divice'",)),
            ("recipe.toml", ("user_code.py:lines", "user_code.py:linez"), ("no attribute 'linez'",)),
            ("recipe.toml", ("user_code.py:lines", "user_code.py"), ("path/file.py:attribute",)),
            ("recipe.toml", ("user_code.py:lines", "none.py:lines"), ("none.py", "does not exist")),
            ("recipe.toml", ("user_code.py:lines", "user_code.py:interrupt"), ("does not take these options",)),
            ("recipe.toml", ("count = 60", "cuont = 60"), ("does not take these options", "cuont")),
            ("recipe.toml", ("count = 60", 'fault = "empty"'), ("holds no samples",)),
            ("recipe.toml", ("count = 60", 'fault = "factory raises"'), ("RuntimeError: no such archive",)),
            ("recipe.toml", ("count = 60", 'fault = "metadata raises"'), ("RuntimeError: no database",)),
            ("recipe.toml", ("count = 60", 'fault = "raises"'), ("sample 'line-", "cannot decode the image")),
            ("recipe.toml", ("count = 60", 'fault = "nan"'), ("sample 'line-", "input 'x'", "NaN or Inf")),
            ("recipe.toml", ("count = 60", 'fault = "inf"'), ("sample 'line-", "input 'x'", "NaN or Inf")),
            ("recipe.toml", ("count = 60", 'fault = "object"'), ("sample 'line-", "input 'x'", "object")),
            ("recipe.toml", ("count = 60", 'fault = "same id"'), ("two samples with id 'line-0'",)),
            ("recipe.toml", ("count = 60", 'fault = "no id"'), ("record 1", "no 'id'")),
            ("recipe.toml", ("count = 60", 'fault = "nan in metadata"'), ("sample 'line-1'", "'page' is nan")),
            ("user_code.py", ("import signal", "import sygnal"), ("cannot be imported", "sygnal")),
            ("user_code.py", ("class Lines:", "class Lines"), ("cannot be imported", "SyntaxError")),
        ],
        ids=lambda value: " ".join(value).replace("\n", " ") if isinstance(value, tuple) else value,
    )
    def test_of_a_study(
        self, file: str, change: tuple[str, str], says: tuple[str, ...], study: Path, tmp_path: Path, calib: Command
    ) -> None:
        path = study.parent / file
        changed = path.read_text().replace(*change)
        assert changed != path.read_text()
        path.write_text(changed)
        assert_refused(calib("run", study, "--runs", tmp_path / "runs", "--no-track"), *says)
        assert not list(tmp_path.rglob("study.json"))
        assert temporary_files(tmp_path) == []

    def test_of_a_plan(self, tmp_path: Path, model: Path, data: Path, refused_scales: Command) -> None:
        plan = tmp_path / "plan.toml"
        for text, says in (
            ('[layers]\nmatmull = "fp32"', ("'matmull'", "did you mean matmul")),
            ('[layers]\nmatmul = "int4"', ("int4", "int8, fp16, fp32")),
            ('[layer]\nmatmul = "fp32"', ("unknown key 'layer'", "did you mean 'layers'")),
            ("default = ", ("not valid TOML",)),
        ):
            plan.write_text(text)
            refused_scales(model, data, *says, options=("--plan", str(plan)))

    def test_of_options(self, tmp_path: Path, model: Path, data: Path, refused_scales: Command, calib: Command) -> None:
        refused_scales(model, data, "'minmax'", "known are max", method="minmax")
        refused_scales(model, data, "none.py", "does not exist", method="none.py:Calibrator")
        refused_scales(model, data, "plan.toml", "cannot be read", options=("--plan", "plan.toml"))
        assert_refused(calib("evaluate", model, data, "--metric", "accuracy"), "'accuracy'", "known are")
        assert_refused(calib("run", tmp_path / "none.toml"), "none.toml", "cannot be read")
        assert_refused(calib("report", tmp_path), "is no run", "study.json")

    def test_of_places_that_cannot_be_written(self, tmp_path: Path, model: Path, data: Path, calib: Command) -> None:
        (tmp_path / "file").touch()
        for out in (tmp_path / "file" / "scales.json", tmp_path):
            assert_refused(calib("calibrate", model, data, "-o", out), str(tmp_path), "another place")
        study = write_study(tmp_path / "study")
        for track in ("--track", "--no-track"):
            assert_refused(calib("run", study, "--runs", tmp_path / "file", track), "file", "another place")

    def test_a_usage_error_has_status_2(self, model: Path, calib: Command) -> None:
        assert calib("calibrate", model).status == 2


class TestScales:
    @pytest.fixture
    def scales(self, tmp_path: Path, model: Path, data: Path, calib: Command) -> Path:
        assert calib("calibrate", model, data, "-o", tmp_path / "scales.json").status == 0
        return tmp_path / "scales.json"

    @pytest.fixture
    def refused(self, scales: Path, model: Path, calib: Command, tmp_path: Path) -> Command:
        def check(*says: str, model: Path = model) -> None:
            out = tmp_path / "int8.onnx"
            assert_refused(calib("quantize", model, scales, "-o", out), *says)
            assert not out.exists()
            assert temporary_files(tmp_path) == []

        return check

    def test_of_another_model(self, tmp_path: Path, refused: Command) -> None:
        refused("scales.json", "sha256", "calibrate this model", model=text_model(tmp_path / "other.onnx"))
        refused("none.onnx", "does not exist", model=tmp_path / "none.onnx")

    @pytest.mark.parametrize("bad", ["-0.5", "0", "NaN", "Infinity", "1e300", "null", '"much"', "[1, 2]"])
    def test_with_a_scale_that_is_none(self, bad: str, scales: Path, refused: Command) -> None:
        document = json.loads(scales.read_text())
        document["activations"]["x"] = json.loads(bad)
        scales.write_text(json.dumps(document))
        refused("scales.json")

    @pytest.mark.parametrize("bad", [[-1.0, 1.0], [float("nan"), 1.0], [1.0], [1.0, 1.0, 1.0], "text"])
    def test_with_a_weight_scale_that_is_none(self, bad: object, scales: Path, refused: Command) -> None:
        document = json.loads(scales.read_text())
        document["weights"]["matrix"]["scales"] = bad
        scales.write_text(json.dumps(document))
        refused("scales")

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            ({"version": 99}, "version 99"),
            ({"format": "calib-study"}, "calib-study file"),
            ({"activations": {}}, "'x'"),
            ({"activations": ["x"]}, "calibrate again"),
            ({"weights": None}, "calibrate again"),
        ],
    )
    def test_that_are_another_file(self, change: dict, says: str, scales: Path, refused: Command) -> None:
        scales.write_text(json.dumps({**json.loads(scales.read_text()), **change}))
        refused(says)

    def test_that_are_not_json(self, scales: Path, refused: Command) -> None:
        for content in (scales.read_bytes()[:-30], b"", b"\xff\xfe", b"[1]"):
            scales.write_bytes(content)
            refused("scales.json")


def test_nan_in_an_output_names_the_sample(tmp_path: Path, calib: Command) -> None:
    recipe, code = tmp_path / "recipe.toml", tmp_path / "user_code.py"
    recipe.write_text(RECIPE)
    code.write_text(USER_CODE)
    assert calib("data", "build", recipe, "-o", tmp_path / "set").status == 0
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["tops"], "top", axes=[1, 2, 3]),
        helper.make_node("Squeeze", ["tops", "last"], ["top"], "squeeze"),
        helper.make_node("Sub", ["top", "limit"], ["left"], "sub"),
        helper.make_node("Log", ["left"], ["logarithm"], "log"),
        helper.make_node("Concat", ["logarithm"] * 3, ["y"], "concat", axis=2),
    ]
    shard = np.load(tmp_path / "set" / "evaluation" / "shard-00000.npz")["x"]
    samples = json.loads((tmp_path / "set" / "evaluation" / "manifest.json").read_text())["samples"]
    tops = {sample["id"]: shard[sample["row"]].max() for sample in samples}
    lowest = min(tops, key=lambda identity: tops[identity])
    limit = np.float32(np.mean(sorted(tops.values())[:2]))  # only the lowest is below it
    model = make_model(
        tmp_path / "m.onnx",
        nodes,
        {"x": ["N", 1, 4, "T"]},
        ["N", 1, 3],
        {"limit": limit, "last": np.array([3], np.int64)},
        {"character": "W"},
    )
    answer = calib("evaluate", model, tmp_path / "set" / "evaluation", "--metric", "ctc-text")
    assert_refused(answer, "output 'y'", "NaN or Inf", f"'{lowest}'")
