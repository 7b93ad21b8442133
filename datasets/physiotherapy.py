"""Windows of a smartwatch's motion during shoulder exercises, recorded from ten people: a medical signal for calib.

calib asks a source for two things: ``metadata()``, one flat record per sample, and ``inputs(index)``, the arrays of
one sample. :func:`windows` returns such a source. Nothing here imports calib.

The recordings are REAL, and come with the package seglearn; ``physiotherapy.md`` is their data card.
"""

import hashlib
import io
import pickle
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

PACKAGE, FILE = "seglearn", "seglearn/data/watch_dataset.npy"
SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"  # of seglearn 1.2.5's file

# What the pickle in the file may name: what numpy needs to rebuild an array, whose bytes are written as Python 2 did.
# Any other name in a pickle could run code.
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Arrays(pickle.Unpickler):
    """Reads arrays, numbers, text and their containers, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what a pickle names, if it is on the list."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is not needed to rebuild arrays")
        return super().find_class(module, name)


def _recordings(path: Path) -> Mapping[str, Any]:
    """The file's content, if it is the one that we know: X, y, y_labels, subject, side, X_labels."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise ValueError(f"{path} is not the file of seglearn 1.2.5 (its sha256 differs): install seglearn==1.2.5")
    stream = io.BytesIO(content)
    npy.read_magic(stream)
    npy.read_array_header_1_0(stream)
    recordings: Mapping[str, Any] = _Arrays(stream).load().item()
    return recordings


def _installed() -> Path:
    try:
        listed = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ValueError("the recordings come with seglearn: pip install --no-deps seglearn==1.2.5") from None
    for file in listed:
        if file.as_posix() == FILE:
            return Path(str(file.locate()))
    raise ValueError(f"the installed {PACKAGE} holds no {FILE}: pip install --no-deps seglearn==1.2.5")


class Windows:
    """Windows of equal length, cut from each recording."""

    def __init__(self, recordings: Mapping[str, Any], length: int, step: int) -> None:
        """Serve windows of ``length`` samples, one every ``step``; what is left at a recording's end is not used."""
        self._signals: Sequence[NDArray[np.float64]] = recordings["X"]
        self._length = length
        columns = (recordings[name].tolist() for name in ("y", "subject", "side"))
        self._places = [
            (series, start, str(recordings["y_labels"][exercise]), int(subject), "right" if side else "left")
            for series, (exercise, subject, side) in enumerate(zip(*columns, strict=True))
            for start in range(0, len(self._signals[series]) - length + 1, step)
        ]

    def metadata(self) -> Sequence[Mapping[str, str | int]]:
        """One record per window: id, subject, exercise (the right answer), side, series and start (in samples)."""
        return [
            {
                "id": f"series-{series:03d}-{start:04d}",
                "subject": f"{subject:02d}",
                "exercise": exercise,
                "side": side,
                "series": series,
                "start": start,
            }
            for series, start, exercise, subject, side in self._places
        ]

    def inputs(self, index: int) -> Mapping[str, NDArray[np.float32]]:
        """``x``: float32 [6, length], acceleration (g) and turning (rad/s) along three axes each, as recorded."""
        series, start = self._places[index][:2]
        return {"x": np.ascontiguousarray(self._signals[series][start : start + self._length].T, np.float32)}


def windows(length: int = 200, step: int = 100) -> Windows:
    """The source of all windows; 200 samples are 4 s."""
    return Windows(_recordings(_installed()), length, step)
