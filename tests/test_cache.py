"""Calibration caches: TensorRT's own are in test_golden.py; here are the names and lines that break other readers."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from calib import cache
from calib.errors import DataError
from calib.scales import Origin, Scales
from tests.conftest import assert_refused, text_model


def test_names_with_spaces_colons_and_brackets(tmp_path: Path) -> None:
    """NVIDIA/TensorRT#681: "(Unnamed Layer* 1) [Scale]_output: 3c008912"; ": " may stand in the name itself."""
    text = "TRT-8601-EntropyCalibration2\n(Unnamed Layer* 1) [Scale]_output: 3c008912\nscope: a: b: 3c88edfc\nx_scale: 3c010a13\n"
    (tmp_path / "in.cache").write_text(text)
    found = cache.read(tmp_path / "in.cache")
    assert list(found.activations) == ["(Unnamed Layer* 1) [Scale]_output", "scope: a: b", "x_scale"]
    assert found.activations["scope: a: b"] * 127 == pytest.approx(2.1228, abs=1e-4)
    cache.write(found, tmp_path / "out.cache")
    assert (tmp_path / "out.cache").read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1 must be a TensorRT header"),
        ("x: 3c008912\n", "line 1 must be a TensorRT header"),
        ("TRT-8601-EntropyCalibration2\nx 3c008912\n", "line 2 must be 'tensor: 8 hex digits'"),
        ("TRT-8601-EntropyCalibration2\nx: 3c0089\n", "line 2 must be"),
        ("TRT-8601-EntropyCalibration2\n\nx: 3c008912\n", "line 2 must be"),
        ("TRT-8601-EntropyCalibration2\nx: 3c008912\nx: 3c008912\n", "line 3: tensor 'x' appears twice"),
        ("TRT-8601-EntropyCalibration2\nx: 00000000\n", "line 2: the scale of 'x' is 0.0"),
        ("TRT-8601-EntropyCalibration2\nx: 7fc00000\n", "line 2: the scale of 'x' is nan"),
    ],
)
def test_what_is_not_a_cache(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.cache").write_text(text)
    with pytest.raises(DataError, match=message):
        cache.read(tmp_path / "bad.cache")


def test_headers_and_names_that_cannot_be_written(tmp_path: Path) -> None:
    scales = Scales({"x": np.float32(0.5)}, {}, Origin("mse"))
    cache.write(scales, tmp_path / "a.cache", "TRT-100500-MinMaxCalibration")
    assert (tmp_path / "a.cache").read_text() == "TRT-100500-MinMaxCalibration\nx: 3f000000\n"
    with pytest.raises(DataError, match="is not a TensorRT header"):
        cache.write(scales, tmp_path / "b.cache", "8601")
    with pytest.raises(DataError, match="line break"):
        cache.write(Scales({"x\ny": np.float32(0.5)}, {}, Origin("mse")), tmp_path / "b.cache")
    assert not (tmp_path / "b.cache").exists()


def test_a_tensorrt_10_cache_becomes_a_strongly_typed_model(tmp_path: Path, calib) -> None:
    """The migration to TensorRT 11: the cache has no ranges, so what FP16 can hold is seen on a calibration set."""
    model = text_model(tmp_path / "model.onnx")
    (tmp_path / "old.cache").write_text(
        "TRT-8601-EntropyCalibration2\nx: 3c010a14\nsteps: 3c010a14\n", encoding="utf-8"
    )
    scales, out = tmp_path / "scales.json", tmp_path / "model.int8.onnx"
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).normal(size=(3, 1, 4, 12)).astype(np.float32))
    assert calib("cache", "import", tmp_path / "old.cache", "-o", scales).status == 0
    assert_refused(calib("quantize", model, scales, "-o", out), "hold no ranges", "--data", "--rest fp32")
    assert not out.exists()
    answer = calib("quantize", model, scales, "--data", tmp_path / "data.npz", "-o", out, "--json")
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["int8"] == ["conv", "classify"]
    kinds = {tensor.data_type for tensor in onnx.load(out).graph.initializer}
    assert {onnx.TensorProto.INT8, onnx.TensorProto.FLOAT16} <= kinds
    assert calib("verify", out).status == 0
