"""How much memory a set costs that is built, and checked, from a log of 10,000 and of 100,000 requests.

    .venv/bin/python experiments/benchmarks/streaming.py [--sizes 10000 100000] [--out reports/benchmark-streaming.json]

Each log is a capture log of small requests: 256 floats, base64, three columns, 1.5 kB a line. `calib data build` draws 256
calibration and 512 evaluation samples of it, stratified and grouped; `calib data check --against LOG` draws 512 and
compares them with the smallest log's set, through a model of two MatMul. Each is a process of its own; memory is its
peak (VmHWM of Linux, for getrusage's counts what the process that started it had).

What may grow: some 80 bytes a sample, a hash of its id, so that an id that comes twice is noticed; and the candidates of
the selection, until there are as many as it keeps (16 for each sample asked for).
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model
from rich.console import Console
from rich.table import Table

FLOATS = 256
RECIPE = """
name = "log"
source = "jsonl"
stratify = ["device"]
group = "document"
options = {{path = "{log}"}}

[calibration]
samples = {calibration}

[evaluation]
samples = {evaluation}

[prepare.x]
field = "x"
scale = 2
"""
CHILD = """
import sys
from calib.cli import main
try:
    main()
finally:
    status = open("/proc/self/status").read()
    print("peak", status.split("VmHWM:")[1].split()[0], file=sys.stderr)
"""


@dataclass(frozen=True)
class Row:
    """Peak memory of the two commands with a log of so many samples."""

    samples: int
    log_mb: float
    build_mb: float
    check_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--calibration", type=int, default=256)
    parser.add_argument("--evaluation", type=int, default=512)
    parser.add_argument("--out", type=Path, help="also write the rows as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), sorted(arguments.sizes), arguments.calibration, arguments.evaluation)
    table = Table("samples", "log MB", "data build, peak MB", "data check --against, peak MB")
    for row in rows:
        table.add_row(f"{row.samples:,}", *(f"{mb:.1f}" for mb in (row.log_mb, row.build_mb, row.check_mb)))
    grown = {name: getattr(rows[-1], name) - getattr(rows[0], name) for name in ("log_mb", "build_mb", "check_mb")}
    table.add_row("growth", *(f"{mb:+.1f}" for mb in grown.values()))
    Console(width=110).print(table)
    if arguments.out:
        document = {"rows": [asdict(row) for row in rows], "growth": {k: round(v, 2) for k, v in grown.items()}}
        arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def measure(folder: Path, sizes: list[int], calibration: int, evaluation: int) -> list[Row]:
    """Return a row for each size; the calibration set that logs are checked against is the first one's."""
    write_model(folder / "model.onnx")
    rows = []
    for size in sizes:
        log = folder / f"log-{size}.jsonl"
        write_log(log, size)
        recipe = folder / f"recipe-{size}.toml"
        recipe.write_text(RECIPE.format(log=log.name, calibration=calibration, evaluation=evaluation), encoding="utf-8")
        built = peak("data", "build", recipe, "-o", folder / f"sets-{size}")
        first = folder / f"sets-{sizes[0]}"
        check = ("data", "check", first, "--model", folder / "model.onnx", "--samples", evaluation, "--seed", 1)
        rows.append(Row(size, round(log.stat().st_size / 1e6, 1), built, peak(*check, "--against", log)))
    return rows


def peak(*arguments: object) -> float:
    """Return the peak memory of a command, in MB; what it says where it fails."""
    command = [sys.executable, "-c", CHILD, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: the samples drawn have drifted, which is not the question here
        raise RuntimeError(done.stderr)
    return round(int(done.stderr.rsplit("peak", 1)[1]) * 1024 / 1e6, 1)


def write_log(path: Path, size: int) -> None:
    draws = np.random.default_rng(size)
    with path.open("w", encoding="utf-8") as lines:
        for i in range(size):
            data = base64.b64encode(draws.normal(size=FLOATS).astype(np.float32).tobytes()).decode()
            record = {"id": f"request-{i}", "device": f"device-{i % 7}", "document": f"d{i // 3}", "day": i // 1000}
            inputs = {"x": {"data": data, "dtype": "float32", "shape": [FLOATS]}}
            lines.write(json.dumps({**record, "inputs": inputs}) + "\n")


def write_model(path: Path) -> None:
    draws = np.random.default_rng(0)
    sizes = {"first": (FLOATS, 16), "second": (16, 2)}
    weights = [numpy_helper.from_array(draws.normal(size=s).astype(np.float32), name) for name, s in sizes.items()]
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["sums"], "one"),
        helper.make_node("Relu", ["sums"], ["hidden"], "relu"),
        helper.make_node("MatMul", ["hidden", "second"], ["y"], "two"),
    ]
    inputs = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", FLOATS])
    outputs = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(nodes, "tiny", [inputs], [outputs], weights)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


if __name__ == "__main__":
    main()
