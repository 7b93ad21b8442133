"""Time and memory of ONNX Runtime's own calibrators next to a plain FP32 pass, in one process.

calibration_s is collect_data + compute_data of the calibrator with ONNX Runtime's default settings, for the inputs and
outputs of Conv, MatMul and Gemm. Making the calibrator (the model with added outputs, its session) is not included,
as making the plain session is not. Prints one JSON line.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import onnxruntime
from common import OP_TYPES, Batch, BatchReader, Result, make_parser, peak_mb, plain_pass, read_batches
from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "entropy": CalibrationMethod.Entropy,
    "percentile": CalibrationMethod.Percentile,
}


def calibrate(model: Path, batches: Sequence[Batch], method: CalibrationMethod) -> tuple[float, int]:
    """Return the calibration's seconds and the number of tensors that got a range.

    Works on a copy, since ONNX Runtime writes beside the model.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(model, Path(folder) / "model.onnx"))
        calibrator = create_calibrator(copy, OP_TYPES, str(Path(folder) / "augmented.onnx"), method)
        start = time.perf_counter()
        calibrator.collect_data(BatchReader(batches))
        ranges = calibrator.compute_data()
        return time.perf_counter() - start, len(ranges.keys())


def main() -> None:
    """Run the benchmark."""
    arguments = make_parser(__doc__, tuple(METHODS)).parse_args()
    batches = read_batches(arguments.set, arguments.lines)
    plain_s = plain_pass(arguments.model, batches)
    plain_peak_mb = peak_mb()
    with contextlib.redirect_stdout(sys.stderr):  # the calibrators print
        calibration_s, tensors = calibrate(arguments.model, batches, METHODS[arguments.method])
    Result(
        tool="onnxruntime",
        version=onnxruntime.__version__,
        method=arguments.method,
        lines=sum(len(next(iter(batch.values()))) for batch in batches),
        plain_s=plain_s,
        calibration_s=calibration_s,
        collect_s=calibration_s,
        ratio=calibration_s / plain_s,
        plain_peak_mb=plain_peak_mb,
        peak_mb=peak_mb(),
        tensors=tensors,
    ).print()


if __name__ == "__main__":
    main()
