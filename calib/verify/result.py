"""The outcome of a verification, and its file."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib import files
from calib.errors import DataError

FORMAT = "calib-verification"
FORMAT_VERSION = 1

REMOVED = "removed"
"""Built as nothing: folded into a constant, or needed by no output."""

UNKNOWN = "unknown"
"""TensorRT does not show what was built."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Asked against built, for one ONNX node.

    Attributes:
        name: of the node; with a number where the model has that name twice or not at all.
        op_type: its operator.
        asked: "int8", "fp16", "fp32", "bf16" or "float".
        built: "int8", "fp16", "fp32", "bf16", "fp8", REMOVED or UNKNOWN.
        kernels: names of the built layers that compute it.
        reason: why built differs from asked, or what only half asks for INT8; "" where all is well.
    """

    name: str
    op_type: str
    asked: str
    built: str
    kernels: tuple[str, ...]
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether INT8 was asked and is not shown to be built."""
        return self.asked == "int8" and self.built not in ("int8", REMOVED)


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """A built layer.

    Attributes:
        name: TensorRT's.
        type: TensorRT's.
        inputs: types that it reads.
        outputs: types that it writes.
        nodes: ONNX nodes that it was made of, without Q/DQ.
        qdq: its QuantizeLinear and DequantizeLinear nodes.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    qdq: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Build:
    """One engine.

    Attributes:
        model: file name of the model.
        sha256: of the model.
        seconds: that parsing and building took.
        profiles: shapes it was built for, by input with a dynamic shape, as "1x3x32,8x3x320,8x3x640" (min, opt, max).
        kernels: the built layers that compute; waits, signals and shape arithmetic are left out.
    """

    model: str
    sha256: str
    seconds: float
    profiles: dict[str, str]
    kernels: tuple[KernelSummary, ...]

    def types(self) -> dict[str, int]:
        """Return how many kernels there are of each type, most first."""
        return dict(Counter(kernel.type for kernel in self.kernels).most_common())


@dataclass(frozen=True, slots=True)
class Verification:
    """What was asked and what was built.

    Attributes:
        builder: "TensorRT" or "TensorRT-RTX".
        builder_version: its version.
        build: of the model.
        layers: every Conv, ConvTranspose, Gemm and MatMul, in graph order.
        residuals: Adds of two tensors with a quantized input: "int8" where a kernel reads that input as INT8.
        against: the float model's build, where one was given.
        findings: what lint says of the model, a sentence each.
    """

    builder: str
    builder_version: str
    build: Build
    layers: tuple[Layer, ...]
    residuals: tuple[Layer, ...]
    against: Build | None = None
    findings: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Layer, ...]:
        """Layers asked in INT8 that are not shown to be built in INT8."""
        return tuple(layer for layer in self.layers if layer.failed)

    def count(self, *, asked: str, built: str | None = None) -> int:
        """Return the number of layers asked in one type, and built in another where given."""
        return sum(layer.asked == asked and built in (None, layer.built) for layer in self.layers)


def document(verification: Verification) -> dict[str, Any]:
    """Return a verification as JSON has it."""
    return dataclasses.asdict(verification)


def save(verification: Verification, path: Path) -> None:
    """Write verification.json."""
    files.write_json(path, FORMAT, FORMAT_VERSION, document(verification))


def load(path: Path) -> Verification:
    """Read verification.json.

    Raises:
        DataError: not such a file, or not valid.
    """
    content = files.read_json(path, FORMAT, FORMAT_VERSION)
    try:
        return Verification(
            builder=str(content["builder"]),
            builder_version=str(content["builder_version"]),
            build=_build(content["build"]),
            layers=tuple(_layer(entry) for entry in content["layers"]),
            residuals=tuple(_layer(entry) for entry in content["residuals"]),
            against=None if content["against"] is None else _build(content["against"]),
            findings=tuple(content["findings"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{path} is not a valid verification ({type(error).__name__}: {error}); verify again"
        ) from error


def _layer(entry: Mapping[str, Any]) -> Layer:
    return Layer(**{**entry, "kernels": tuple(entry["kernels"])})


def _build(entry: Mapping[str, Any]) -> Build:
    kernels = tuple(
        KernelSummary(**{**kernel, **{key: tuple(kernel[key]) for key in ("inputs", "outputs", "nodes", "qdq")}})
        for kernel in entry["kernels"]
    )
    return Build(**{**entry, "kernels": kernels})
