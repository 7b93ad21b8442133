"""Arrays: one .npy or .npz of stacked samples, [N, ...], or a folder with a file a sample, whose shapes may differ.

    path = "windows.npz"                 [N, ...] a member; or "windows.npy"; or a folder of .npz or .npy
    metadata = ["subject", "label"]      members that are metadata: [N], or one value in a file of one sample
    id = "window"                        member with the ids; by default "row-7", or the file's path in the folder
    input = "x"                          field of a .npy, which names none

Files are mapped, not loaded (`npy`), so that they may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from calib.data.source import Fault, Fields, Item, Record, Source
from calib.data.sources import expand, npy, paths, records
from calib.data.sources.npy import Array
from calib.errors import ConfigError, DataError


def open_arrays(
    base: Path,
    *,
    path: str,
    input: str = "x",
    id: str = "",
    metadata: tuple[str, ...] = (),
    expand_mb: int = expand.LIMIT_MB,
) -> Source:
    """Open .npy or .npz files.

    Args:
        base: folder of the recipe.
        path: a file of stacked samples, or a folder of files of one sample each.
        input: field name of the array in a .npy.
        id: member with the ids.
        metadata: members that are metadata and no fields.
        expand_mb: what a compressed .npz may expand to, in MiB, if its ratio is above 100.

    Raises:
        ConfigError: the path is wrong, or a named member does not exist.
        DataError: the file cannot be read, or its arrays do not belong together.
    """
    expand.check_limit(expand_mb)
    root, found = paths.find(base, path, (".npz", ".npy"))
    reading = _Reading(input, id, metadata, expand_mb)
    if (base / path).is_file():
        return _Stacked.of(found[0], reading)
    return _Folder(root, tuple(found), reading)


@dataclass(frozen=True, slots=True)
class _Reading:
    input: str
    id: str
    metadata: tuple[str, ...]
    expand_mb: int

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the members that are no fields."""
        return (*self.metadata, *([self.id] if self.id and self.id not in self.metadata else []))

    def record(self, values: Mapping[str, object], default: str) -> Record:
        """Return a record of the values of `columns`; its id is `default` where no member has the ids."""
        identity = records.plain(values[self.id]) if self.id else default
        known = {name: values[name] for name in self.metadata}
        return records.row(known, "" if identity is None else str(identity))

    def open(self, path: Path) -> dict[str, Array]:
        """Map a file's arrays."""
        if path.suffix == ".npy":
            return {self.input: npy.read_npy(path)}
        return npy.read_npz(path, self.expand_mb)

    def missing(self, arrays: Mapping[str, Array], path: Path) -> str:
        """Return what is wrong with the names of a file's arrays, "" if nothing is."""
        for name in self.columns:
            if name not in arrays:
                return f"{path} has no array '{name}', which the recipe names; it has {', '.join(arrays) or 'none'}"
        if not arrays.keys() - set(self.columns):
            return f"{path} has no array besides the metadata {', '.join(self.columns) or '(none)'}"
        return ""


@dataclass(frozen=True, slots=True)
class _Stacked:
    path: Path
    fields: Mapping[str, Array]
    columns: Mapping[str, Array]
    reading: _Reading

    @classmethod
    def of(cls, path: Path, reading: _Reading) -> Source:
        arrays = reading.open(path)
        if wrong := reading.missing(arrays, path):
            raise ConfigError(wrong)
        columns = {name: arrays.pop(name) for name in reading.columns}
        for name, array in columns.items():
            if array.ndim != 1:
                raise DataError(
                    f"{path}: metadata '{name}' has shape {list(array.shape)}; one value a sample is needed, [N]"
                )
        sizes = {name: array.shape[0] if array.ndim else 0 for name, array in (arrays | columns).items()}
        if len(set(sizes.values())) != 1 or not min(sizes.values()):
            listed = ", ".join(f"'{name}' {list(array.shape)}" for name, array in (arrays | columns).items())
            raise DataError(f"{path} must hold arrays [N, ...], all with the same N >= 1; it has {listed}")
        return cls(path, arrays, columns, reading)

    def items(self) -> Iterator[Item | Fault]:
        for row in range(len(next(iter(self.fields.values())))):
            values = {name: column[row] for name, column in self.columns.items()}
            yield Item(self.reading.record(values, f"row-{row}"), partial(self._read, row))

    def files(self) -> Iterator[Path]:
        yield self.path

    def _read(self, row: int) -> Fields:
        return {name: _own(array[row]) for name, array in self.fields.items()}


@dataclass(frozen=True, slots=True)
class _Folder:
    root: Path
    paths: tuple[Path, ...]
    reading: _Reading

    def items(self) -> Iterator[Item | Fault]:
        for path in self.paths:
            name = path.relative_to(self.root)
            try:
                values = self._columns(path) if self.reading.columns else {}
            except DataError as error:
                yield Fault(name.as_posix(), str(error))
                continue
            record = self.reading.record(values, name.with_suffix("").as_posix())
            yield Item(record, partial(self._read, path))

    def files(self) -> Iterator[Path]:
        return iter(self.paths)

    def _columns(self, path: Path) -> dict[str, object]:
        arrays = self._open(path)
        for name in self.reading.columns:
            if arrays[name].size != 1:
                raise DataError(f"metadata '{name}' has shape {list(arrays[name].shape)}; one value is needed")
        return {name: arrays[name].reshape(-1)[0] for name in self.reading.columns}

    def _read(self, path: Path) -> Fields:
        return {name: _own(array) for name, array in self._open(path).items() if name not in self.reading.columns}

    def _open(self, path: Path) -> dict[str, Array]:
        arrays = self.reading.open(path)
        if wrong := self.reading.missing(arrays, path):
            raise DataError(wrong)
        return arrays


def _own(array: Array) -> Array:
    """Return a copy outside the file, in the machine's byte order."""
    return np.array(array, dtype=array.dtype.newbyteorder("="))
