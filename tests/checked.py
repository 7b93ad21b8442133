"""A model taken through calibration and quantization in every form, and what must hold of each result.

The float model's outputs are the measure. `max` scales are found on the very inputs that are compared, so that nothing
is clipped and `error_bounds` applies.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime

from calib import calibrators, observe, pipeline, qdq
from calib.data import batch as batches
from calib.data.batch import Batch, InputSpec
from calib.graph import load, normalize
from calib.graph.lint import lint
from calib.plan import Plan
from calib.qdq import Form, Quantized
from calib.runtime import ort
from calib.scales import Origin, Scales

from .error_bounds import bounds

FORMS = [Form("fp32", "int8"), Form("fp32", "qdq"), Form("fp16", "int8"), Form("fp16", "qdq")]

Arrays = Mapping[str, np.ndarray]
ChoosePlan = Callable[[ir.Model], Plan]


@dataclass(frozen=True)
class Memory:
    """Samples in memory, [N, ...] an input; `calib.data.sets.Samples`."""

    arrays: Arrays
    where: Path = Path("memory")
    sha256: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def blocks(self) -> list[int]:
        return [0] * len(self)

    def batches(self, size: int, specs: Mapping[str, InputSpec] | None = None) -> Iterator[Batch]:
        fixed = [spec.shape[0] for spec in (specs or {}).values() if spec.shape and isinstance(spec.shape[0], int)]
        size = fixed[0] if fixed else size
        for start in range(0, len(self), size):
            positions = tuple(range(start, min(start + size, len(self))))
            batch = Batch(
                {k: a[start : start + size] for k, a in self.arrays.items()}, ("s",) * len(positions), positions
            )
            if specs is not None:
                batches.check(batch, specs, self.where)
            yield batch


@dataclass(frozen=True)
class Prepared:
    """A normalized model with its scales."""

    model: ir.Model
    plan: Plan
    scales: Scales

    def quantize(self, form: Form) -> Quantized:
        return qdq.quantize(self.model, self.plan, self.scales, form)


@dataclass(frozen=True)
class Compared:
    """One form's outputs beside the float model's.

    Attributes:
        quantized: the model.
        errors: |difference| by output.
        bounds: what it may be, by output.
        expected: the float model's outputs.
    """

    quantized: Quantized
    errors: Arrays
    bounds: Arrays
    expected: Arrays

    @property
    def used(self) -> float:
        """The largest share of its bound that any value uses."""
        return max(float((self.errors[name] / self.bounds[name]).max(initial=0)) for name in self.errors)

    def relative(self, name: str) -> float:
        """The largest error, relative to the largest value."""
        return float(self.errors[name].max() / np.abs(self.expected[name]).max())


def prepare(proto: onnx.ModelProto, samples: Arrays, choose_plan: ChoosePlan = lambda model: Plan()) -> Prepared:
    """Load, normalize and calibrate."""
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(proto, Path(folder) / "model.onnx")
        model = normalize.normalize(load.load(Path(folder) / "model.onnx")).model
    plan = choose_plan(model)
    tensors, ranged = qdq.place(model, plan).tensors, qdq.unranged(model)
    seen = observe.observe(model, Memory(samples), tensors, ranged, batch_size=2)
    return Prepared(model, plan, pipeline.scales_from(model, plan, seen, calibrators.parse("max"), Origin("test")))


def check(
    prepared: Prepared, proto: onnx.ModelProto, samples: Arrays, reference: onnx.ModelProto | None = None
) -> list[Compared]:
    """Check every form of a model against the float model: valid, with the same signature, within the bound.

    Args:
        prepared: from the model and the samples.
        proto: the model.
        samples: its inputs, as many as the batch, where that is fixed.
        reference: the same in FP32, to compare with; the model itself by default.
    """
    feeds = {name: _single(array) for name, array in samples.items()} if reference else samples
    expected = run(reference or proto, feeds)
    return [compare(prepared, form, proto, samples, expected) for form in FORMS]


def compare(prepared: Prepared, form: Form, proto: onnx.ModelProto, samples: Arrays, expected: Arrays) -> Compared:
    """Check one form."""
    quantized = prepared.quantize(form)
    written = ir.to_proto(quantized.model)
    onnx.checker.check_model(written, full_check=True)
    assert signature(written) == signature(proto)
    assert [finding for finding in lint(quantized.model) if finding.rule != "L10"] == []
    found = within(
        ort.in_memory(quantized.model).run(samples),
        expected,
        bounds(prepared.model, quantized, prepared.scales, samples),
    )
    return Compared(quantized, *found, expected)


def within(outputs: Arrays, expected: Arrays, allowed: Arrays) -> tuple[Arrays, Arrays]:
    """Check that outputs differ from the expected ones by no more than is allowed; return by how much, and the bound."""
    errors, slack = {}, {}
    for name, array in expected.items():
        assert outputs[name].shape == array.shape
        errors[name] = np.abs(outputs[name].astype(np.float64) - array)
        slack[name] = allowed[name] + 1e-5 * np.abs(array).max(initial=0) + 1e-7
        # An FP16 output of the model's own may overflow, and then there is no bound.
        bounded = np.isfinite(slack[name])
        excess = np.subtract(errors[name], slack[name], out=np.full(array.shape, -np.inf), where=bounded)
        worst = np.unravel_index(np.argmax(excess), array.shape) if array.size else ()
        assert (errors[name] <= slack[name]).all(), (
            f"output '{name}'{list(map(int, worst))} is {outputs[name][worst]:.6g} and in FP32 {array[worst]:.6g}; the bound is "
            f"{slack[name][worst]:.3g}"
        )
    return errors, slack


def run(proto: onnx.ModelProto, feeds: Arrays) -> dict[str, np.ndarray]:
    """Run a model as written in ONNX Runtime, which loads no two nodes of one name."""
    unnamed = onnx.ModelProto()
    unnamed.CopyFrom(proto)
    for node in unnamed.graph.node:
        node.name = ""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(unnamed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    return dict(zip(outputs, session.run(outputs, dict(feeds)), strict=True))


def signature(proto: onnx.ModelProto) -> list[tuple[str, Any]]:
    """The names, types and shapes of inputs and outputs; initializers that are listed as inputs are none."""
    constants = {tensor.name for tensor in proto.graph.initializer}
    values = [value for value in proto.graph.input if value.name not in constants]
    return [(value.name, value.type.SerializeToString(deterministic=True)) for value in (*values, *proto.graph.output)]


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else array
