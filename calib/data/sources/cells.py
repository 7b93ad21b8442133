"""Columns of Arrow tables: which are metadata and which hold arrays or images, and a cell of each as what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from calib.data.source import Fields
from calib.data.sources.images import decode
from calib.errors import ConfigError, DataError, MissingDependencyError

if TYPE_CHECKING:
    import pyarrow as pa


def arrow() -> Any:
    """Import pyarrow.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependencyError("Parquet and Arrow data need pyarrow: pip install 'calib[data]'") from error
    return pyarrow


@dataclass(frozen=True, slots=True)
class Columns:
    """What each column of a table is for.

    Attributes:
        id: column with the ids, "" where rows are numbered.
        metadata: columns that are metadata; without `id`.
        fields: columns with arrays, encoded images or, if asked for, numbers.
        shapes: of fields that are stored flat.
    """

    id: str
    metadata: tuple[str, ...]
    fields: tuple[str, ...]
    shapes: Mapping[str, Sequence[int]]

    @property
    def known(self) -> tuple[str, ...]:
        """The columns of a record."""
        return (*([self.id] if self.id else []), *self.metadata)


def choose(
    schema: pa.Schema,
    where: str,
    *,
    id: str,
    metadata: Sequence[str],
    fields: Sequence[str],
    shapes: Mapping[str, Sequence[int]],
) -> Columns:
    """Divide a table's columns; what is not named is told by its type.

    Args:
        schema: of the table.
        where: begins every error message.
        id: column with the ids; by default "id", where there is one.
        metadata: columns that are metadata; by default every scalar that is no field.
        fields: columns of arrays; by default every list, tensor and binary column.
        shapes: of fields that are stored flat.

    Raises:
        ConfigError: a named column does not exist or has a type that does not fit, or there are no fields.
    """
    types = dict(zip(schema.names, schema.types, strict=True))
    if len(types) < len(schema.names):
        raise ConfigError(f"{where} has two columns of one name; rename one")
    for name in (*([id] if id else []), *metadata, *fields):
        if name not in types:
            raise ConfigError(f"{where} has no column '{name}'; it has {', '.join(types) or 'none'}")
    kinds = {name: kind(type_) for name, type_ in types.items()}
    id = id or ("id" if kinds.get("id") == "scalar" and "id" not in fields else "")
    fields = tuple(fields) or tuple(name for name, found in kinds.items() if found == "array" and name not in metadata)
    metadata = tuple(metadata) or tuple(
        name for name, found in kinds.items() if found == "scalar" and name not in fields
    )
    for name in (*([id] if id else []), *metadata):
        if kinds[name] != "scalar":
            raise ConfigError(f"{where}: column '{name}' is a {types[name]}, which cannot be metadata")
    for name in fields:
        if not kinds[name] or (kinds[name] == "scalar" and not _is_number(types[name])):
            raise ConfigError(
                f"{where}: column '{name}' is a {types[name]}, which is neither an array, a number nor an image"
            )
    if not fields:
        listed = ", ".join(f"{name} ({type_})" for name, type_ in types.items()) or "none"
        raise ConfigError(
            f"{where} has no column of arrays or images; name columns of numbers as fields; it has {listed}"
        )
    if wrong := shapes.keys() - set(fields):
        raise ConfigError(f"{where}: shapes names '{min(wrong)}', which is not one of the fields {', '.join(fields)}")
    return Columns(id, tuple(name for name in metadata if name != id), tuple(fields), shapes)


