"""Reading and writing study.json: a StudyResult, field by field."""

from __future__ import annotations

import dataclasses
import types
import typing
from pathlib import Path
from typing import Any

from calib import files
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
        return typing.cast(StudyResult, _read(document, StudyResult))
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not a valid study result ({type(error).__name__}: {error})") from error


def _read(value: Any, hint: Any) -> Any:
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return typing.cast(Any, hint)(**{key: _read(item, hints[key]) for key, item in value.items()})
    if origin is tuple:
        return tuple(_read(item, arguments[0]) for item in value)
    if origin is dict:
        return {key: _read(item, arguments[1]) for key, item in value.items()}
    if origin is types.UnionType:
        return None if value is None else _read(value, arguments[0])
    return value
