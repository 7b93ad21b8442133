"""TensorRT-RTX's parser and builder, which need no GPU: what they make of a model."""

import re
import sys
from dataclasses import dataclass

import onnx
import tensorrt_rtx as trt


class _Log(trt.ILogger):
    def __init__(self):
        super().__init__()
        self.lines = []

    def log(self, severity, message):
        self.lines.append((severity, message))


_LOG = _Log()
_BUILDER = trt.Builder(_LOG)


@dataclass(frozen=True)
class Built:
    """Attributes:
    error: of the parser or the builder, "" where the model was built.
    layers: (name, type, line of the build log) of each built layer.
    """

    error: str
    layers: tuple[tuple[str, str, str], ...] = ()

    def reads(self, kind: str) -> list[list[str]]:
        """Types of the data that built layers of a type read."""
        return [re.findall(r"Datatype: (\w+)", _inputs(line)) for _, found, line in self.layers if found == kind]

    @property
    def int8(self) -> bool:
        """Whether there are products, and all of them are in INT8."""
        kernels = [types for kind in ("correlation", "gemm", "deconv", "runtime_fusion") for types in self.reads(kind)]
        fused = bool(self.reads("runtime_fusion"))  # INT8 data that is multiplied in float, inside one kernel
        return bool(kernels) and not fused and all(types and set(types) == {"Int8"} for types in kernels)


def build(model: onnx.ModelProto) -> Built:
    _LOG.lines.clear()
    network = _BUILDER.create_network(0)
    parser = trt.OnnxParser(network, _LOG)
    if not parser.parse(model.SerializeToString()):
        return Built(f"parser: {parser.get_error(0).desc()}")
    config = _BUILDER.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if _BUILDER.build_serialized_network(network, config) is None:
        errors = (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR)
        return Built("builder: " + next(text for severity, text in _LOG.lines if severity in errors))
    listed = next(text for _, text in _LOG.lines if text.startswith("Layers:"))
    found = (re.match(r"Name: (.*?), LayerType: (.*?), ", line) for line in listed.splitlines())
    return Built("", tuple((match[1], match[2], match.string) for match in found if match))


def supports(operator: str) -> bool:
    return trt.OnnxParser(_BUILDER.create_network(0), _LOG).supports_operator(operator)


def _inputs(line: str) -> str:
    return line.partition("Inputs: ")[2].partition(", Constants:")[0]


if __name__ == "__main__":
    sys.exit(build(onnx.load(sys.argv[1])).error)
