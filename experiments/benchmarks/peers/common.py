"""What the peer benchmarks share: reading a sample set, the plain FP32 pass, peak memory, the result line.

A sibling of the scripts that use it; it needs numpy and onnxruntime only, never calib.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnxruntime.quantization.calibrate import CalibrationDataReader

BATCH = 8
OP_TYPES = ("Conv", "MatMul", "Gemm")

Batch = dict[str, npt.NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement; the peaks are the process's own so far, so peak_mb is never below plain_peak_mb.

    Attributes:
        tool: name of the peer.
        version: version of the peer.
        method: calibration method.
        lines: samples used.
        plain_s: seconds of one FP32 pass over the samples.
        calibration_s: seconds of the calibration; each script says what it includes.
        collect_s: of these, the calibrator's collect_data and compute_data: the same scope for every peer.
        ratio: calibration_s / plain_s.
        plain_peak_mb: max RSS after the plain pass, MiB.
        peak_mb: max RSS after the calibration, MiB.
        tensors: tensors that got a range.
    """

    tool: str
    version: str
    method: str
    lines: int
    plain_s: float
    calibration_s: float
    collect_s: float
    ratio: float
    plain_peak_mb: float
    peak_mb: float
    tensors: int

    def print(self) -> None:
        """Print the result as one JSON line on stdout."""
        rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(self).items()}
        print(json.dumps(rounded))


class BatchReader(CalibrationDataReader):
    """Gives a calibrator the batches one after another; `get_first` is for ModelOpt, which looks at one for shapes."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches
        self._left: Iterator[Batch] = iter(batches)

    def get_next(self) -> Batch | None:
        """Return the next batch; None at the end."""
        return next(self._left, None)

    def get_first(self) -> Batch:
        """Return the first batch and consume nothing."""
        return self._batches[0]


def make_parser(description: str | None, methods: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser with what every peer takes: model, set, method, lines."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", type=Path, help="normalized float ONNX model")
    parser.add_argument("set", metavar="SET", type=Path, help="folder of a calib sample set")
    parser.add_argument("--method", choices=methods, required=True)
    parser.add_argument("--lines", type=int, help="use the first so many samples; all by default")
    return parser


def read_batches(folder: Path, lines: int | None) -> list[Batch]:
    """Return the first `lines` samples of the set, in the manifest's order, stacked in batches.

    Raises:
        SystemExit: the set has fewer samples than that.
    """
    samples = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["samples"]
    count = len(samples) if lines is None else lines
    if not 1 <= count <= len(samples):
        sys.exit(f"{folder}: has {len(samples)} samples; asked for {count}")
    samples = samples[:count]
    shards = {}
    for name in {sample["shard"] for sample in samples}:
        with np.load(folder / name) as shard:
            shards[name] = dict(shard)
    rows = [{name: array[s["row"]] for name, array in shards[s["shard"]].items()} for s in samples]
    parts = [rows[start : start + BATCH] for start in range(0, count, BATCH)]
    return [{name: np.stack([row[name] for row in part]) for name in part[0]} for part in parts]


def plain_pass(model: Path, batches: Sequence[Batch]) -> float:
    """Return the seconds of one FP32 pass over the batches: ONNX Runtime's defaults, CPU, one warm-up batch before."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    session.run(None, batches[0])
    start = time.perf_counter()
    for batch in batches:
        session.run(None, batch)
    return time.perf_counter() - start


def peak_mb() -> float:
    """Return this process's max RSS so far, MiB (Linux counts it in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
