"""What a source of samples is: a stream of records, each with a way to read its arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Record = Mapping[str, str | int | float]
"""Metadata of one sample, flat; "id" is unique text."""

Fields = Mapping[str, npt.NDArray[np.generic]]
"""Decoded arrays of one sample by field ("image", a column's or an input's name), before preparation."""


@dataclass(frozen=True, slots=True)
class Item:
    """One sample of a source.

    Attributes:
        record: its metadata.
        read: decodes its arrays; raises DataError, which names the sample, where that is impossible.
    """

    record: Record
    read: Callable[[], Fields]


@dataclass(frozen=True, slots=True)
class Fault:
    """A sample of which not even the metadata can be read."""

    where: str  # "log.jsonl, line 17"
    reason: str


@runtime_checkable
class Source(Protocol):
    """A stream of samples that can be gone through again, in the same order."""

    def items(self) -> Iterator[Item | Fault]:
        """Yield every sample once; memory does not grow with their number."""
        ...

    def files(self) -> Iterator[Path]:
        """Yield the files that decide what comes, so that a changed source is noticed; none where it is not files."""
        ...
