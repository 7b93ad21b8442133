"""One verification: rename, build, read what was built, compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import google.protobuf.message
import onnx

from calib.errors import ModelError
from calib.graph import lint
from calib.graph import load as graph_load
from calib.profiles import Profile
from calib.verify import asked, compare, failures, naming, profiles
from calib.verify import build as builds
from calib.verify.build import Engine
from calib.verify.result import Build, KernelSummary, Verification

_QDQ = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True, slots=True)
class _Renamed:
    """A model whose nodes have keys for names, without the weights that it keeps in other files."""

    path: Path
    sha256: str
    proto: onnx.ModelProto
    labels: Mapping[str, str]
    qdq: frozenset[str]


def verify(path: Path, shapes: Mapping[str, Profile] | None = None, *, against: Path | None = None) -> Verification:
    """Build a model with TensorRT, and compare what its graph asks for with what was built.

    Args:
        path: ONNX model, usually with Q/DQ.
        shapes: range of each input with a dynamic shape; what is not given comes from the model's metadata.
        against: float model to build too, for the number of kernels; its shapes are the model's own.

    Raises:
        ModelError: not an ONNX model, or TensorRT refuses it.
        ConfigError: the shapes do not fit the model, or are missing.
        MissingDependencyError: no TensorRT can build here.
    """
    model = _read(path)
    findings = lint.passed(graph_load.load(path, quantized=True))  # some of what is wrong ends TensorRT's process
    chosen = profiles.choose(model.proto, shapes)
    layers, residuals = asked.read(model.proto)
    engine = _build(model, chosen)
    return Verification(
        builder=engine.builder,
        builder_version=engine.version,
        build=_summary(model, chosen, engine),
        layers=compare.layers(layers, engine, model.labels),
        residuals=compare.residuals(residuals, engine, model.labels),
        against=None if against is None else _built(_read(against), chosen),
        findings=tuple(str(finding) for finding in findings),
    )


def _read(path: Path) -> _Renamed:
    digest = graph_load.sha256(path)
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except (OSError, google.protobuf.message.DecodeError) as error:
        raise ModelError(f"{path} is not an ONNX model ({error})") from error
    if not proto.graph.node or not proto.opset_import:
        raise ModelError(f"{path} is not an ONNX model: it has no nodes or no opset")
    labels = naming.rename(proto)
    qdq = frozenset(node.name for node in naming.nodes(proto.graph) if node.op_type in _QDQ)
    return _Renamed(path, digest, proto, labels, qdq)


def _built(model: _Renamed, shapes: Mapping[str, Profile]) -> Build:
    chosen = profiles.choose(model.proto, shapes)
    return _summary(model, chosen, _build(model, chosen))


def _build(model: _Renamed, chosen: Mapping[str, Profile]) -> Engine:
    half = any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in model.proto.graph.initializer)
    try:
        return builds.build(model.proto.SerializeToString(), model.path, chosen, half=half)
    except builds.BuildError as error:
        message = naming.restore(str(error).strip(), model.labels)
        where = f", node '{model.labels[error.node]}'" if error.node in model.labels else ""
        advice = failures.fix(message)
        raise ModelError(
            f"TensorRT cannot build {model.path}{where}: {message}" + (f" -- {advice}" if advice else "")
        ) from error


def _summary(model: _Renamed, chosen: Mapping[str, Profile], engine: Engine) -> Build:
    kernels = tuple(
        KernelSummary(
            name=naming.restore(kernel.name, model.labels),
            type=kernel.type,
            inputs=tuple(tensor.kind for tensor in kernel.inputs),
            outputs=tuple(tensor.kind for tensor in kernel.outputs),
            nodes=tuple(model.labels[node] for node in kernel.nodes if node not in model.qdq),
            qdq=tuple(model.labels[node] for node in kernel.nodes if node in model.qdq),
        )
        for kernel in engine.kernels
        if kernel.counts
    )
    shapes = {name: str(profile) for name, profile in chosen.items()}
    return Build(model.path.name, model.sha256, round(engine.seconds, 3), shapes, kernels)
