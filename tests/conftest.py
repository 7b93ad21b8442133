"""A small study in user's terms: ONNX models made in code, a user's Python file, a recipe and a study file."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import settings
from onnx import TensorProto, helper, numpy_helper

from calib.cli import main

# The first example compiles the kernels, which would break any deadline.
settings.register_profile("calib", deadline=None)
settings.load_profile("calib")

CLASSES = "WXYZ"

USER_CODE = '''
"""Text lines for the tests: column t of an image holds a one-hot character, and every second column is blank."""

import os
import signal

import numpy as np

from calib.calibrators import Max
from calib.metrics import CtcText


def interrupt(stage):
    if os.environ.get("KILL_AT") == stage:
        os.kill(os.getpid(), signal.SIGKILL)


class Lines:
    def __init__(self, lines, fault):
        self.lines, self.fault, self.read = lines, fault, 0

    def metadata(self):
        if self.fault == "metadata raises":
            raise RuntimeError("no database")
        records = []
        for i in range(self.lines):
            text = "".join(np.random.default_rng(i).choice(list("WXYZ"), 6).tolist())
            device = "fax" if i % 3 == 0 else "phone"
            records.append({"id": f"line-{i}", "text": text, "patient": f"MARKED-{i}", "page": i // 2, "device": device})
        if self.fault == "same id":
            records[1]["id"] = records[0]["id"]
        if self.fault == "no id":
            del records[1]["id"]
        if self.fault == "nan in metadata":
            records[1]["page"] = float("nan")
        return records

    def inputs(self, index):
        self.read += 1
        if self.read == 20:  # in the second of the two sets
            interrupt("source")
        x = np.random.default_rng(1000 + index).normal(0, 0.25, (1, 4, 12)).astype(np.float32)
        for t, character in enumerate(self.metadata()[index]["text"]):
            x[0, "WXYZ".index(character), 2 * t + 1] += 1
        if self.fault == "outlier" and index % 5 == 0:  # so bright that INT8 takes faint characters of the others for blank
            x *= 100
        return self.broken(x) if self.read == 20 else {"x": x}

    def broken(self, x):
        if self.fault == "raises":
            raise RuntimeError("cannot decode the image")
        if self.fault in ("nan", "inf"):
            x[0, 2, 3] = float(self.fault)
        if self.fault == "object":
            return {"x": np.array([None])}
        return {"x": x}


def lines(count=60, fault=""):
    if fault == "factory raises":
        raise RuntimeError("no such archive")
    return Lines(0 if fault == "empty" else count, fault)


class Calibrator(Max):
    name = "mine"

    def amax(self, statistics):
        interrupt("calibrator")
        return 0.9 * statistics.histogram.amax


class Metric:
    higher_is_better = {"cer": False, "exact": True}

    def score(self, outputs, targets):
        interrupt("metric")
        return CtcText(("", *"WXYZ", " ")).score(outputs, targets)


def broken_metric():
    raise OSError("no dictionary")


class RaisingMetric(Metric):
    def score(self, outputs, targets):
        return [1 / 0]


class NamelessCalibrator(Max):
    name = "../outside"


class RaisingCalibrator(Max):
    name = "raising"

    def amax(self, statistics):
        raise ZeroDivisionError("nothing here")
'''

RECIPE = """
name = "lines"
source = "user_code.py:lines"
target = "text"
stratify = ["device"]
group = "page"
seed = 3

[calibration]
samples = 12

[evaluation]
samples = 16

[options]
count = 60
"""

STUDY = """
name = "small"

[model]
path = "model.onnx"

[data]
recipe = "recipe.toml"

[metric]
name = "ctc-text"

[budget]
metric = "cer"
max_drop = 0.05

[calibrate]
calibrators = ["max", "mse", "entropy"]
noise_control = ["max"]

