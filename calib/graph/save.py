"""Saving ONNX models, whole or not at all, in the memory that the model itself takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import onnx
import onnx_ir as ir

from calib import files
from calib.graph import load

LARGE = 1_500_000_000
"""Bytes of weights above which they go into a file beside the model: protobuf ends at 2 GiB."""

_SMALL = 1024  # bytes of a tensor that stays in the protobuf, where shape inference and TensorRT's parser read it
_PAGE = 4096  # an external tensor starts on a page, so that it can be mapped by itself


def save(model: ir.Model, path: Path) -> None:
    """Write a model to one file, or, above LARGE bytes of weights, to one with `<name>.data` beside it.

    A killed run leaves no half file: both are written under temporary names, and the data is renamed first, after a
    model of the same name was removed (it would otherwise, for a moment, read the other's weights).

    Raises:
        DataError: the place cannot be written to.
    """
    if sum(_bytes(tensor) for tensor in _tensors(model)) <= LARGE:
        with files.replacing(path) as temporary, temporary.open("wb") as stream:
            _write_whole(model, stream)
        return
    data = path.with_name(f"{path.name}.data")
    # The inner one is renamed first.
    with files.replacing(path) as temporary, files.replacing(data) as temporary_data:
        with temporary_data.open("wb") as stream:
            skeleton = _write_external(model, data.name, stream)
        temporary.write_bytes(ir.to_proto(skeleton).SerializeToString())
        path.unlink(missing_ok=True)


def _write_whole(model: ir.Model, stream: BinaryIO) -> None:
    """Write the protobuf with its large weights last, straight from their arrays.

    Serializing all at once takes the weights two times more: in the message, and in the bytes made of it.
    """
    skeleton = model.clone()
    weights = {
        name: tensor
        for name, value in skeleton.graph.initializers.items()
        if (tensor := value.const_value) and _bytes(tensor) > _SMALL
    }
    for name in weights:
        del skeleton.graph.initializers[name]
    proto = ir.to_proto(skeleton)
    graph = proto.graph.SerializeToString()
    proto.ClearField("graph")
    heads = [_tensor_head(name, tensor) for name, tensor in weights.items()]
    stream.write(proto.SerializeToString())
    length = len(graph) + sum(len(head) for head in heads) + sum(tensor.nbytes for tensor in weights.values())
    stream.write(_field(onnx.ModelProto.GRAPH_FIELD_NUMBER, length))
    stream.write(graph)
    for head, tensor in zip(heads, weights.values(), strict=True):
        stream.write(head)
        _write(tensor, stream)


def _tensor_head(name: str, tensor: ir.TensorProtocol) -> bytes:
    """Return what stands before an initializer's bytes in a GraphProto."""
    head = onnx.TensorProto(name=name, data_type=tensor.dtype.value, dims=tensor.shape.numpy())
    content = bytes(head.SerializeToString()) + _field(onnx.TensorProto.RAW_DATA_FIELD_NUMBER, tensor.nbytes)
    return _field(onnx.GraphProto.INITIALIZER_FIELD_NUMBER, len(content) + tensor.nbytes) + content


def _field(number: int, length: int) -> bytes:
    """Return the key and the length of a length-delimited protobuf field."""
    return _varint(number << 3 | 2) + _varint(length)


def _varint(number: int) -> bytes:
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*result, number))


def _write_external(model: ir.Model, location: str, stream: BinaryIO) -> ir.Model:
    """Write the large tensors and return a copy of the model that finds them at `location`, beside it."""
    result = model.clone()

    def moved(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if _bytes(tensor) <= _SMALL:
            return tensor
        stream.write(bytes(-stream.tell() % _PAGE))
        start = stream.tell()
        _write(tensor, stream)
        shape = ir.Shape(tensor.shape.numpy())
        return ir.ExternalTensor(location, start, tensor.nbytes, tensor.dtype, shape=shape, name=tensor.name or "")

    for graph in result.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = moved(value.const_value)
    for node in load.all_nodes(result):
        for name, attribute in node.attributes.items():
            if attribute.type is ir.AttributeType.TENSOR and not attribute.is_ref():
                node.attributes[name] = ir.AttrTensor(name, moved(attribute.as_tensor()))
    return result


def _tensors(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for graph in model.graphs():
        yield from (value.const_value for value in graph.initializers.values() if value.const_value is not None)
    for node in load.all_nodes(model):
        for attribute in node.attributes.values():
            if attribute.type is ir.AttributeType.TENSOR and not attribute.is_ref():
                yield attribute.as_tensor()


def _bytes(tensor: ir.TensorProtocol) -> int:
    """Return the size of a tensor that can be stored as bytes, 0 of strings."""
    return 0 if tensor.dtype == ir.DataType.STRING else int(tensor.nbytes)


def _write(tensor: Any, stream: BinaryIO) -> None:
    """Write a tensor's bytes; onnx-ir's protocol does not declare `tofile`, which every tensor has."""
    tensor.tofile(stream)
