"""What is asked of the two sets: sizes, methods, filters, and the columns that decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from calib.data.source import Record
from calib.errors import ConfigError, DataError

Stratum = tuple[str, ...]
"""A sample's values of the stratify columns; () where there are none."""

NAMES = ("calibration", "evaluation")


@dataclass(frozen=True, slots=True)
class Part:
    """One of the two sets.

    Attributes:
        samples: its size.
        method: "random"; "kmeans": typical samples of every cluster of the features; "kcenter": samples that leave none
            far from a chosen one.
        balance: strata in the proportion of the source, or equally large.
        minimum: samples of every stratum, at least.
        where: column -> values that are admitted, as text.
        since: begin of the time window, inclusive: a number, or a date and time in ISO 8601 (UTC where it names no zone).
        until: its end, exclusive.
    """

    samples: int
    method: Literal["random", "kmeans", "kcenter"] = "random"
    balance: Literal["proportional", "balanced"] = "proportional"
    minimum: int = 0
    where: dict[str, tuple[str, ...]] = field(default_factory=dict)
    since: str = ""
    until: str = ""

    def __post_init__(self) -> None:
        """Check sizes and filters."""
        if self.samples < 1:
            raise ConfigError(f"samples must be at least 1, not {self.samples}")
        if not 0 <= self.minimum <= self.samples:
            raise ConfigError(f"minimum must be between 0 and samples ({self.samples}), not {self.minimum}")
        for column, values in self.where.items():
            if not values:
                raise ConfigError(f"where.{column} admits no value: list some, or leave it out")
        bounds = []
        for key, text in (("since", self.since), ("until", self.until)):
            try:
                bounds += [moment(text)] if text else []
            except ValueError as error:
                raise ConfigError(f"{key} must be a number or a date and time in ISO 8601, not '{text}'") from error
        if len(bounds) == 2 and not before(bounds[0], bounds[1]):
            raise ConfigError(f"since = '{self.since}' must be before until = '{self.until}', and of the same kind")


@dataclass(frozen=True, slots=True)
class Rules:
    """What both sets share.

    Attributes:
        stratify: columns whose values, crossed, are the strata.
        group: column of what belongs together and stays on one side; "": every sample for itself.
        time: column that `since` and `until` speak of.
        seed: another seed chooses other samples.
    """

    stratify: tuple[str, ...] = ()
    group: str = ""
    time: str = ""
    seed: int = 0

    def stratum(self, record: Record) -> Stratum:
        """Return the stratum of a sample."""
        return tuple(str(value(record, column)) for column in self.stratify)

    def group_of(self, record: Record) -> str:
        """Return the group of a sample."""
        return str(value(record, self.group or "id"))


@dataclass(frozen=True, slots=True)
class Held:
    """What the two sets hold already, where they are extended."""

    calibration: tuple[Record, ...] = ()
    evaluation: tuple[Record, ...] = ()


Moment = datetime | float


def moment(text: str | int | float) -> Moment:
    """Return a time: of ISO 8601 text (UTC where it names no zone), else a number.

    Raises:
        ValueError: neither.
    """
    if isinstance(text, str) and text[4:5] == "-":
        time = datetime.fromisoformat(text)
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def before(one: Moment, other: Moment) -> bool:
    """Return whether one time is before the other; False where they are not of the same kind."""
    if isinstance(one, datetime):
        return isinstance(other, datetime) and one < other
    return isinstance(other, float) and one < other


def value(record: Record, column: str) -> str | int | float:
    """Return a sample's value of a column.

    Raises:
        DataError: it has none.
    """
    if column not in record:
        raise DataError(
            f"the recipe names the column '{column}', which not every sample of the source has: "
            f"'{record.get('id', '?')}' has {', '.join(map(repr, record))}"
        )
    return record[column]


def show(stratum: Sequence[str]) -> str:
    """Return a stratum's name, as `SampleSet.strata` has it."""
    return " / ".join(stratum)
