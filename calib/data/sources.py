"""Sources: where samples come from. A source is the user's object; this is what calib asks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from calib import config
from calib.errors import CalibError, ConfigError, DataError


@runtime_checkable
class Source(Protocol):
    """A collection of samples that can be read by position."""

    def metadata(self) -> Sequence[Mapping[str, str | int | float]]:
        """Return one flat record a sample: a unique "id", and whatever else is known (device, site, right answer)."""
        ...

    def inputs(self, index: int) -> Mapping[str, npt.NDArray[np.generic]]:
        """Return the model-ready inputs of one sample by input name, without the batch dimension."""
        ...


def open_source(reference: str, options: Mapping[str, Any], base: Path) -> Source:
    """Call the factory that `reference` names ("path/file.py:function", relative to `base`) with the options.

    Raises:
        ConfigError: no such factory, options that it does not take, or a result that is not a Source.
        DataError: the factory fails; the user's error is in the message.
    """
    factory = config.resolve(reference, base)
    try:
        source = factory(**options)
    except CalibError:
        raise
    except TypeError as error:
        raise ConfigError(f"source {reference} does not take these options: {error}") from error
    except Exception as error:  # the user's code may raise anything
        raise DataError(f"source {reference} failed: {type(error).__name__}: {error}") from error
    if not isinstance(source, Source):
        raise ConfigError(f"source {reference} gave a {type(source).__name__} without metadata() and inputs(index)")
    return source


def records(source: Source) -> list[dict[str, str | int | float]]:
    """Return the source's metadata.

    Raises:
        DataError: it is empty, the user's code fails, or a record has no id, a repeated one, or a value that is not text
            or a number.
    """
    try:
        result = [dict(record) for record in source.metadata()]
    except Exception as error:  # the user's code may raise anything
        raise DataError(f"the source's metadata() failed: {type(error).__name__}: {error}") from error
    if not result:
        raise DataError("the source holds no samples")
    seen: set[str] = set()
    for number, record in enumerate(result):
        identity = str(record.get("id", ""))
        if not identity:
            raise DataError(f"record {number} of the source has no 'id'")
        if identity in seen:
            raise DataError(f"the source has two samples with id '{identity}'")
        seen.add(identity)
        for key, value in record.items():
            if not isinstance(value, (str, int, float)):
                raise DataError(
                    f"sample '{identity}': metadata '{key}' is a {type(value).__name__}, not text or a number"
                )
            if isinstance(value, float) and not math.isfinite(value):
                raise DataError(f"sample '{identity}': metadata '{key}' is {value}; use text for what is not known")
    return result


def inputs(source: Source, index: int, identity: str) -> dict[str, npt.NDArray[np.generic]]:
    """Return one sample's inputs as arrays.

    Raises:
        DataError: the user's code fails on it; the message names the sample.
    """
    try:
        result = {name: np.asarray(array) for name, array in source.inputs(index).items()}
    except Exception as error:  # the user's code may raise anything
        raise DataError(f"sample '{identity}' cannot be read: {type(error).__name__}: {error}") from error
    for name, array in result.items():
        if array.dtype.kind not in "biuf":
            raise DataError(f"sample '{identity}': input '{name}' has dtype {array.dtype}, which is not a number's")
    return result
