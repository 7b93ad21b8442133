"""What every source must hold to: records that are flat, with unique ids; fields that are numbers."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calib.data.source import Fault, Fields, Item, Record, Source
from calib.errors import DataError


def plain(value: Any) -> Any:
    """Return a stored scalar as record value: dates as ISO text, decimals as numbers, truth as 0 or 1.

    What is unknown (null, NaN) or no scalar comes back as None.
    """
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(np.datetime_as_string(value))
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float)) else None


def problem(record: Mapping[Any, Any]) -> str:
    """Return what is wrong with a record, "" if nothing is."""
    if not str(record.get("id", "")):
        return "no 'id'"
    for key, value in record.items():
        if not isinstance(key, str):
            return f"metadata key {key!r} is not text"
        if not isinstance(value, (str, int, float)):
            return f"metadata '{key}' is a {type(value).__name__}, not text or a number"
        if isinstance(value, float) and not math.isfinite(value):
            return f"metadata '{key}' is {value}; use text for what is not known"
        if isinstance(value, str) and not _encodes(value):
            return f"metadata '{key}' is not valid Unicode text"
        if isinstance(value, int) and value.bit_length() > 128:
            return f"metadata '{key}' is an integer of {value.bit_length()} bits"
    return ""


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair; no file could hold it
        return False
    return True


@dataclass(frozen=True, slots=True)
class Checked:
    """A source whose records and fields are checked as they pass; what is wrong with a record is a Fault.

    Ids are compared by 64-bit hashes: some 80 bytes a sample, and a wrong alarm once in 4e9 streams of 100,000.
    """

    source: Source

    def items(self) -> Iterator[Item | Fault]:
        """Yield the source's samples.

        Raises:
            DataError: there are none.
        """
        seen: set[int] = set()
        number = -1
        for number, item in enumerate(self.source.items()):
            if isinstance(item, Fault):
                yield item
                continue
            identity = str(item.record.get("id", ""))
            where = f"sample '{identity}'" if identity else f"record {number} of the source"
            if wrong := problem(item.record):
                yield Fault(where, wrong)
            elif hash(identity) in seen:
                yield Fault(where, f"the source has two samples with id '{identity}'")
            else:
                seen.add(hash(identity))
                yield Item({**item.record, "id": identity}, _Read(item, identity))
        if number < 0:
            raise DataError("the source holds no samples")

    def files(self) -> Iterator[Path]:
        """Yield the source's files."""
        return self.source.files()


@dataclass(frozen=True, slots=True)
class _Read:
    item: Item
    identity: str

    def __call__(self) -> Fields:
        """Return the sample's fields as arrays of numbers."""
        result = {name: np.asarray(array) for name, array in self.item.read().items()}
        if not result:
            raise DataError(f"sample '{self.identity}' has no inputs")
        for name, array in result.items():
            if array.dtype.kind not in "biuf":
                raise DataError(
                    f"sample '{self.identity}': input '{name}' has dtype {array.dtype}, which is not a number's"
                )
        return result


def row(values: Mapping[str, Any], identity: str) -> Record:
    """Return a record of stored scalars; what is unknown is left out."""
    known = {key: plain(value) for key, value in values.items() if key != "id"}
    return {"id": identity, **{key: value for key, value in known.items() if value is not None}}
