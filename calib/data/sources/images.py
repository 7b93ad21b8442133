"""Image folders, and the one way in which every source decodes an image."""

from __future__ import annotations

import csv
import functools
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from calib.data.source import Fault, Fields, Item
from calib.data.sources import folder as folders
from calib.data.sources.records import plain
from calib.errors import ConfigError, DataError

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded (a JPEG may turn out to be MPO); not all that Pillow knows, for EPS would run Ghostscript on the data."""

MAX_PIXELS = 100_000_000
"""Larger images are refused before they are decoded: a small file can claim any size."""


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(kind for kind in FORMATS if kind in Image.OPEN)  # older Pillows lack AVIF


@functools.cache
def suffixes() -> frozenset[str]:
    """Return the suffixes of files in these formats."""
    return frozenset(suffix for suffix, kind in Image.registered_extensions().items() if kind in (*FORMATS, "MPO"))


def decode(source: bytes | Path, where: str) -> npt.NDArray[np.generic]:
    """Decode an image to RGB uint8 [H, W, 3], gray uint8 [H, W], or 16-bit gray uint16 [H, W].

    EXIF orientation is applied. Palettes, YCbCr and CMYK become RGB (Pillow's conversion; colour profiles are ignored);
    transparency is laid over white; black and white is gray of 0 and 255. 16-bit gray keeps its values, 16-bit colour
    its high bytes. Of a camera's multi-picture JPEG the first picture counts; other files of several pictures are
    refused, so are more than `MAX_PIXELS`, 32-bit pixels and Lab.

    Args:
        source: the file's bytes, or its path.
        where: begins every error message.

    Raises:
        DataError: it is none of `FORMATS`, damaged, truncated, or refused as said above.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow: what matters is an error here
            with Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=_formats()) as image:
                return _decode(image, where)
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(f"{where} is not an image ({', '.join(FORMATS)}), or is damaged: repair or remove it") from None
    except Image.DecompressionBombError:
        raise DataError(f"{where} {_TOO_LARGE}") from None
    except Exception as error:  # decoders of damaged data raise OSError, SyntaxError, ValueError, struct.error and more
        raise DataError(
            f"{where} cannot be decoded ({type(error).__name__}: {error}); it may be truncated: repair or remove it"
        ) from error


_TOO_LARGE = f"claims more than {MAX_PIXELS:,} pixels; make it smaller or remove it"


