"""Frozen dataclasses back from the JSON that `dataclasses.asdict` made of them."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def decode(document: dict[str, Any], cls: type[T]) -> T:
    """Return the dataclass that a parsed JSON object holds, field by field; nested ones, tuples and dicts too.

    Raises:
        KeyError, TypeError, AttributeError: it does not hold one.
    """
    return typing.cast(T, _read(document, cls))


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
