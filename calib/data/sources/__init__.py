"""Sources: where samples come from. Built-in ones by name, or the user's own object."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calib import config
from calib.data.source import Source
from calib.data.sources import user
from calib.data.sources.records import Checked
from calib.errors import ConfigError

BUILT_IN: Mapping[str, str] = {
    "images": "calib.data.sources.images:open_images",
    "arrays": "calib.data.sources.arrays:open_arrays",
    "parquet": "calib.data.sources.tables:open_parquet",
    "arrow": "calib.data.sources.tables:open_arrow",
    "datasets": "calib.data.sources.hub:open_datasets",
    "jsonl": "calib.data.sources.capture:open_jsonl",
    "dicom": "calib.data.sources.dicom:open_dicom",
}
"""Factories, imported when they are asked for: `open_x(base: Path, *, option: type = default, ...) -> Source`."""


def open_source(reference: str, options: Mapping[str, Any], base: Path) -> Source:
    """Open a built-in source by name, or the user's "path/file.py:factory" or "package.module:factory".

    Args:
        reference: name, or reference to a factory that takes the options.
        options: the recipe's; paths in them are relative to `base`.
        base: folder of the recipe.

    Returns:
        A source whose records and fields are checked as they pass.

    Raises:
        ConfigError: no such source, or options that it does not take.
        DataError: the data cannot be read, or the user's code fails; the user's error is in the message.
    """
    if reference in BUILT_IN:
        factory = config.resolve(BUILT_IN[reference])
        return Checked(factory(base, **_arguments(factory, options, f"source '{reference}', [options]")))
    if ":" not in reference:
        near = difflib.get_close_matches(reference, BUILT_IN, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(BUILT_IN)},"
        raise ConfigError(
            f"there is no source '{reference}'; {hint} or give package.module:attribute or path/file.py:attribute"
        )
    return Checked(user.open_user(reference, options, base))


def _arguments(factory: Callable[..., Source], options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Check options against the factory's keyword parameters and their types, as a TOML table is."""
    hints = typing.get_type_hints(factory)
    known = inspect.signature(factory).parameters.values()
    fields = [
        (parameter.name, hints[parameter.name])
        if parameter.default is parameter.empty
        else (parameter.name, hints[parameter.name], dataclasses.field(default=parameter.default))
        for parameter in sorted(known, key=lambda parameter: parameter.default is not parameter.empty)
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    form: type[Any] = dataclasses.make_dataclass("Options", fields)
    table = config.build(dict(options), form, where)
    return {name: getattr(table, name) for name in options}
