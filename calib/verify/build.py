"""Building an engine with TensorRT, or with TensorRT-RTX on a machine without a GPU. The only module that imports them.

TensorRT-RTX compiles on the CPU, and its verbose log lists what it built; it has TensorRT 11's API. TensorRT needs a GPU,
and its engine inspector lists what it built. Both take the network's types from the graph alone (from version 10 on).
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.errors import MissingDependencyError
from calib.profiles import Profile
from calib.verify import listing
from calib.verify.listing import Kernel

RTX = "TensorRT-RTX"
_NO_GPU = ("Cuda Runtime", "catchCudaError", "CUDA initialization failure")


@dataclass(frozen=True, slots=True)
class Engine:
    """What a build gave: which TensorRT, how long it took, and the built layers."""

    builder: str
    version: str
    seconds: float
    kernels: tuple[Kernel, ...]


class BuildError(Exception):
    """TensorRT refuses a model: `node` is the key of the ONNX node that it names, "" where it names none."""

    def __init__(self, message: str, node: str = "") -> None:
        super().__init__(message)
        self.node = node


def build(model: bytes, path: Path, profiles: Mapping[str, Profile], *, half: bool) -> Engine:
    """Build an engine and list what it is made of.

    Args:
        model: ONNX protobuf, with external weights left outside.
        path: where the model lies; its external weights are beside it.
        profiles: of every input with a dynamic shape.
        half: whether the graph holds FP16; TensorRT before 10 must be told.

    Raises:
        MissingDependencyError: no TensorRT can build here.
        BuildError: TensorRT refuses the model.
    """
    trt, name = _tensorrt()
    log = _logger(trt)
    start = time.perf_counter()
    with _silent_stdout():
        builder = trt.Builder(log)
        strong = int(trt.__version__.partition(".")[0]) >= 10 or name == RTX
        network = _network(trt, builder, strong=strong)
        _parse(trt, network, log, model, path)
        config = _config(trt, builder, network, profiles, strong=strong, half=half)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise BuildError(log.first_error() or "the build failed without a message")
        seconds = time.perf_counter() - start
        kernels = (
            listing.from_log(log.layers) if name == RTX else listing.from_inspector(_inspect(trt, log, plan, profiles))
        )
    if not kernels:
        raise BuildError(f"{name} {trt.__version__} lists no built layers; calib cannot read its log")
    return Engine(name, trt.__version__, seconds, kernels)


def _tensorrt() -> tuple[Any, str]:
    if _has_gpu():
        with suppress(ImportError):
            import tensorrt

            return tensorrt, "TensorRT"
    with suppress(ImportError):
        import tensorrt_rtx

        return tensorrt_rtx, RTX
    raise MissingDependencyError(
        "building needs TensorRT and a GPU, or TensorRT-RTX, which builds on the CPU: pip install 'calib[verify]'"
    )


def _has_gpu() -> bool:
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _is_about_the_gpu(message: str) -> bool:
    """Whether a message only says that there is no GPU; building on the CPU gives several of them."""
    return any(text in message for text in _NO_GPU)


def _logger(trt: Any) -> Any:
    class Log(trt.ILogger):  # type: ignore[misc]  # a class of a module that is chosen at run time
        def __init__(self) -> None:
            super().__init__()
            self.errors: list[str] = []
            self.layers = ""

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                self.errors.append(message)
            elif message.startswith("Layers:"):
                self.layers += message + "\n"

        def first_error(self) -> str:
            own = [error for error in self.errors if not _is_about_the_gpu(error)]
            return (own or self.errors or [""])[0]

    return Log()


def _network(trt: Any, builder: Any, *, strong: bool) -> Any:
    flags = trt.NetworkDefinitionCreationFlag
    # TensorRT 11 and RTX know strong typing only, and ignore the flag; before 10 it is the batch that must be explicit.
    return builder.create_network(1 << int(flags.STRONGLY_TYPED if strong else flags.EXPLICIT_BATCH))


def _parse(trt: Any, network: Any, log: Any, model: bytes, path: Path) -> None:
    parser = trt.OnnxParser(network, log)
    if parser.parse(model, str(path)):
        return
    if parser.num_errors == 0:
        raise BuildError(log.first_error() or "the model cannot be parsed")
    error = parser.get_error(0)
    lines = [line for line in str(error.desc()).splitlines() if not _is_about_the_gpu(line)]
    operator, node = (error.node_operator(), error.node_name()) if hasattr(error, "node_name") else ("", "")
    raise BuildError(" ".join([f"{operator}:" if operator else "", *lines]).strip(), node)


def _config(trt: Any, builder: Any, network: Any, profiles: Mapping[str, Profile], *, strong: bool, half: bool) -> Any:
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if not strong:
        config.set_flag(trt.BuilderFlag.INT8)
        if half:
            config.set_flag(trt.BuilderFlag.FP16)
        sources = trt.TacticSource
        config.set_tactic_sources(1 << int(sources.JIT_CONVOLUTIONS) | 1 << int(sources.EDGE_MASK_CONVOLUTIONS))
    if profiles:
        profile = builder.create_optimization_profile()
        for index in range(network.num_inputs):
            tensor = network.get_input(index)
            if tensor.is_shape_tensor:
                raise BuildError(f"input '{tensor.name}' holds a shape; make it a constant of the model to verify it")
            if tensor.name in profiles:
                wanted = profiles[tensor.name]
                profile.set_shape(tensor.name, wanted.min, wanted.opt, wanted.max)
        config.add_optimization_profile(profile)
    return config


def _inspect(trt: Any, log: Any, plan: Any, profiles: Mapping[str, Profile]) -> str:
    engine = trt.Runtime(log).deserialize_cuda_engine(plan)
    context = engine.create_execution_context() if engine is not None else None
    if context is None:
        raise BuildError(log.first_error() or "the engine cannot be loaded")
    for name, profile in profiles.items():
        context.set_input_shape(name, profile.opt)
    inspector = engine.create_engine_inspector()
    inspector.execution_context = context  # without shapes, TensorRT 8 does not say what types layers read
    return str(inspector.get_engine_information(trt.LayerInformationFormat.JSON))


@contextmanager
def _silent_stdout() -> Iterator[None]:
    """Keep what libraries print away from standard output, which is for a machine's answer."""
    sys.stdout.flush()
    saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)
