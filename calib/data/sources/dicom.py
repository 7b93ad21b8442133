"""DICOM folders. Nothing that identifies a patient leaves this module.

Ids are digests of the file's bytes; no path, UID, date, name or free text of the header is in a record, a field, a fault
or an error. What metadata is let through is a list of the few columns that PS3.15's basic profile keeps. Pixels are not
searched for burned-in text, but files that declare it are refused unless the recipe allows them.

A message names a file as "file 17 of the folder": `find FOLDER ! -type d | LC_ALL=C sort | sed -n 17p` prints its path.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from calib import files
from calib.data.source import Fault, Fields, Item, Record
from calib.data.sources import folder as folders
from calib.data.sources.dicom_pixels import COLOUR, GRAY, MAX_PIXELS, Refused, Window, pixels
from calib.errors import ConfigError, DataError, MissingDependencyError

T = TypeVar("T")

SUFFIXES = (".dcm", ".dicom", ".dic", ".ima")
"""A file with one of these, or without a suffix of letters, must be DICOM; any other only counts if it has the mark."""

_CODE = re.compile(r"[A-Z0-9_ ]{1,16}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .,_/()&+-]{0,63}")
_COLUMNS = {
    "modality": ("Modality", _CODE),
    "manufacturer": ("Manufacturer", _LABEL),
    "model": ("ManufacturerModelName", _LABEL),
    "body_part": ("BodyPartExamined", _CODE),
    "view": ("ViewPosition", _CODE),
}
"""Column: keyword, and what its values look like; anything else becomes "". Names contain "^", which neither allows."""

_PATIENT = ("PatientID", "IssuerOfPatientID"), ("PatientName", "PatientBirthDate"), ("StudyInstanceUID",)
"""What tells patients apart: the first of these that a file fills in."""

_HEADER = [
    *(keyword for keyword, _ in _COLUMNS.values()),
    *(keyword for keywords in _PATIENT for keyword in keywords),
    *("Rows", "Columns", "BitsStored", "NumberOfFrames", "PhotometricInterpretation", "BurnedInAnnotation"),
]
_DIRECTORY = "1.2.840.10008.1.3.10"
_DEFLATED = "1.2.840.10008.1.2.1.99"


@dataclass(frozen=True, slots=True)
class DicomFolder:
    """The frames of every DICOM image below a folder.

    Attributes:
        folder: resolved.
        window: which values become 0..1, see `dicom_pixels.pixels`.
        burned_in: whether files that declare burned-in annotations are read.
    """

    folder: Path
    window: Window | int | None
    burned_in: bool

    def items(self) -> Iterator[Item | Fault]:
        """Yield every frame once; memory grows by a digest a patient and study."""
        patients: dict[str, str] = {}
        studies: dict[str, str] = {}
        for number, found in enumerate(folders.walk(self.folder), 1):
            if not _is_candidate(found):
                continue
            where = f"file {number} of the DICOM folder, sorted by path"
            if found.problem:
                yield Fault(where, found.problem)
                continue
            header = _guarded(functools.partial(_header, found.path, self.burned_in))
            if isinstance(header, str):
                yield Fault(where, header)
                continue
            if header is None:
                continue
            record = {
                **header.record,
                "patient": patients.setdefault(header.patient, f"patient-{header.content[:12]}"),
                "study": studies.setdefault(header.study, f"study-{header.content[:12]}"),
            }
            for frame in range(header.frames):
                identity = f"dicom-{header.content[:16]}" + (f"-{frame + 1}" if header.frames > 1 else "")
                read = _Read(found.path, frame, self.window, header.syntax, f"sample '{identity}' ({where})")
                yield Item({"id": identity, **record, "frame": frame + 1}, read)

    def files(self) -> Iterator[Path]:
        """Yield every file that is or should be DICOM; their names may identify a patient and are not to be stored."""
        for found in folders.walk(self.folder):
            if not found.problem and _is_candidate(found):
                yield found.path


def open_dicom(base: Path, *, folder: str, window: Any = "", burned_in: bool = False) -> DicomFolder:
    """Open the DICOM images of a folder: field "image", id "dicom-<16 hex>[-frame]", group columns "patient" and "study".

    Files without pixels, damaged ones and those that need a plug-in of pydicom are faults or errors. DICOMDIR indexes,
    hidden files, and files of other kinds by their suffix are no samples. Patients are told apart by their id, else by
    name and birth date, else by study. A patient is labelled by the digest of the first file found, so that labels say
    nothing of who it is and stay when others join.

    Args:
        base: what `folder` is relative to.
        folder: of the files, at any depth.
        window: [center, width] in the unit after rescale (HU), the number of the stored window (from 0), or "" for
            the stored VOI LUT or first window; without either, pixels of more than 8 bits are an error.
        burned_in: read files whose header declares annotations burned into the pixels.

    Raises:
        ConfigError: the folder or the window is wrong.
        MissingDependencyError: pydicom is not installed.
    """
    try:
        import pydicom  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError("the source 'dicom' needs pydicom: pip install 'calib[data]'") from error
    return DicomFolder(folders.root(base, folder), _window(window), burned_in)


@dataclass(frozen=True, slots=True)
class _Header:
    content: str
    syntax: str
    patient: str
    study: str
    frames: int
    record: Record


@dataclass(frozen=True, slots=True)
class _Read:
    path: Path = field(repr=False)
    frame: int
    window: Window | int | None
    syntax: str
    where: str

    def __call__(self) -> Fields:
        """Decode the frame."""
        image = _guarded(self._decode)
        if isinstance(image, str):
            raise DataError(f"{self.where} {image}")
        return {"image": image}

    def _decode(self) -> npt.NDArray[np.generic]:
        with self.path.open("rb") as stream:
            return pixels(stream, self.frame, self.window, self.syntax)


def _window(window: Any) -> Window | int | None:
    if window == "" and isinstance(window, str):
        return None
    if isinstance(window, int) and not isinstance(window, bool) and window >= 0:
        return window
    if (
        isinstance(window, (list, tuple))
        and len(window) == 2
        and all(type(number) in (int, float) for number in window)
    ):
        center, width = map(float, window)
        if math.isfinite(center) and math.isfinite(width) and width >= 1:
            return Window(center, width)
    raise ConfigError(
        f'window must be [center, width] with a width of at least 1, the number of a stored window, or "", not {window!r}'
    )


def _guarded(read: Callable[[], T]) -> T | str:
    """Return what `read` gives, or why there is nothing: an error of pydicom holds header values and ends here."""
    with _quiet():
        try:
            return read()
        except Refused as refused:
            return str(refused)
        except OSError as error:
            return f"cannot be read ({error.strerror or type(error).__name__}); repair its permissions or remove it"
        except Exception as error:  # pydicom raises anything on damaged data
            return f"is damaged: pydicom cannot read it ({type(error).__name__}); repair or remove it"


def _header(path: Path, burned_in: bool) -> _Header | None:
    """Read what is let through of a file, and None of an index.

    Raises:
        Refused: it holds no image that can be read.
    """
    from pydicom import dcmread
    from pydicom.filereader import read_file_meta_info

    if not _has_mark(path):
        raise Refused("is not a DICOM file ('DICM' is not at byte 128); convert it, or move it out of the folder")
    meta = read_file_meta_info(path)
    if meta.get("MediaStorageSOPClassUID") == _DIRECTORY:
        return None
    syntax = _syntax(meta.get("TransferSyntaxUID"))
    dataset = dcmread(path, stop_before_pixels=True, specific_tags=list(_HEADER))
    rows, columns = int(dataset.get("Rows") or 0), int(dataset.get("Columns") or 0)
    if not rows or not columns:
        raise Refused("holds no image (a report, plan, structure, waveform or index); move it out of the folder")
    frames = int(dataset.get("NumberOfFrames") or 1)
    if rows * columns > MAX_PIXELS or not 1 <= frames <= path.stat().st_size:
        raise Refused(f"claims more than {MAX_PIXELS:,} pixels a frame, or more frames than bytes; repair or remove it")
    if str(dataset.get("BurnedInAnnotation", "")).strip().upper() == "YES" and not burned_in:
        raise Refused(
            "declares annotations burned into its pixels, which may identify the patient: mask them, "
            "or set burned_in = true in the recipe's [options]"
        )
    record: dict[str, str | int] = {
        name: _text(dataset.get(keyword), pattern) for name, (keyword, pattern) in _COLUMNS.items()
    }
    photometric = str(dataset.get("PhotometricInterpretation", ""))
    record["photometric"] = photometric if photometric in GRAY + COLOUR else ""
    record |= {"rows": rows, "columns": columns, "bits": int(dataset.get("BitsStored") or 0)}
    content = files.sha256(path)
    study = _digest(str(dataset.get("StudyInstanceUID") or content))
    groups = ([str(dataset.get(keyword) or "").strip() for keyword in keywords] for keywords in _PATIENT)
    patient = next((_digest(*values) for values in groups if values[0]), study)
    return _Header(content, syntax, patient, study, frames, record)


def _syntax(syntax: Any) -> str:
    """Return the name of a transfer syntax that can be decoded here; "" where it compresses nothing."""
    from pydicom.pixels.decoders.base import get_decoder
    from pydicom.uid import UID

    if not syntax:
        raise Refused(
            "does not say its transfer syntax, which decides how pixels are read; repair its file meta header"
        )
    name = UID(syntax).name
    if name == syntax:  # pydicom knows no name for it
        raise Refused("has a transfer syntax that is not DICOM's (a private one); convert it")
    if syntax == _DEFLATED:
        raise Refused("is deflated as a whole, which can expand to any size; convert it to Explicit VR Little Endian")
    try:
        available = get_decoder(syntax).is_available
    except NotImplementedError:
        raise Refused(
            f"has the transfer syntax '{name}', which pydicom does not decode to images; convert it"
        ) from None
    if not available:
        raise Refused(
            f"has the transfer syntax '{name}', which needs a plug-in: pip install pylibjpeg[all], or convert the file"
        )
    return name if UID(syntax).is_compressed else ""


def _text(value: Any, pattern: re.Pattern[str]) -> str:
    text = value.strip() if isinstance(value, str) else ""
    return text if pattern.fullmatch(text) else ""


def _digest(*values: str) -> str:
    return hashlib.sha256("\0".join(values).encode("utf-8", "surrogatepass")).hexdigest()


def _is_candidate(found: folders.Found) -> bool:
    suffix = found.path.suffix.lower()
    by_name = suffix in SUFFIXES or not suffix[1:].isalpha()
    return not found.hidden and (by_name or (not found.problem and _has_mark(found.path)))


def _has_mark(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(132)[128:] == b"DICM"
    except OSError:
        return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep pydicom's warnings and the logs of all its modules silent: they quote header values."""
    logger = logging.getLogger("pydicom")
    before = logger.propagate, logger.handlers
    logger.propagate, logger.handlers = False, [logging.NullHandler()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.propagate, logger.handlers = before
