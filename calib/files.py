"""Files that are whole or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib.errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block ends well, remove it otherwise.

    Raises:
        DataError: the place cannot be written to.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if temporary.is_dir() and path.is_dir():
            shutil.rmtree(path)
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another place") from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        elif temporary.parent.is_dir():
            temporary.unlink(missing_ok=True)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, unless it exists.

    Raises:
        DataError: it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"folder {path} cannot be made ({error.strerror}); choose another place") from error


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, kind: str, version: int, content: Mapping[str, Any]) -> None:
    """Write a JSON file that carries its format and version; keys keep their order."""
    document = {"format": kind, "version": version, **content}
    write_text(path, json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def read_json(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Read a JSON file that `write_json` wrote.

    Raises:
        DataError: the file is missing, not JSON, of another format, or of another version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is not readable as JSON ({error})") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != kind:
        raise DataError(f"{path} is not a {kind} file" + (f" but a {found} file" if found else ""))
    if document.get("version") != version:
        raise DataError(f"{path} has version {document.get('version')} and this calib reads {version}; make it again")
    return dict(document)


def write_npz(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    """Write a compressed npz; the same arrays give the same bytes."""
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)


def read_npz(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    """Read every array of an npz; pickled objects are refused.

    Raises:
        DataError: the file is missing, truncated or not an npz of plain arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise DataError(f"{path} does not exist") from None
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} is not a readable npz file ({error}); it may be truncated: delete it and make it again"
        ) from error


def sha256(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def inside(root: Path, relative: str, error: Callable[[str], Exception]) -> Path:
    """Return root / relative.

    Raises:
        Exception: what `error` makes of the message, when the path leaves `root`, also through a link.
    """
    path = (root / relative).resolve()
    if not path.is_relative_to(root.resolve()):
        raise error(f"path '{relative}' leaves {root}")
    return path
