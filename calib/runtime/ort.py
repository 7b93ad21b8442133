"""ONNX Runtime on the CPU.

Q/DQ runs as written, in float32, and not as ONNX Runtime's fused INT8 kernels: those depend on the processor (without
VNNI they accumulate pairs in saturating INT16), while TensorRT's arithmetic is that of the graph. docs/decisions.md has
the measurement.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_errors

from calib.data.batch import InputSpec, Samples
from calib.errors import ModelError
from calib.graph import save
from calib.runtime import Arrays

_ERRORS = (
    ort_errors.Fail,
    ort_errors.InvalidArgument,
    ort_errors.InvalidGraph,
    ort_errors.InvalidProtobuf,
    ort_errors.NotImplemented,
    ort_errors.RuntimeException,
    ort_errors.NoSuchFile,
)

# It moves Q/DQ through a Transpose or Reshape, in front of a graph output if there is one, which is then quantized.
_MOVING_QDQ = ("TransposeOptimizer", "TransposeOptimizer_CPUExecutionProvider")


class OrtRunner:
    """A model in ONNX Runtime; a context manager that frees the session when it is left."""

    description = f"onnxruntime {ort.__version__} CPU, Q/DQ as written"

    def __init__(self, path: Path, threads: int | None = None) -> None:
        """Load a model.

        Args:
            path: of the ONNX file.
            threads: number of threads inside an operator; all cores by default.

        Raises:
            ModelError: ONNX Runtime cannot load it.
        """
        options = ort.SessionOptions()
        options.log_severity_level = 4  # what fails is in the exception
        options.intra_op_num_threads = threads or os.cpu_count() or 1
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        # As the graph is written; else what reads a tensor may run last, and every tensor stays in memory until then.
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
        try:
            self._session = ort.InferenceSession(
                path, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(_MOVING_QDQ)
            )
        except _ERRORS as error:
            raise ModelError(f"ONNX Runtime cannot load {path}: {_reason(error)}") from error
        self.inputs: Mapping[str, InputSpec] = {value.name: value for value in self._session.get_inputs()}
        self.outputs = [value.name for value in self._session.get_outputs()]
        self.metadata: dict[str, str] = dict(self._session.get_modelmeta().custom_metadata_map)

    def __enter__(self) -> OrtRunner:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free the session."""
        del self._session

    def run(self, feeds: Arrays) -> dict[str, npt.NDArray[np.generic]]:
        """Return the outputs of one batch.

        Raises:
            ModelError: the model fails on it; the message says with which shapes.
        """
        try:
            return dict(zip(self.outputs, self._session.run(None, dict(feeds)), strict=True))
        except _ERRORS as error:
            shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in feeds.items())
            raise ModelError(f"the model fails on inputs {shapes}: {_reason(error)}") from error

    def run_into(self, feeds: Arrays, outputs: Arrays) -> bool:
        """Write the outputs of one batch to arrays; return False where one does not fit, or the model fails."""
        if any(not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub" for array in outputs.values()):
            return False  # a sequence or text
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(array))
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        try:
            self._session.run_with_iobinding(binding)
        except _ERRORS:
            return False
        return True


class Reusing:
    """Runs a runner's model for one thread, each batch's outputs in the memory of the one before.

    Many large outputs that are made anew each time cost page faults, and leave a heap several times their size.
    """

    def __init__(self, runner: OrtRunner) -> None:
        """Start without memory; any number of these may share a runner."""
        self._runner = runner
        self._fits: dict[str, tuple[int, ...]] | None = None
        self._outputs: dict[str, npt.NDArray[np.generic]] = {}

    def run(self, feeds: Arrays) -> dict[str, npt.NDArray[np.generic]]:
        """Return the outputs of one batch, good until the next.

        Raises:
            ModelError: as `OrtRunner.run`.
        """
        shapes = {name: array.shape for name, array in feeds.items()}
        if shapes != self._fits or not self._runner.run_into(feeds, self._outputs):
            self._outputs = {}  # is freed first
            self._outputs = self._runner.run(feeds)
            self._fits = shapes
        return self._outputs


LEAST, LARGEST = "calib_least:", "calib_largest:"
"""What stands before a tensor's name in the names of the outputs that give its extremes."""


def exposing(
    model: ir.Model, tensors: Iterable[str], extremes: Iterable[str] = (), threads: int | None = None
) -> OrtRunner:
    """Return a runner of the model whose outputs also include inner tensors, and the extremes of others.

    Args:
        model: normalized.
        tensors: names of float tensors that become outputs.
        extremes: names of inner float32 tensors of which only the least and the largest value become outputs, as scalars
            named LEAST and LARGEST and the name. They cost no memory: the tensor itself need not outlive its readers.
        threads: as in OrtRunner.
    """
    exposed = model.clone()
    already = {value.name for value in [*exposed.graph.outputs, *exposed.graph.inputs]}
    inner = {out.name: out for node in exposed.graph for out in node.outputs}
    exposed.graph.outputs.extend(inner[tensor] for tensor in tensors if tensor not in already)
    for tensor in extremes:
        for prefix, operator in ((LEAST, "ReduceMin"), (LARGEST, "ReduceMax")):
            out = ir.Value(name=prefix + tensor, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(()))
            keep = [ir.AttrInt64("keepdims", 0)]
            node = ir.Node("", operator, [inner[tensor]], keep, outputs=[out], name=prefix + tensor)
            producer = inner[tensor].producer()
            assert producer is not None  # it is made by a node
            exposed.graph.insert_after(producer, node)
            exposed.graph.outputs.append(out)
    return in_memory(exposed, threads)


def in_memory(model: ir.Model, threads: int | None = None) -> OrtRunner:
    """Return a runner of a model that lies in memory; it passes through a file, which holds for any size."""
    with tempfile.TemporaryDirectory(prefix="calib-") as folder:
        path = Path(folder) / "model.onnx"
        save.save(model, path)
        return OrtRunner(path, threads)


def compare(first: OrtRunner, second: OrtRunner, samples: Samples, *, limit: int) -> float:
    """Return the largest |difference| between two models' outputs over the first `limit` samples, at least one batch.

    Raises:
        DataError: the samples do not fit the models.
        ModelError: a model fails, or the outputs differ by more than rounding (1e-3 of 1 + the largest value).
    """
    largest, seen = 0.0, 0
    for batch in samples.batches(4, first.inputs):
        left, right = first.run(batch.inputs), second.run(batch.inputs)
        for name, array in left.items():
            if name not in right or right[name].shape != array.shape:
                raise ModelError(f"output '{name}' is missing from the second model, or has another shape there")
            difference = np.abs(array.astype(np.float64) - right[name].astype(np.float64)).max(initial=0.0)
            if not difference <= 1e-3 * (1 + np.abs(array.astype(np.float64)).max(initial=0.0)):
                raise ModelError(
                    f"output '{name}' differs by {difference:.3g} for sample '{batch.ids[0]}' and those with it"
                )
            largest = max(largest, float(difference))
        seen += len(batch.ids)
        if seen >= limit:
            break
    return largest


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())
