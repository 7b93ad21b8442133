"""Time and memory of NVIDIA ModelOpt's ONNX INT8 calibration next to a plain FP32 pass, in one process.

calibration_s is the whole modelopt.onnx.quantization.quantize() call, on CPU and without conversion to FP16: besides
the calibration it loads and shape-infers the model, runs one batch twice to find MatMuls to leave out, writes Q/DQ
nodes and weights, saves and checks the model. collect_s is the part that ort_calibration.py times: collect_data and
compute_data of the calibrator inside. That calibrator is ONNX Runtime's, changed by ModelOpt to take its statistics
batch by batch. By default ModelOpt chooses the nodes, Add, Mul, Clip and others too, so it calibrates more tensors than
ort_calibration.py does; --same-ops keeps it to the same op types. Prints one JSON line.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

from common import OP_TYPES, Batch, BatchReader, Result, make_parser, peak_mb, plain_pass, read_batches
from modelopt.onnx.quantization import ort_patching, quantize
from onnxruntime.quantization.calibrate import CalibraterBase, TensorsData

METHODS = ("max", "entropy")


class Watch:
    """Sees what the calibrator that quantize() makes does: when it starts and ends, and how many ranges it gives.

    Attributes:
        start: perf_counter when collect_data began.
        end: perf_counter when compute_data last returned.
        tensors: ranges that it returned.
    """

    def __init__(self) -> None:
        self.start = self.end = 0.0
        self.tensors = 0
        self._create = ort_patching._create_calibrator_with_extra_options

    def create(self, *args: Any, **options: Any) -> CalibraterBase:
        """Make a calibrator as ModelOpt does, and watch it."""
        calibrator = self._create(*args, **options)
        collect, compute = calibrator.collect_data, calibrator.compute_data

        def watched_collect(reader: BatchReader) -> None:
            self.start = time.perf_counter()
            collect(reader)

        def watched_compute() -> TensorsData:
            ranges = compute()
            self.end = time.perf_counter()
            self.tensors = len(ranges.keys())
            return ranges

        calibrator.collect_data, calibrator.compute_data = watched_collect, watched_compute
        return calibrator


def calibrate(model: Path, batches: Sequence[Batch], method: str, op_types: list[str] | None) -> tuple[float, Watch]:
    """Return the seconds of the whole quantize() call and what was seen of its calibrator.

    `op_types` None leaves the choice of nodes to ModelOpt.
    Works on a copy, since ModelOpt writes beside the model.
    """
    watch = Watch()
    patch = mock.patch.object(ort_patching, "_create_calibrator_with_extra_options", watch.create)
    with tempfile.TemporaryDirectory() as folder, patch:
        copy = shutil.copy(model, Path(folder) / "model.onnx")
        start = time.perf_counter()
        quantize(
            str(copy),
            quantize_mode="int8",
            calibration_data_reader=BatchReader(batches),
            calibration_method=method,
            calibration_eps=["cpu"],
            op_types_to_quantize=op_types,
            output_path=str(Path(folder) / "quantized.onnx"),
            log_level="WARNING",
            high_precision_dtype="fp32",
        )
        return time.perf_counter() - start, watch


def main() -> None:
    """Run the benchmark."""
    parser = make_parser(__doc__, METHODS)
    parser.add_argument("--same-ops", action="store_true", help=f"{', '.join(OP_TYPES)} only, not ModelOpt's choice")
    arguments = parser.parse_args()
    batches = read_batches(arguments.set, arguments.lines)
    plain_s = plain_pass(arguments.model, batches)
    plain_peak_mb = peak_mb()
    op_types = list(OP_TYPES) if arguments.same_ops else None
    with contextlib.redirect_stdout(sys.stderr):  # the calibrators print
        calibration_s, watch = calibrate(arguments.model, batches, arguments.method, op_types)
    Result(
        tool="modelopt",
        version=version("nvidia-modelopt"),
        method=arguments.method,
        lines=sum(len(next(iter(batch.values()))) for batch in batches),
        plain_s=plain_s,
        calibration_s=calibration_s,
        collect_s=watch.end - watch.start,
        ratio=calibration_s / plain_s,
        plain_peak_mb=plain_peak_mb,
        peak_mb=peak_mb(),
        tensors=watch.tensors,
    ).print()


if __name__ == "__main__":
    main()
