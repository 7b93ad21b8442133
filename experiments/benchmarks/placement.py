"""What each rule of calib/qdq contributes: kernels that TensorRT-RTX builds of PP-OCRv4's recognizer, and its CER.

    .venv/bin/python experiments/benchmarks/placement.py --out reports/benchmark-placement.json

128 golden lines calibrate (MSE), 160 evaluate. The first row is the float model, the second a plain placement: Q/DQ on the
inputs of every weighted layer, one scale a channel, all else in FP32. Every row after it adds one thing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from unittest import mock

import onnx_ir as ir
from calibration import MODEL, ROOT, golden_lines  # the benchmark beside this file

from calib import calibrators, evaluate, metrics, observe, pipeline, qdq, verify
from calib.data import writing
from calib.data.sets import SampleSet
from calib.graph import load, normalize
from calib.plan import Plan
from calib.qdq import Form
from calib.runtime.ort import OrtRunner
from calib.scales import Origin

EVERYTHING = Plan(layers={"*": "int8"})
# Where each rule lives; the benchmark switches it off to show what it does.
RULES = {
    "reads": ("calib.qdq.quantize", "_agreeing", lambda reads, nodes, scales: iter(())),
    "shared": ("calib.qdq", "unify", lambda amax, shared: dict(amax)),
    "packed": ("calib.graph.layers", "is_cut", lambda node, *, reshaped: False),
}


@dataclass(frozen=True)
class Row:
    name: str
    int8_asked: int
    int8_built: int
    kernels: int
    megabytes: float
    cer: float


@contextmanager
def without(*rules: str) -> Iterator[None]:
    with ExitStack() as stack:
        for rule in rules:
            module, attribute, replacement = RULES[rule]
            stack.enter_context(mock.patch.object(import_module(module), attribute, replacement))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(Path(folder)))
    if out:
        builder = {"builder": rows.pop()}
        out.write_text(json.dumps(builder | {"rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def measure(folder: Path) -> Iterator[Row | str]:
    lines = list(golden_lines(288))
    calibration = writing.write(folder / "calibration", lines[:128], {"target": "text"})
    evaluation = writing.write(folder / "evaluation", lines[128:], {"target": "text"})
    model = normalize.normalize(load.load(load.locate(MODEL, ROOT))).model
    seen = observe.observe(model, calibration, qdq.quantizable(model), qdq.unranged(model), batch_size=4)

    def quantized(plan: Plan, form: Form) -> ir.Model:
        found = pipeline.scales_from(model, plan, seen, calibrators.Mse(), Origin("mse"))
        return qdq.quantize(model, plan, found, form).model

    path = folder / "model.onnx"
    in_fp16 = quantized(Plan(layers={"*": "fp16"}), Form())  # for its profile
    model.metadata_props.update(in_fp16.metadata_props)
    yield show("FP32", model, path, evaluation)
    yield show("FP16 by ranges", in_fp16, path, evaluation)
    with without("reads", "shared", "packed"):
        yield show("plain Q/DQ, FP32 rest", quantized(EVERYTHING, Form("fp32")), path, evaluation)
    with without("reads", "shared"):
        yield show("+ packed projections per tensor (12)", quantized(EVERYTHING, Form("fp32")), path, evaluation)
        yield show("+ attention stays in float (11)", quantized(Plan(), Form("fp32")), path, evaluation)
    with without("reads"):
        yield show("+ shared scales (6)", quantized(Plan(), Form("fp32")), path, evaluation)
    yield show("+ residual, Concat, LayerNorm (5, 7, 9)", quantized(Plan(), Form("fp32")), path, evaluation)
    yield show("+ FP16 rest: what calib writes", quantized(Plan(), Form()), path, evaluation)
    found = verify.verify(path)
    yield f"{found.builder} {found.builder_version}"


def show(name: str, model: ir.Model, path: Path, samples: SampleSet) -> Row:
    ir.save(model, path)
    built = verify.verify(path)
    with OrtRunner(path) as runner:
        scorer = metrics.make("ctc-text", {}, runner.metadata)
        cer = evaluate.evaluate(runner, samples, scorer, model_sha256="", batch_size=8).value("cer")
    asked = built.count(asked="int8")
    row = Row(name, asked, asked - len(built.failed), len(built.build.kernels), path.stat().st_size / 1e6, cer)
    print(
        f"{name:42} INT8 {row.int8_built:2} of {asked:2}, {row.kernels:3} kernels, {row.megabytes:5.1f} MB, CER {cer:.4f}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
