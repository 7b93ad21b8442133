"""TOML files as frozen dataclasses, strictly: an unknown key is an error, with a guess at what was meant."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import importlib.util
import sys
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from calib.errors import ConfigError

T = TypeVar("T")


def load(path: Path, cls: type[T]) -> T:
    """Read a TOML file into the frozen dataclass `cls`; nested dataclasses are tables, tuples are arrays.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown, missing or of the wrong type; the message names it.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return build(document, cls, str(path))


def build(table: dict[str, Any], cls: type[T], where: str) -> T:
    """Make the dataclass `cls` of a parsed TOML table; `where` begins every error message."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]  # cls is a dataclass
    for key in table:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(fields)}"
            raise ConfigError(f"{where}: unknown key '{key}'; {hint}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise ConfigError(f"{where}: key '{name}' is missing")
    values = {key: _convert(value, hints[key], f"{where}: {key}") for key, value in table.items()}
    try:
        return cls(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def resolve(reference: str, base: Path | None = None) -> Any:
    """Return the object that "package.module:attribute" or "path/file.py:attribute" names.

    Args:
        reference: the name; a path is relative to `base`.
        base: folder of the file that holds the reference; the current one by default.

    Raises:
        ConfigError: no such file, module or attribute, or importing it failed.
    """
    location, separator, attribute = reference.rpartition(":")
    if not separator or not location or not attribute:
        raise ConfigError(f"'{reference}' must be package.module:attribute or path/file.py:attribute")
    try:
        module = _load_file(location, base) if location.endswith(".py") else importlib.import_module(location)
        return getattr(module, attribute)
    except AttributeError as error:
        raise ConfigError(f"'{reference}': {location} has no attribute '{attribute}'") from error
    except ConfigError:
        raise
    except Exception as error:  # the user's module may raise anything while it is imported
        raise ConfigError(f"'{reference}' cannot be imported: {type(error).__name__}: {error}") from error


def code(reference: str, base: Path) -> bytes:
    """Return the user's code that "path/file.py:attribute" names, and nothing for any other reference.

    Raises:
        ConfigError: the file does not exist.
    """
    location = reference.rpartition(":")[0]
    if not location.endswith(".py"):
        return b""
    path = (base / location).resolve()
    if not path.is_file():
        raise ConfigError(f"'{reference}': {path} does not exist")
    return path.read_bytes()


def _load_file(location: str, base: Path | None) -> types.ModuleType:
    path = ((base or Path.cwd()) / location).resolve()
    if not path.is_file():
        raise ConfigError(f"{path} does not exist")
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    name = f"calib_user_{path.stem}_{content[:12]}"  # what was recorded of a file must be what runs
    if name in sys.modules and sys.modules[name].__file__ == str(path):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _convert(value: Any, hint: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _convert(value, next(a for a in arguments if a is not type(None)), where)
    if origin is typing.Literal:
        if value not in arguments:
            raise ConfigError(f"{where} must be {' or '.join(map(str, arguments))}, not {value!r}")
        return value
    if dataclasses.is_dataclass(hint):
        return build(_expect(value, dict, where), typing.cast(type[Any], hint), where)
    if origin is tuple:
        return tuple(
            _convert(item, arguments[0], f"{where}[{i}]") for i, item in enumerate(_expect(value, list, where))
        )
    if origin is dict:
        return {
            key: _convert(item, arguments[1], f"{where}.{key}") for key, item in _expect(value, dict, where).items()
        }
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value if hint is Any else _expect(value, hint, where)


def _expect(value: Any, kind: type[T], where: str) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        names = {
            dict: "a table",
            list: "an array",
            str: "a string",
            int: "an integer",
            float: "a number",
            bool: "true or false",
        }
        raise ConfigError(f"{where} must be {names.get(kind, kind.__name__)}, not {value!r}")
    return value
