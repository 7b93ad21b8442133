"""Loading ONNX models, with what cannot be quantized refused at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import google.protobuf.message
import onnx
import onnx_ir as ir

from calib import files
from calib.errors import ModelError

_QUANTIZED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger"}


def locate(reference: str, base: Path) -> Path:
    """Return the path that a study gives: a path relative to `base`, or "package:distribution/path/in/it".

    The second finds a file of an installed package through its metadata; the package is not imported.

    Raises:
        ModelError: no such file or package.
    """
    if not reference.startswith("package:"):
        path = (base / reference).resolve()
        if not path.is_file():
            raise ModelError(f"model {path} does not exist")
        return path
    distribution, _, inner = reference.removeprefix("package:").partition("/")
    try:
        listed = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        raise ModelError(f"model {reference}: package {distribution} is not installed; pip install it first") from None
    for file in listed:
        if file.as_posix() == inner:
            return Path(str(file.locate())).resolve()
    raise ModelError(f"model {reference}: package {distribution} holds no file {inner}")


def load(path: Path) -> ir.Model:
    """Load an ONNX model with all its weights.

    Raises:
        ModelError: not an ONNX model, external data outside the model's folder, or already quantized.
    """
    proto = _read(path)
    _external_files(path, proto)
    model = ir.load(path, format="protobuf")
    try:
        ir.external_data.load_to_model(model)  # what is written later lies elsewhere and must not point back here
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: its external weights cannot be read ({error}); export it again") from error
    quantized = sorted({node.op_type for node in all_nodes(model) if is_quantization(node.op_type)})
    if quantized:
        raise ModelError(
            f"{path} is already quantized (it holds {', '.join(quantized)}); start from the float model it was made of"
        )
    return model


def sha256(path: Path) -> str:
    """Return the hex digest of a model: of its file, together with the files that hold its external weights, if any.

    Raises:
        ModelError: not an ONNX model, or external data that is missing or outside the model's folder.
    """
    external = _external_files(path, _read(path))
    digests = [files.sha256(file) for file in (path, *external)]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest() if external else digests[0]


def _read(path: Path) -> onnx.ModelProto:
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"model {path} does not exist") from None
    except (OSError, google.protobuf.message.DecodeError) as error:
        raise ModelError(f"{path} is not an ONNX model ({error})") from error
    if not proto.graph.node or not proto.opset_import:
        raise ModelError(f"{path} is not an ONNX model: it has no nodes or no opset")
    return proto


def _external_files(path: Path, proto: onnx.ModelProto) -> list[Path]:
    found: dict[Path, None] = {}
    for tensor in onnx.external_data_helper._get_all_tensors(proto):
        where = f"{path}: weight '{tensor.name}'"
        for entry in tensor.external_data:
            if entry.key == "location":
                data = files.inside(path.parent, entry.value, lambda problem: ModelError(f"{where}: {problem}"))  # noqa: B023  called at once
                if not data.is_file():
                    raise ModelError(f"{where} lies in {entry.value}, which does not exist")
                found[data] = None
    return sorted(found)


def is_quantization(op_type: str) -> bool:
    """Whether an operator works on quantized values."""
    return op_type in _QUANTIZED or op_type.startswith("QLinear")


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Yield every node, those in subgraphs too."""
    yield from ir.traversal.RecursiveGraphIterator(model.graph)


def opset(model: ir.Model) -> int:
    """Return the version of the default operator set."""
    return int(model.opset_imports.get("", model.opset_imports.get("ai.onnx", 0)))


def signature(values: Iterable[ir.Value]) -> dict[str, str]:
    """Return "float32[N, 3, 48, W]" by name, for a graph's inputs or outputs."""
    return {str(value.name): describe(value) for value in values}


def describe(value: ir.Value) -> str:
    """Return a value's type and shape as "float32[N, 3, 48, W]"; "?" where the model does not say."""
    kind = "?" if value.dtype is None else str(value.dtype.numpy())
    if value.shape is None:
        return f"{kind}[?]"
    sizes = [str(size) if isinstance(size, int) else str(size.value or "?") for size in value.shape]
    return f"{kind}[{', '.join(sizes)}]"


def parameters(model: ir.Model) -> int:
    """Return the number of weight values."""
    return sum(int(value.const_value.size) for value in model.graph.initializers.values() if value.const_value)
