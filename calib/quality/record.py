"""quality.json: what was judged of a calibration set."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from calib import codec, files
from calib.errors import DataError
from calib.quality.result import Quality

FORMAT = "calib-quality"
FORMAT_VERSION = 1


def save(quality: Quality, path: Path) -> None:
    """Write quality.json."""
    files.write_json(path, FORMAT, FORMAT_VERSION, asdict(quality))


def load(path: Path) -> Quality:
    """Read quality.json.

    Raises:
        DataError: not such a file, or not valid.
    """
    document = files.read_json(path, FORMAT, FORMAT_VERSION)
    try:
        return codec.decode(
            {key: value for key, value in document.items() if key not in ("format", "version")}, Quality
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a valid judgement ({type(error).__name__}: {error}); judge again") from error