def _decode(image: Image.Image, where: str) -> npt.NDArray[np.generic]:
    if image.width * image.height > MAX_PIXELS:
        raise DataError(f"{where} {_TOO_LARGE}")
    pictures = getattr(image, "n_frames", 1)
    if pictures > 1 and image.format != "MPO":
        raise DataError(f"{where} holds {pictures} pictures and a sample is one; split it into files")
    deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM", "JPEG2000"))
    image = ImageOps.exif_transpose(image)
    if deep:
        return np.array(image).astype(np.uint16)
    if image.mode in ("I", "F", "LAB"):
        raise DataError(f"{where} has {image.mode} pixels; save it with 8 or 16 bits of gray, or as RGB")
    gray = image.mode in ("1", "L", "LA", "La")
    if not image.has_transparency_data:
        return np.array(image.convert("L" if gray else "RGB"))
    pixels = np.array(image.convert("LA" if gray else "RGBA")).astype(np.uint32)
    colour, alpha = pixels[..., :-1], pixels[..., -1:]
    laid = ((colour * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)
    return laid[..., 0] if gray else laid


@dataclass(frozen=True, slots=True)
class ImageFolder:
    """The images of a folder at any depth, or those that a table lists.

    Attributes:
        folder: resolved.
        table: CSV or JSONL, a sample a line; None when the samples are the files.
        key: the table's column with the path below the folder.
    """

    folder: Path
    table: Path | None
    key: str

    def items(self) -> Iterator[Item | Fault]:
        """Yield every image once, in the order of paths, or of the table's lines."""
        found = False
        for item in self._listed(self.table) if self.table else self._found():
            found = True
            yield item
        if not found:
            raise DataError(f"{self.table or self.folder} holds no images ({', '.join(sorted(suffixes()))})")

    def files(self) -> Iterator[Path]:
        """Yield the table, and every image."""
        if self.table:
            yield self.table
            lines = (line for line in _lines(self.table) if not isinstance(line, Fault))
            paths = (self.folder / str(line.columns.get(self.key, "")) for line in lines)
            yield from (path for path in paths if not folders.refuse(path, self.folder))
        else:
            yield from (found.path for found in folders.walk(self.folder) if _is_image(found) and not found.problem)

    def _found(self) -> Iterator[Item | Fault]:
        for found in folders.walk(self.folder):
            if found.problem or not _utf8(found.relative):
                reason = found.problem or "has a name that is not UTF-8; rename it"
                if _is_image(found) or not (found.hidden or found.path.suffix):
                    yield Fault(os.fsencode(found.relative).decode("utf-8", "backslashreplace"), reason)
            elif _is_image(found):
                yield self._item(found.relative, {})

    def _listed(self, table: Path) -> Iterator[Item | Fault]:
        for line in _lines(table):
            if isinstance(line, Fault):
                yield line
                continue
            if "id" in line.columns or self.key not in line.columns:
                problem = "has a column 'id', which is the path here; rename it"
                missing = f"has no column '{self.key}' with the image's path; the option key names it"
                raise DataError(f"{line.where} {problem if 'id' in line.columns else missing}")
            text = str(line.columns[self.key])
            problem = _unfit(text) or folders.refuse(self.folder / text, self.folder)
            if problem:
                yield Fault(line.where, f"the image '{text}' {problem}")
            else:
                columns = {name: value for name, value in line.columns.items() if name != self.key}
                yield self._item(str(PurePosixPath(text)), columns)

    def _item(self, relative: str, columns: Mapping[str, str | int | float]) -> Item:
        path = self.folder / relative
        parent = PurePosixPath(relative).parent.name

        def read() -> Fields:
            problem = folders.refuse(path, self.folder)
            if problem:
                raise DataError(f"image '{relative}' {problem}")
            return {"image": decode(path, f"image '{relative}'")}

        return Item({"id": relative, "folder": parent, **columns}, read)


def open_images(base: Path, *, folder: str, metadata: str = "", key: str = "path") -> ImageFolder:
    """Open the images of a folder: field "image", id = path below the folder, column "folder" = the parent's name.

    Hidden files and files of other kinds are no samples. With `metadata` the samples are the lines of a CSV or JSONL
    table, in its order; its other columns are metadata, a CSV's as text.

    Args:
        base: what paths are relative to.
        folder: of the images.
        metadata: path of the table; "" for none.
        key: column of the table that holds the path below the folder.

    Raises:
        ConfigError: the folder or the table does not exist.
    """
    if not isinstance(metadata, str) or not isinstance(key, str):
        raise ConfigError(f"metadata and key must be text, not {metadata!r} and {key!r}")
    table = (base / metadata).resolve() if metadata else None
    if table and (table.suffix.lower() not in (".csv", ".jsonl") or not table.is_file()):
        raise ConfigError(f"metadata: {table} must be a .csv or .jsonl file that exists")
    return ImageFolder(folders.root(base, folder), table, key)


@dataclass(frozen=True, slots=True)
class _Line:
    where: str
    columns: dict[str, str | int | float]


def _lines(table: Path) -> Iterator[_Line | Fault]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:
            if table.suffix.lower() == ".csv":
                reader = csv.DictReader(stream, strict=True)
                for row in reader:
                    where = f"{table.name}, line {reader.line_num}"
                    complete = None not in row and None not in row.values()
                    yield _Line(where, dict(row)) if complete else Fault(where, "has not as many cells as the header")
            else:
                for number, text in enumerate(stream, 1):
                    if text.strip():
                        yield _json_line(f"{table.name}, line {number}", text)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table} cannot be read ({error}); write it as UTF-8 {table.suffix[1:].upper()}") from error


def _json_line(where: str, text: str) -> _Line | Fault:
    try:
        columns: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Fault(where, f"is not JSON ({error})")
    if not isinstance(columns, dict):
        return Fault(where, "is not a JSON object")
    known = {name: plain(value) for name, value in columns.items() if value is not None}
    unfit = [name for name, value in known.items() if value is None]
    return Fault(where, f"column '{unfit[0]}' is neither text nor a finite number") if unfit else _Line(where, known)


def _unfit(text: str) -> str:
    path = PurePosixPath(text)
    if not text or "\0" in text or not path.parts:
        return "is not a path"
    return "leaves the folder; paths are below it" if path.is_absolute() or ".." in path.parts else ""


def _is_image(found: folders.Found) -> bool:
    return not found.hidden and found.path.suffix.lower() in suffixes()


def _utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
