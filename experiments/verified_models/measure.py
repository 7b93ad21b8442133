"""One model, as a user would quantize it: MSE scales, the default plan, an FP16 rest; what TensorRT builds of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from calib import environment, observe, pipeline, qdq, verify
from calib.calibrators import Mse
from calib.data.batch import Batch, InputSpec, Samples
from calib.graph import load, normalize, save
from calib.plan import Plan
from calib.qdq import Form
from calib.runtime.ort import OrtRunner
from calib.scales import Origin

BATCH = 4


@dataclass(frozen=True)
class Built:
    """What TensorRT made of the INT8 model and of two others.

    Attributes:
        builder: with its version.
        profile: shapes it was built for, by input.
        asked: layers asked in INT8.
        built: those of them built in INT8.
        failed: why, by layer, for the rest of them.
        kernels: number of kernels by model: "fp32", "fp16", "int8".
    """

    builder: str
    profile: Mapping[str, str]
    asked: int
    built: int
    failed: Mapping[str, str]
    kernels: Mapping[str, int]


@dataclass(frozen=True)
class Closeness:
    """A model's output against that of FP32, over samples that did not calibrate.

    Attributes:
        cosine: mean.
        worst_cosine: of the worst sample.
        sqnr_db: of all samples together.
        worst_sqnr_db: of the worst sample.
    """

    cosine: float
    worst_cosine: float
    sqnr_db: float
    worst_sqnr_db: float


@dataclass(frozen=True)
class Row:
    """One model of the table.

    Attributes:
        name: of the model.
        source: where the model is from.
        inputs: what calibrated it and what it was scored on.
        sha256: of the FP32 file.
        layers: Conv, ConvTranspose, Gemm and MatMul on data, those inside subgraphs too.
        left: why, by layer, for those in float.
        kept: why, by node, for those in FP32.
        megabytes: file size by model: "fp32", "int8".
        samples: how many "calibrated" and were "scored".
        verified: what was built.
        output: name of the one that is compared.
        closeness: of it, by model: "fp16", "int8".
    """

    name: str
    source: str
    inputs: str
    sha256: str
    layers: int
    left: Mapping[str, str]
    kept: Mapping[str, str]
    megabytes: Mapping[str, float]
    samples: Mapping[str, int]
    verified: Built
    output: str
    closeness: Mapping[str, Closeness]


class Recordings:
    """Samples whose first axis is no batch: each is a batch of its own."""

    def __init__(self, samples: Sequence[tuple[str, Mapping[str, np.ndarray]]]) -> None:
        self._samples, self.where, self.sha256 = samples, Path("recordings"), ""

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def blocks(self) -> list[int]:
        return [0] * len(self)

    def batches(self, size: int, specs: Mapping[str, InputSpec] | None = None) -> Iterator[Batch]:
        for position, (name, inputs) in enumerate(self._samples):
            yield Batch(dict(inputs), (name,), (position,))


def measure(
    name: str, source: str, inputs: str, path: Path, calibration: Samples, evaluation: Samples, folder: Path
) -> Row:
    """Quantize a model, build it, and compare it with FP32; the models are left in `folder`."""
    model = normalize.normalize(load.load(path)).model
    plan, origin = Plan(), Origin("mse", load.sha256(path), calibration.sha256, environment.deciding_versions())
    placement = qdq.place(model, plan)
    seen = observe.observe(model, calibration, placement.tensors, qdq.unranged(model), batch_size=BATCH)
    scales = pipeline.scales_from(model, plan, seen, Mse(), origin)
    quantized = qdq.quantize(model, plan, scales, Form())
    files = {kind: folder / f"{kind}.onnx" for kind in ("fp32", "fp16", "int8")}
    save.save(qdq.quantize(model, Plan(default="fp32"), scales, Form(rest="fp32")).model, files["fp32"])
    save.save(qdq.quantize(model, Plan(default="fp16"), scales, Form()).model, files["fp16"])
    save.save(quantized.model, files["int8"])
    return Row(
        name,
        source,
        inputs,
        origin.model_sha256,
        len(placement.int8) + len(placement.left),
        dict(placement.left),
        dict(quantized.kept),
        {"fp32": path.stat().st_size / 1e6, "int8": files["int8"].stat().st_size / 1e6},
        {"calibrated": len(calibration), "scored": len(evaluation)},
        _built(files),
        str(model.graph.outputs[0].name),
        {kind: _closeness(path, files[kind], evaluation) for kind in ("fp16", "int8")},
    )


def _built(files: Mapping[str, Path]) -> Built:
    found = verify.verify(files["int8"], against=files["fp32"])
    half = verify.verify(files["fp16"])
    assert found.against is not None
    kernels = {"fp32": found.against, "fp16": half.build, "int8": found.build}
    asked = found.count(asked="int8")
    return Built(
        f"{found.builder} {found.builder_version}",
        found.build.profiles,
        asked,
        asked - len(found.failed),
        {layer.name: f"built {layer.built}: {layer.reason}" for layer in found.failed},
        {kind: len(build.kernels) for kind, build in kernels.items()},
    )


def _closeness(first: Path, second: Path, samples: Samples) -> Closeness:
    products = []
    with OrtRunner(first) as exact, OrtRunner(second) as rounded:
        output = exact.outputs[0]
        for batch in samples.batches(1, exact.inputs):
            wanted, found = (runner.run(batch.inputs)[output].astype(np.float64) for runner in (exact, rounded))
            products.append(
                [(wanted**2).sum(), (found**2).sum(), (wanted * found).sum(), ((wanted - found) ** 2).sum()]
            )
    signal, other, product, noise = np.array(products).T
    cosine, tiny = product / np.sqrt(signal * other), np.finfo(np.float64).tiny
    sqnr = 10 * np.log10(signal / np.maximum(noise, tiny))
    total = 10 * np.log10(signal.sum() / max(noise.sum(), tiny))
    return Closeness(float(cosine.mean()), float(cosine.min()), float(total), float(sqnr.min()))
