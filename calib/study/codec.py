"""Reading and writing study.json: a StudyResult, field by field."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from calib import codec, files
from calib.errors import DataError
from calib.study.result import FORMAT_VERSION, StudyResult

FORMAT = "calib-study"


def save(result: StudyResult, path: Path) -> None:
    """Write study.json."""
    files.write_json(path, FORMAT, FORMAT_VERSION, dataclasses.asdict(result))


def load(path: Path) -> StudyResult:
    """Read study.json.

    Raises:
        DataError: not such a file, or not valid.
    """
    document = files.read_json(path, FORMAT, FORMAT_VERSION)
    document = {key: value for key, value in document.items() if key not in ("format", "version")}
    try:
        return codec.decode(document, StudyResult)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a valid study result ({type(error).__name__}: {error})") from error
