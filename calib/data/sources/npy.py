"""Arrays in .npy and .npz files, mapped where they lie: nothing is read before its row is asked for.

Members of an .npz that are stored are mapped in place, and their checksum is not compared: that would read them all.
Compressed members are expanded once into temporary files, which are mapped.
"""

from __future__ import annotations

import contextlib
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from calib.data.sources import expand
from calib.errors import DataError

Array = npt.NDArray[np.generic]

_LOCAL_HEADER = 30


def read_npy(path: Path) -> Array:
    """Map a .npy file.

    Raises:
        DataError: it is not one, is truncated, or holds pickled objects.
    """
    with _readable(path), path.open("rb") as file:
        return _map(file, 0, path.stat().st_size, str(path))


def read_npz(path: Path, expand_mb: int) -> dict[str, Array]:
    """Map every member of an .npz file.

    Args:
        path: of the file.
        expand_mb: compressed members may have this size together, whatever their ratio.

    Raises:
        DataError: it is not an .npz, is truncated, has members that overlap, are named like paths, declare another size
            than they have or would expand like a zip bomb, or holds pickled objects.
    """
    with _readable(path), path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        for name in (member.filename for member in members):
            if not name.endswith(".npy") or set(name.split("/")) & {"", ".", ".."} or set(name) & set("\\:\0"):
                raise DataError(
                    f"{path}: member '{name[:100]}' is not an array with a plain name; write it by numpy.savez"
                )
        if len({member.filename for member in members}) < len(members):
            raise DataError(f"{path} holds two members of the same name; write it by numpy.savez")
        starts = _starts(file, archive, members, str(path))
        compressed = [member for member in members if member.compress_type != zipfile.ZIP_STORED]
        size, packed = (
            sum(sizes) for sizes in ([m.file_size for m in compressed], [m.compress_size for m in compressed])
        )
        expand.check(size, packed, expand_mb, str(path))
        arrays = {}
        for member in members:
            name = member.filename.removesuffix(".npy")
            where = f"{path}, array '{name}'"
            if member.compress_type == zipfile.ZIP_STORED:
                arrays[name] = _map(file, starts[member.filename], member.file_size, where)
            else:
                arrays[name] = _expanded(archive, member, where)
        return arrays


def _starts(file: IO[bytes], archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], where: str) -> dict[str, int]:
    """Return where each member's data begins; no two may share bytes."""
    starts: dict[str, int] = {}
    end = 0
    for member in sorted(members, key=lambda member: member.header_offset):
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or header[:4] != b"PK\3\4":
            raise DataError(f"{where} is damaged: member '{member.filename}' is not where its directory says")
        name, extra = struct.unpack("<HH", header[26:30])
        start = member.header_offset + _LOCAL_HEADER + name + extra
        if member.header_offset < end:
            raise DataError(f"{where}: member '{member.filename}' overlaps another, as in a zip bomb; it is not read")
        end = start + member.compress_size
        if end > archive.start_dir:
            raise DataError(f"{where} is damaged: member '{member.filename}' is longer than its file")
        if member.flag_bits & 1:
            raise DataError(f"{where}: member '{member.filename}' is encrypted, which is not supported")
        if member.compress_type == zipfile.ZIP_STORED and member.compress_size != member.file_size:
            raise DataError(f"{where} is damaged: member '{member.filename}' has two sizes")
        starts[member.filename] = start
    return starts


def _expanded(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str) -> Array:
    with archive.open(member) as stream:
        _header(stream, member.file_size, where)  # before anything is written
    with archive.open(member) as stream, expand.temporary(where) as target:
        size = expand.copy(stream, target, lambda size: _expect(size <= member.file_size, where))
        _expect(size == member.file_size, where)
        return _map(target, 0, size, where)


def _expect(sizes_agree: bool, where: str) -> None:
    if not sizes_agree:
        raise DataError(f"{where} has another size than it declares: the file is damaged or forged")


def _header(stream: IO[bytes], size: int, where: str) -> tuple[int, tuple[int, ...], bool, np.dtype[Any]]:
    """Read a .npy header; return its length, the shape, the order and the dtype of what follows."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise DataError(f"{where} has .npy version {version}, which numbers do not need; save it by numpy.save")
    if dtype.hasobject:
        raise DataError(f"{where} holds pickled Python objects, which are never loaded; save numbers or text")
    length = stream.tell()
    if dtype.kind not in "biufUSM" or min(shape, default=0) < 0:
        raise DataError(f"{where} has dtype {dtype} and shape {shape}; arrays of numbers, text or dates are read")
    declared = length + math.prod(shape) * dtype.itemsize
    if declared != size:
        raise DataError(
            f"{where} declares {dtype} {list(shape)}, {declared:,} bytes, and has {size:,}: it is truncated or damaged"
        )
    return length, shape, fortran, dtype


def _map(file: IO[bytes], start: int, size: int, where: str) -> Array:
    file.seek(start)
    length, shape, fortran, dtype = _header(_Part(file, start), size, where)  # type: ignore[arg-type]  # read and tell
    if not math.prod(shape) * dtype.itemsize:
        return np.empty(shape, dtype)
    return np.memmap(file, dtype, "r", start + length, shape, "F" if fortran else "C")


class _Part:
    """What follows a place in a file, as a file of its own."""

    def __init__(self, file: IO[bytes], start: int) -> None:
        self._file, self._start = file, start

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def tell(self) -> int:
        return self._file.tell() - self._start


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, EOFError, TypeError, NotImplementedError, RuntimeError) as error:
        raise _unreadable(path, error) from error
    except (zipfile.BadZipFile, zlib.error, struct.error, SyntaxError, MemoryError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: BaseException) -> DataError:
    if path.is_file() and path.stat().st_size == 0:
        return DataError(f"{path} is empty; write it again, or leave it out")
    return DataError(f"{path} is not a readable {path.suffix} file ({error}); write it again, or leave it out")
