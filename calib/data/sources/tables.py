"""Parquet and Arrow tables, a row a sample, streamed: columns of scalars are metadata, of arrays or images are fields.

    path = "log.parquet"                   or a folder, or a pattern as "2026-*.parquet"
    id = "request"                         by default the column "id", else file:row
    metadata = ["device", "site"]          by default every scalar column: text, numbers, truth (0 or 1), dates (ISO text)
    fields = ["x", "length"]               by default every column of lists, tensors or bytes; bytes are encoded images
    shapes = {x = [3, 32, 32]}             of lists that are stored flat

Null and NaN are unknown: that column is left out of the sample's metadata. The first pass reads the metadata alone. A
sample's arrays are read where it lies: in Arrow files at once; in Parquet the row group is first expanded into a temporary
file, and the last `GROUPS` of them are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calib.data.source import Fault, Fields, Item, Source
from calib.data.sources import cells, expand, paths, records
from calib.data.sources.cells import Columns
from calib.errors import DataError

GROUPS = 8
_ROWS = 1024
_BATCH_BYTES = 16 << 20


def open_parquet(
    base: Path,
    *,
    path: str,
    id: str = "",
    metadata: tuple[str, ...] = (),
    fields: tuple[str, ...] = (),
    shapes: dict[str, tuple[int, ...]] | None = None,
    expand_mb: int = expand.LIMIT_MB,
) -> Source:
    """Open Parquet files; the module says what the options mean, `expand_mb` is the limit of one row group.

    Raises:
        ConfigError: the path or a column is wrong.
        DataError: the first file cannot be read.
    """
    expand.check_limit(expand_mb)
    root, found = paths.find(base, path, (".parquet", ".pq"))
    with _readable(found[0], "Parquet"):
        schema = _parquet(found[0]).schema_arrow
    columns = cells.choose(schema, str(found[0]), id=id, metadata=metadata, fields=fields, shapes=shapes or {})
    return _Table(root, tuple(found), columns, _ParquetFormat(columns, expand_mb))


def open_arrow(
    base: Path,
    *,
    path: str,
    id: str = "",
    metadata: tuple[str, ...] = (),
    fields: tuple[str, ...] = (),
    shapes: dict[str, tuple[int, ...]] | None = None,
) -> Source:
    """Open Arrow IPC files or streams; the module says what the options mean.

    Raises:
        ConfigError: the path or a column is wrong.
        DataError: the first file cannot be read.
    """
    root, found = paths.find(base, path, (".arrow", ".arrows", ".feather", ".ipc"))
    with _readable(found[0], "Arrow"):
        schema = _ipc(found[0], None).schema
    columns = cells.choose(schema, str(found[0]), id=id, metadata=metadata, fields=fields, shapes=shapes or {})
    return _Table(root, tuple(found), columns, _ArrowFormat(columns))


@dataclass(frozen=True, slots=True)
class _Table:
    root: Path
    paths: tuple[Path, ...]
    columns: Columns
    format: _ParquetFormat | _ArrowFormat

    def items(self) -> Iterator[Item | Fault]:
        for path in self.paths:
            name = path.relative_to(self.root).as_posix()
            for row, (group, index, values) in enumerate(self.format.rows(path)):
                identity = values.get(self.columns.id) if self.columns.id else f"{name}:{row}"
                if identity is None or identity == "":
                    yield Fault(
                        f"{name}, row {row}", f"column '{self.columns.id}' is null or empty, and the ids are there"
                    )
                else:
                    identity = str(records.plain(identity))
                    read = partial(self._read, path, group, index, identity)
                    yield Item(records.row({key: values[key] for key in self.columns.metadata}, identity), read)

    def files(self) -> Iterator[Path]:
        return iter(self.paths)

    def _read(self, path: Path, group: int, index: int, identity: str) -> Fields:
        with _readable(path, f"table (sample '{identity}')"):
            row = self.format.row(path, group, index)
            row.validate(full=True)  # a damaged Arrow file must not crash the process
            return cells.fields(row, self.columns, identity)


@dataclass(frozen=True, slots=True)
class _ParquetFormat:
    columns: Columns
    expand_mb: int
    _open: OrderedDict[tuple[Path, int], Any] = field(default_factory=OrderedDict)

    def rows(self, path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield each row's group, its place there and its metadata."""
        with _readable(path, "Parquet"):
            file = _parquet(path)
            _require(path, file.schema_arrow.names, (*self.columns.known, *self.columns.fields))
            for group in range(file.num_row_groups):
                if not self.columns.known:
                    yield from ((group, index, {}) for index in range(file.metadata.row_group(group).num_rows))
                    continue
                index = 0
                for batch in file.iter_batches(_ROWS, row_groups=[group], columns=list(self.columns.known)):
                    for values in cells.scalars(batch):
                        yield group, index, values
                        index += 1

    def row(self, path: Path, group: int, index: int) -> Any:
        """Return one row of the fields."""
        key = path, group
        if key not in self._open:
            self._open[key] = self._expand(path, group)
            if len(self._open) > GROUPS:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return _at(self._open[key], index)

    def _expand(self, path: Path, group: int) -> list[Any]:
        pa = cells.arrow()
        file = _parquet(path)
        stored = file.metadata.row_group(group)
        size = max(1, stored.total_byte_size // max(1, stored.num_rows))
        batches = file.iter_batches(
            max(1, min(_ROWS, _BATCH_BYTES // size)), row_groups=[group], columns=list(self.columns.fields)
        )
        where = f"{path}, row group {group}"
        with expand.temporary(where) as target:
            writer = None
            for batch in batches:
                writer = writer or pa.ipc.new_stream(pa.PythonFile(target, "w"), batch.schema)
                expand.check(target.tell() + batch.nbytes, path.stat().st_size, self.expand_mb, where)
                writer.write_batch(batch)
            if writer:
                writer.close()
            target.flush()
            return list(pa.ipc.open_stream(pa.py_buffer(np.memmap(target, np.uint8, "r"))))


@dataclass(frozen=True, slots=True)
class _ArrowFormat:
    columns: Columns

    def rows(self, path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield each row's batch, its place there and its metadata."""
        with _readable(path, "Arrow"):
            _require(path, _ipc(path, None).schema.names, (*self.columns.known, *self.columns.fields))
            for number, batch in enumerate(_batches(_ipc(path, self.columns.known or self.columns.fields[:1]))):
                if not self.columns.known:
                    yield from ((number, index, {}) for index in range(batch.num_rows))
                for start in range(0, batch.num_rows if self.columns.known else 0, _ROWS):
                    part = batch.slice(start, _ROWS)
                    part.validate(full=True)
                    for index, values in enumerate(cells.scalars(part), start):
                        yield number, index, values

    def row(self, path: Path, group: int, index: int) -> Any:
        """Return one row of the fields."""
        reader = _ipc(path, self.columns.fields)
        if hasattr(reader, "get_batch"):
            return reader.get_batch(group).slice(index, 1)
        for number, batch in enumerate(reader):  # a stream has no directory; batches that are passed over are not read
            if number == group:
                return batch.slice(index, 1)
        raise DataError(f"{path} has changed while it was read; leave it as it is and start again")


def _batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "get_batch"):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


def _at(batches: Sequence[Any], index: int) -> Any:
    for batch in batches:
        if index < batch.num_rows:
            return batch.slice(index, 1)
        index -= batch.num_rows
    raise DataError("the file has changed while it was read; leave it as it is and start again")


def _parquet(path: Path) -> Any:
    cells.arrow()
    from pyarrow import parquet

    return parquet.ParquetFile(path, buffer_size=1 << 20)


def _ipc(path: Path, columns: Sequence[str] | None) -> Any:
    """Open an Arrow file or stream, mapped; of a file's batches only `columns` are decompressed."""
    pa = cells.arrow()
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    source = pa.memory_map(str(path))
    open_ = pa.ipc.open_file if is_file else pa.ipc.open_stream
    reader = open_(source)
    if columns is None:
        return reader
    source.seek(0)
    included = [reader.schema.get_field_index(name) for name in columns]
    return open_(source, options=pa.ipc.IpcReadOptions(included_fields=included))


def _require(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in names]
    if missing:
        raise DataError(
            f"{path} has no column '{missing[0]}', which the recipe or the first file has; it has {', '.join(names)}"
        )


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    pa = cells.arrow()
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        empty = path.is_file() and path.stat().st_size == 0
        reason = "it is empty" if empty else f"{error}; it may be truncated"
        raise DataError(f"{path} is not a readable {kind} file ({reason}): write it again, or leave it out") from error
