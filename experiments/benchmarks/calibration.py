"""What calibration costs: time as a ratio to a plain FP32 pass over the same lines in the same process, and memory.

    make benchmark            (or: .venv/bin/python experiments/benchmarks/calibration.py [--peers] [--lines N])

128 text lines through the PP-OCRv4 recognizer, batches of 4, all cores. "calibration" is everything from samples on disk
to scales of all 55 tensors: running the model, counting, and choosing thresholds. The plain pass reads the same samples
and runs the same model without looking at its tensors; passes alternate, and the fastest of each kind counts, because
anything else measures the neighbours. Memory is the peak of the process above the peak that a plain pass leaves.

--peers also runs ONNX Runtime's and ModelOpt's calibrators (peers/README.md says how to install the second); each is
a process of its own with a plain pass of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

import numpy as np
import onnx_ir as ir
from rich.console import Console
from rich.table import Table

from calib import calibrators, observe, qdq
from calib.data import sets, writing
from calib.data.sets import SampleSet
from calib.graph import layers, load, normalize
from calib.quality import sufficiency
from calib.runtime import ort

ROOT = Path(__file__).parents[2]
MODEL = "package:rapidocr-onnxruntime/rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"
BATCH = 4
ROUNDS = 3
PEERS = {
    "ONNX Runtime": (ROOT / ".venv/bin/python", "ort_calibration.py", ("minmax", "percentile", "entropy")),
    "ModelOpt": (ROOT / ".venv-modelopt/bin/python", "modelopt_calibration.py", ("max", "entropy")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=128)
    parser.add_argument("--peers", action="store_true", help="run ONNX Runtime's and ModelOpt's calibrators too")
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        blocks = [line * sets.BLOCKS // arguments.lines for line in range(arguments.lines)]
        samples = writing.write(Path(folder) / "lines", golden_lines(arguments.lines), blocks=blocks)
        model = normalize.normalize(load.load(load.locate(MODEL, ROOT))).model
        rows = ours(model, samples)
        if arguments.peers:
            ir.save(model, Path(folder) / "model.onnx")
            rows += peers(Path(folder) / "model.onnx", samples.where)
    table = Table("calibrator", "ratio to plain FP32", "plain s", "calibration s", "peak MB over plain")
    for row in rows:
        times = f"{row['plain_s']:.2f}", f"{row['calibration_s']:.2f}"
        table.add_row(row["name"], f"{row['ratio']:.2f}", *times, f"{row['peak_mb'] - row['plain_peak_mb']:+.0f}")
    Console(width=110).print(table)
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def golden_lines(count: int) -> Iterator[tuple[str, dict[str, np.ndarray], dict[str, str]]]:
    archive = np.load(ROOT / "tests/golden/ocr_lines.npz", allow_pickle=False)
    images, texts, widths = archive["x"], archive["t"], archive["w"]
    for i in range(count):
        x = ((images[i].astype(np.float32) / 255 - 0.5) / 0.5).transpose(2, 0, 1).copy()
        x[:, :, widths[i] :] = 0
        yield f"line-{i}", {"x": x}, {"text": str(texts[i])}


def ours(model: ir.Model, samples: SampleSet) -> list[dict[str, float | str]]:
    tensors = layers.activations(layers.find(model))

    def sketch() -> None:
        seen = observe.observe(model, samples, tensors, batch_size=BATCH)
        for name in ("max", "percentile-99.99", "percentile-99.999", "mse"):
            calibrators.calibrate(seen.tensors, calibrators.parse(name))

    def with_ranges() -> None:
        seen = observe.observe(model, samples, tensors, qdq.unranged(model), batch_size=BATCH, shards=True)
        for name in ("max", "percentile-99.99", "percentile-99.999", "mse"):
            calibrators.calibrate(seen.tensors, calibrators.parse(name))

    def exact_entropy() -> None:
        seen = observe.observe(model, samples, tensors, batch_size=BATCH)
        seen = observe.observe_linear(model, samples, seen, batch_size=BATCH)
        calibrators.calibrate(seen.tensors, calibrators.Entropy())

    kept = observe.observe(model, samples, tensors, batch_size=BATCH, shards=True)

    def judged() -> None:
        sufficiency.sufficiency(kept.shards, kept.tensors, calibrators.Mse())
        observe.features(model, samples, tensors, batch_size=BATCH)

    with ort.in_memory(model) as runner:

        def plain() -> None:
            for batch in samples.batches(BATCH, runner.inputs):
                runner.run(batch.inputs)

        plain()
        plain_peak = peak_mb()
        rows = [
            measure("calib max + 2 percentiles + mse", plain, sketch, plain_peak),
            measure("the same, all ranges (FP16 rest), histograms of 16 blocks kept", plain, with_ranges, plain_peak),
            measure("calib entropy, exact", plain, exact_entropy, plain_peak),
            measure("judging the set's size (mse), and the features of its samples", plain, judged, plain_peak),
        ]
    # One plain time for all: a slow one beside one calibrator would flatter that one.
    least = min(float(row["plain_s"]) for row in rows)
    return [{**row, "plain_s": least, "ratio": float(row["calibration_s"]) / least} for row in rows]


def measure(name: str, plain: Callable[[], None], run: Callable[[], None], plain_peak: float) -> dict[str, float | str]:
    run()  # compiles the kernels, and fills the caches of the machine
    pairs = [(seconds(plain), seconds(run)) for _ in range(ROUNDS)]
    fastest, cost = (min(times) for times in zip(*pairs, strict=True))
    return {
        "name": name,
        "plain_s": fastest,
        "calibration_s": cost,
        "ratio": cost / fastest,
        "plain_peak_mb": plain_peak,
        "peak_mb": peak_mb(),
    }


def seconds(run: Callable[[], None]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def peers(model: Path, folder: Path) -> list[dict[str, float | str]]:
    rows = []
    for tool, (python, script, methods) in PEERS.items():
        for method in methods:
            if not python.exists():
                print(f"{tool} {method}: skipped, {python} is not installed", file=sys.stderr)
                continue
            command = [
                str(python),
                str(Path(__file__).parent / "peers" / script),
                str(model),
                str(folder),
                "--method",
                method,
            ]
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            if found.returncode:
                print(f"{tool} {method}: failed: {found.stderr[-500:]}", file=sys.stderr)
                continue
            row = json.loads(found.stdout.splitlines()[-1])
            rows.append({**row, "name": f"{tool} {row['version']} {method}"})
    return rows


if __name__ == "__main__":
    main()
