r"""Capture logs: what a service was asked, one JSON object a line, in a .jsonl or .jsonl.gz file, or a folder of them.

    {"id": "req-1", "time": "2026-03-02T10:00:00Z", "device": "fax", "inputs": {"x": {"path": "req-1.npy"}}}
    {"id": "req-2", "device": "phone", "inputs": {"x": {"data": [[0.5, 1.0], [2.0, 3.0]]}, "n": {"data": [7]}}}
    {"id": "req-3", "inputs": {"x": {"data": "AACAPwAAAEA=", "dtype": "float32", "shape": [2]}}}

- `id` is unique; every other key but `inputs` is metadata: text, number, true or false; null is left out.
- An input is a file beside the log or below it (.npy, or an image), or `data`: nested lists, or base64 of the bytes of an
  array in row order, little-endian, with `dtype` and `shape`. Lists without a dtype are float32, or int64 if all are integers.

This writes such a log:

    def capture(log, identity, inputs, **metadata):
        encoded = {
            name: {"data": base64.b64encode(x.tobytes()).decode(), "dtype": x.dtype.name, "shape": x.shape}
            for name, x in inputs.items()
        }
        log.write(json.dumps({"id": identity, **metadata, "inputs": encoded}) + "\n")

A line that is not such an object is a Fault with its number. A .gz is expanded once into a temporary file.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import math
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from calib import files
from calib.data.source import Fault, Fields, Item, Source
from calib.data.sources import expand, npy, paths, records
from calib.data.sources.images import decode
from calib.errors import ConfigError, DataError

DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)


def open_jsonl(base: Path, *, path: str, line_mb: int = 16, expand_mb: int = expand.LIMIT_MB) -> Source:
    """Open capture logs.

    Args:
        base: folder of the recipe.
        path: of a log, a folder of logs, or a pattern.
        line_mb: a longer line is a Fault; memory holds one line.
        expand_mb: what a .gz may expand to, in MiB, if its ratio is above 100.

    Raises:
        ConfigError: the path or a limit is wrong.
        DataError: there is no log, or a .gz cannot be expanded.
    """
    expand.check_limit(expand_mb)
    if line_mb < 1:
        raise ConfigError(f"line_mb must be at least 1, not {line_mb}")
    root, found = paths.find(base, path, (".jsonl", ".jsonl.gz"))
    return _Logs(root, tuple(found), line_mb << 20, expand_mb)


@dataclass(frozen=True, slots=True)
class _Logs:
    root: Path
    paths: tuple[Path, ...]
    longest: int
    expand_mb: int
    _expanded: dict[Path, tempfile._TemporaryFileWrapper[bytes]] = field(default_factory=dict)

    def items(self) -> Iterator[Item | Fault]:
        for path in self.paths:
            name, number = path.relative_to(self.root).as_posix(), 0
            with self._open(path) as stream:
                while line := stream.readline(self.longest + 1):
                    number += 1
                    place = stream.tell() - len(line)
                    if len(line) > self.longest:
                        yield Fault(
                            f"{name}, line {number}",
                            f"longer than {self.longest >> 20} MiB; raise line_mb if it should be",
                        )
                        while line and not line.endswith(b"\n"):
                            line = stream.readline(1 << 20)
                    elif line.strip():
                        yield self._item(line, path, place, f"{name}, line {number}")

    def files(self) -> Iterator[Path]:
        return iter(self.paths)

    def _item(self, line: bytes, path: Path, place: int, where: str) -> Item | Fault:
        try:
            entry = _parse(line)
        except ValueError as error:
            return Fault(where, str(error))
        record = {key: int(value) if isinstance(value, bool) else value for key, value in entry.items()}
        record = {key: value for key, value in record.items() if key != "inputs" and value is not None}
        if wrong := records.problem(record):
            return Fault(where, wrong)
        identity = str(record["id"])
        return Item({**record, "id": identity}, partial(self._read, path, place, identity))

    def _read(self, path: Path, place: int, identity: str) -> Fields:
        with self._open(path) as stream:
            stream.seek(place)
            line = stream.readline(self.longest + 1)
        try:
            entry = _parse(line)
        except ValueError:
            entry = {}
        if str(entry.get("id")) != identity:
            raise DataError(
                f"{path} has changed while it was read: sample '{identity}' is not where it was; start again"
            )
        return {
            name: _input(value, path.parent, f"sample '{identity}': input '{name}'")
            for name, value in entry["inputs"].items()
        }

    def _open(self, path: Path) -> IO[bytes]:
        """Open a log for reading; one that is packed is expanded first."""
        try:
            if path.suffix != ".gz":
                return path.open("rb")
            if path not in self._expanded:
                self._expanded[path] = self._expand(path)
            return open(self._expanded[path].name, "rb")
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{path} cannot be read ({error}); it may be truncated: write it again, or leave it out"
            ) from error

    def _expand(self, path: Path) -> tempfile._TemporaryFileWrapper[bytes]:
        packed = path.stat().st_size
        target = tempfile.NamedTemporaryFile(prefix="calib-", suffix=".jsonl")  # noqa: SIM115  # lives as long as the source
        with gzip.open(path) as source:
            expand.copy(source, target, lambda size: expand.check(size, packed, self.expand_mb, str(path)))
        return target


def _parse(line: bytes) -> dict[str, Any]:
    """Return a line's object.

    Raises:
        ValueError: it is none, or has no inputs.
    """
    try:
        entry = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 ({error.reason} at byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__}, not an object with id and inputs")
    inputs = entry.get("inputs")
    if not isinstance(inputs, dict) or not inputs:
        raise ValueError('no "inputs": an object with an entry for each input is needed')
    return entry


def _input(value: Any, folder: Path, where: str) -> npt.NDArray[np.generic]:
    if not isinstance(value, dict) or ("path" in value) == ("data" in value):
        raise DataError(f'{where} must be an object with either "path" or "data"')
    if unknown := value.keys() - {"path", "data", "dtype", "shape"}:
        raise DataError(f"{where} has the unknown key '{min(unknown)}'; known are path, data, dtype, shape")
    try:
        if "path" in value:
            return _file(value["path"], folder, where)
        return _inline(value["data"], value.get("dtype"), value.get("shape"))
    except (ValueError, TypeError, OverflowError, RuntimeError, OSError) as error:  # a loop of links is a RuntimeError
        raise DataError(f"{where}: {error}") from error


def _file(path: Any, folder: Path, where: str) -> npt.NDArray[np.generic]:
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"path must be text, not {path!r}")
    found = files.inside(folder, path, lambda message: DataError(f"{where}: {message}, the log's folder"))
    if not found.is_file():
        raise DataError(f"{where}: {found} does not exist or is no file")
    return np.array(npy.read_npy(found)) if found.suffix == ".npy" else decode(found, where)


def _inline(data: Any, dtype: Any, shape: Any) -> npt.NDArray[np.generic]:
    """Return an array of lists, or of base64; ValueError says what is wrong."""
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    if shape is not None and not (isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)):
        raise ValueError(f"shape must be a list of sizes, not {shape!r}")
    if isinstance(data, str):
        if dtype is None or shape is None:
            raise ValueError("base64 data needs dtype and shape")
        try:
            stored = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"data is not base64 ({error})") from error
        kind = np.dtype(dtype).newbyteorder("<")
        if len(stored) != math.prod(shape) * kind.itemsize:
            raise ValueError(
                f"data has {len(stored)} bytes, and {dtype} {shape} needs {math.prod(shape) * kind.itemsize}"
            )
        return np.frombuffer(stored, kind).reshape(shape).astype(dtype)
    array = np.asarray(data)
    if array.dtype.kind not in "biuf":
        raise ValueError("data holds something that is no number, or an integer above 64 bits")
    if dtype is None:
        dtype = "float32" if array.dtype.kind == "f" else array.dtype.name
    if array.dtype.kind == "f" and np.dtype(dtype).kind != "f":
        raise ValueError(f"data holds fractions, and dtype is {dtype}")
    with np.errstate(over="ignore"):  # Inf is found where the set is written
        array = np.asarray(data, dtype)
    return array if shape is None else array.reshape(shape)
