"""Loading ONNX models, with what cannot be quantized refused at once."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

import google.protobuf.message
import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx_ir.passes import common

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


def load(path: Path, *, quantized: bool = False) -> ir.Model:
    """Load an ONNX model; one with quantized values only where the caller says that it may be.

    Every weight is an array: of the bytes that were read, or, where the model keeps it in a file of its own, of that
    file mapped into memory, read page by page when it is needed. So nothing written later can point back to that file,
    and the map holds on to it: the model may be moved, deleted or saved over (`save` renames). A program that rewrites
    the file in place, while it is mapped, changes the weights.

    Raises:
        ModelError: not a valid ONNX model, external data outside the model's folder, or already quantized.
    """
    proto = _read(path)
    _external_files(path, proto)
    try:
        model = ir.from_proto(proto)
        common.TopologicalSortPass()(model)  # not all exporters do
    except (ir.serde.SerdeError, ValueError, NotImplementedError) as error:
        raise ModelError(f"{path} is not a valid ONNX model ({_root(error)}); export it again") from error
    del proto  # is freed as its tensors are replaced
    _Weights(path).replace(model)
    _check_values(path, model)
    found = sorted({node.op_type for node in all_nodes(model) if is_quantization(node.op_type)})
    if found and not quantized:
        raise ModelError(
            f"{path} is already quantized (it holds {', '.join(found)}); start from the float model it was made of"
        )
    return model


def size(path: Path) -> int:
    """Return the bytes of a model's file, and of those with its external weights.

    Raises:
        ModelError: as `sha256`.
    """
    return sum(file.stat().st_size for file in _files(path))


def sha256(path: Path) -> str:
    """Return the hex digest of a model: of its file, together with the files that hold its external weights, if any.

    Raises:
        ModelError: the file does not exist, or has external data that is missing or outside its folder.
    """
    digests = [files.sha256(file) for file in _files(path)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _files(path: Path) -> list[Path]:
    """Return a model's file, and those with its external weights."""
    try:
        return [path, *(_external_files(path, _read(path)) if _may_be_external(path) else [])]
    except FileNotFoundError:
        raise ModelError(f"model {path} does not exist") from None


def _may_be_external(path: Path) -> bool:
    """Whether the key that every external tensor has is among the file's bytes; parsing costs far more."""
    key, tail = b"location", b""
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            if key in tail + chunk:
                return True
            tail = chunk[1 - len(key) :]
    return False


def _read(path: Path) -> onnx.ModelProto:
    try:
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"model {path} does not exist") from None
    except (OSError, google.protobuf.message.DecodeError) as error:
        raise ModelError(f"{path} is not an ONNX model ({error})") from error
    if not proto.graph.node or not proto.opset_import:
        raise ModelError(f"{path} is not an ONNX model: it has no nodes or no opset")
    if proto.graph.sparse_initializer:
        name = proto.graph.sparse_initializer[0].values.name
        raise ModelError(f"{path}: weight '{name}' is stored sparsely; export it with dense weights")
    return proto


def _external_files(path: Path, proto: onnx.ModelProto) -> list[Path]:
    found: dict[Path, None] = {}
    for tensor in onnx.external_data_helper._get_all_tensors(proto):
        for entry in tensor.external_data:
            if entry.key == "location":
                found[_external_file(path, tensor.name, entry.value)] = None
    return sorted(found)


def _external_file(path: Path, weight: str, location: str) -> Path:
    where = f"{path}: weight '{weight}'"
    data = files.inside(path.parent, location, lambda problem: ModelError(f"{where}: {problem}"))
    if not data.is_file():
        raise ModelError(f"{where} lies in {location}, which does not exist")
    return data


class _Weights:
    """Replaces a model's tensors, of the protobuf or external, by arrays; maps each data file once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._maps: dict[Path, mmap.mmap] = {}

    def replace(self, model: ir.Model) -> None:
        for graph in model.graphs():
            for value in graph.initializers.values():
                if value.const_value is not None:
                    value.const_value = self._plain(value.const_value)
        bodies = (model.graph, *(function.graph for function in model.functions.values()))
        for node in (node for body in bodies for node in ir.traversal.RecursiveGraphIterator(body)):
            for name, attribute in node.attributes.items():
                if attribute.type is ir.AttributeType.TENSOR and not attribute.is_ref():
                    node.attributes[name] = ir.AttrTensor(name, self._plain(attribute.as_tensor()))

    def _plain(self, tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if tensor.dtype == ir.DataType.STRING:
            return tensor
        where = ""
        try:
            if isinstance(tensor, ir.ExternalTensor):
                where = f" in {tensor.location}"
                array = self._mapped(tensor)
            else:
                array = tensor.numpy()
            return ir.Tensor(array, dtype=tensor.dtype, name=tensor.name)
        except (ValueError, OSError) as error:
            raise ModelError(
                f"{self._path}: weight '{tensor.name}'{where} cannot be read ({error}); the file may be truncated: export "
                "it again"
            ) from error

    def _mapped(self, tensor: ir.ExternalTensor) -> npt.NDArray[np.generic]:
        if tensor.size == 0 or tensor.dtype.bitwidth < 8:  # nothing to map; packed values are unpacked
            tensor.base_dir = self._path.parent
            return tensor.numpy()
        if tensor.length not in (None, tensor.nbytes):
            raise ValueError(f"it has {tensor.length} bytes where its shape needs {tensor.nbytes}")
        file = _external_file(self._path, str(tensor.name), str(tensor.location))
        if file not in self._maps:
            with file.open("rb") as stream:
                self._maps[file] = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        flat = np.frombuffer(self._maps[file], tensor.dtype.numpy(), tensor.size, tensor.offset or 0)
        return flat.reshape(tensor.shape.numpy())


def _check_values(path: Path, model: ir.Model) -> None:
    for node in all_nodes(model):
        for value in node.inputs:
            if value is not None and not _has_origin(value):
                raise ModelError(
                    f"{path} is not a valid ONNX model (node '{node.name}', {node.op_type}, reads '{value.name}', which "
                    "nothing makes); export it again"
                )
    for graph in model.graphs():
        for value in graph.outputs:
            if not _has_origin(value):
                raise ModelError(
                    f"{path} is not a valid ONNX model (nothing in graph '{graph.name}' makes its output '{value.name}'); "
                    "export it again"
                )


def _has_origin(value: ir.Value) -> bool:
    return value.producer() is not None or value.is_graph_input() or value.is_initializer()


def _root(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return " ".join(str(error).split())


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