def kind(type_: pa.DataType) -> str:
    """Return "scalar", "array" or "", which is neither."""
    pa = arrow()
    if isinstance(type_, pa.BaseExtensionType):
        type_ = type_.storage_type
    if pa.types.is_dictionary(type_):
        return "scalar" if kind(type_.value_type) == "scalar" else ""
    if _is_list(type_):
        inner = type_.value_type
        dense = _is_number(inner) or (kind(inner) == "array" and not _is_encoded(inner))
        return "array" if dense else ""
    if _is_encoded(type_):
        return "array"
    text = any(is_(type_) for is_ in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
    return "scalar" if text or _is_number(type_) or pa.types.is_temporal(type_) or pa.types.is_decimal(type_) else ""


def scalars(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return a batch's rows as Python values."""
    pa = arrow()
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":  # Python's datetime ends at microseconds
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        if pa.types.is_time64(column.type) or pa.types.is_duration(column.type):
            column = column.cast(pa.time64("us") if pa.types.is_time64(column.type) else pa.duration("us"), safe=False)
        columns.append(column.to_pylist())
    return [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def fields(row: pa.RecordBatch | pa.Table, columns: Columns, identity: str, roots: Sequence[Path] = ()) -> Fields:
    """Return the arrays of a table of one row.

    Args:
        row: of the table.
        columns: what they are for.
        identity: of the sample.
        roots: folders of image files that a cell may name instead of holding the image.

    Raises:
        DataError: a cell is null, ragged, not the shape that was declared, or no image.
    """
    result = {}
    for name in columns.fields:
        column, where = row.column(row.schema.get_field_index(name)), f"sample '{identity}': '{name}'"
        if hasattr(column, "combine_chunks"):
            column = column.combine_chunks()
        if _is_encoded(column.type):
            result[name] = _image(column[0].as_py(), where, roots)
        else:
            result[name] = _array(column, columns.shapes.get(name), where)
    return result


def _image(value: Any, where: str, roots: Sequence[Path]) -> npt.NDArray[Any]:
    value = value if isinstance(value, dict) else {"bytes": value, "path": None}
    if value["bytes"] is not None:
        return decode(value["bytes"], where)
    if value["path"] is None:
        raise DataError(f"{where} is null; fill it, or remove the row")
    path = Path(value["path"]).resolve()
    if not any(path.is_relative_to(root.resolve()) for root in roots):
        raise DataError(f"{where} names '{value['path']}', which is no file of this data; store the bytes in the table")
    return decode(path, where)


def _array(column: pa.Array, shape: Sequence[int] | None, where: str) -> npt.NDArray[Any]:
    pa = arrow()
    if isinstance(column.type, pa.FixedShapeTensorType):
        permutation = column.type.permutation
        if permutation is not None and list(permutation) != sorted(permutation):
            raise DataError(f"{where} is a tensor with a permuted layout; store it in row order")
        shape = shape or column.type.shape
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if column.null_count:
        raise DataError(f"{where} is null; fill it, or remove the row")
    result = _dense(column, where)
    if shape is None:
        return result
    try:
        return result.reshape(shape)
    except ValueError as error:
        raise DataError(f"{where} holds {result.size} values and the shape {list(shape)} was declared") from error


def _dense(column: pa.Array, where: str) -> npt.NDArray[Any]:
    """Return the only row of a column of nested lists as array; sublists must have equal lengths."""
    import pyarrow.compute as pc

    sizes: list[int] = []
    while _is_list(column.type):
        lengths = pc.list_value_length(column)
        least, most = pc.min_max(lengths).as_py().values() if len(column) else (0, 0)
        if lengths.null_count or least != most:
            raise DataError(
                f"{where} is ragged: lists of {least} and of {most} values at depth {len(sizes) + 1}, or null"
            )
        sizes.append(most)
        column = column.flatten()
    if column.null_count:
        raise DataError(f"{where} holds null among its numbers; fill them, or remove the row")
    return np.array(column.to_numpy(zero_copy_only=False)).reshape(sizes)


def _is_list(type_: pa.DataType) -> bool:
    types = arrow().types
    return any(is_(type_) for is_ in (types.is_list, types.is_large_list, types.is_fixed_size_list))


def _is_number(type_: pa.DataType) -> bool:
    types = arrow().types
    return any(is_(type_) for is_ in (types.is_integer, types.is_floating, types.is_boolean))


def _is_encoded(type_: pa.DataType) -> bool:
    """Whether a type is bytes, or a struct of bytes and path as Hugging Face writes images."""
    types = arrow().types
    if types.is_struct(type_):
        return {type_.field(i).name for i in range(type_.num_fields)} == {"bytes", "path"}
    return any(is_(type_) for is_ in (types.is_binary, types.is_large_binary, types.is_binary_view))