[report]
include_samples = false
"""


@dataclass(frozen=True)
class Answer:
    """What a command did."""

    status: int
    out: str
    err: str


def make_model(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    output: Sequence[int | str],
    weights: Mapping[str, np.ndarray] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a float32 model with the output "y"."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, dict(metadata or {}))
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def text_model(path: Path, *, dead_branch: bool = False) -> Path:
    """Write a recognizer of one-hot characters: Conv, Relu, MatMul, and CTC's [N, T, classes].

    With `dead_branch` a second Conv reads a tensor that is always zero, and adds nothing.
    """
    draws = np.random.default_rng(0)
    kernel = np.eye(4, dtype=np.float32)[:, None, :, None] + draws.normal(0, 0.05, (4, 1, 4, 1)).astype(np.float32)
    to_classes = np.hstack([np.zeros((4, 1)), np.eye(4), np.zeros((4, 1))]).astype(np.float32)  # blank, WXYZ, space
    weights = {
        "kernel": kernel,
        "to_classes": to_classes,
        "bias": np.array([0.55, 0, 0, 0, 0, 0], np.float32),  # the blank wins where no character stands
        "height": np.array([2], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["features"], "conv"),
        helper.make_node("Relu", ["features"], ["positive"], "relu"),
        helper.make_node("Squeeze", ["positive", "height"], ["columns"], "squeeze"),
        helper.make_node("Transpose", ["columns"], ["steps"], "transpose", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["steps", "to_classes"], ["scores"], "classify"),
        helper.make_node("Add", ["scores", "bias"], ["y"], "add"),
    ]
    if dead_branch:
        nodes[0].output[0] = "live"
        nodes[1:1] = [
            helper.make_node("Sub", ["x", "x"], ["dead"], "nothing"),
            helper.make_node("Conv", ["dead", "kernel"], ["none"], "dead_conv"),
            helper.make_node("Add", ["live", "none"], ["features"], "join"),
        ]
    return make_model(path, nodes, {"x": ["N", 1, 4, "T"]}, ["N", "T", 6], weights, {"character": "\n".join(CLASSES)})


def matmul_model(
    path: Path, before: Sequence[onnx.NodeProto] = (), tensor: str = "x", batch: int | str = "N", **weights: np.ndarray
) -> Path:
    """Write a model that makes `tensor` of its input x [N, 4] with some nodes, and multiplies it by a matrix."""
    matrix = np.arange(8, dtype=np.float32).reshape(4, 2) - 3
    nodes = [*before, helper.make_node("MatMul", [tensor, "matrix"], ["y"], "matmul")]
    return make_model(path, nodes, {"x": [batch, 4]}, [batch, 2], {"matrix": matrix, **weights})


def write_study(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the small study into a folder; `changes` replace text in its three text files."""
    folder.mkdir(parents=True, exist_ok=True)
    text_model(folder / "model.onnx")
    for name, text in (("user_code.py", USER_CODE), ("recipe.toml", RECIPE), ("study.toml", STUDY)):
        for old, new in changes:
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "study.toml"


def run_calib(*arguments: Any, **options: Any) -> Answer:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "calib", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    return Answer(done.returncode, done.stdout, done.stderr)


def assert_refused(answer: Answer, *says: str) -> None:
    """Exit status 1 and one message, which says all of `says`."""
    assert answer.status == 1, answer
    assert "Traceback" not in answer.err, answer.err
    progress, _, message = ("\n" + answer.err).partition("\nError: ")
    assert "rror" not in progress
    assert message.count("\n") == 1, answer.err
    for text in says:
        assert text in message, message


def temporary_files(folder: Path) -> list[Path]:
    """Return what a command that was killed or failed left half done."""
    return sorted(folder.rglob("*.tmp"))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    return write_study(tmp_path / "study")


@pytest.fixture
def calib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Return a function that runs the command line in this process."""

    def call(*arguments: Any) -> Answer:
        monkeypatch.setattr(sys, "argv", ["calib", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Answer(int(left.value.code or 0), out, err)

    return call
