"""Profiles: the shapes of a model's inputs that an engine is built for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from calib.errors import ConfigError

METADATA_KEY = "calib.profile"
"""Where `calib quantize` writes the shapes of the calibration set in a model: {input: {"min", "opt", "max"}} as JSON."""

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """Smallest, usual and largest shape of one input."""

    min: Shape
    opt: Shape
    max: Shape

    def __post_init__(self) -> None:
        """Check that the shapes are of one rank and in order."""
        ranks = {len(shape) for shape in (self.min, self.opt, self.max)}
        ordered = all(0 < low <= usual <= high for low, usual, high in zip(self.min, self.opt, self.max, strict=False))
        if len(ranks) > 1 or not ordered:
            raise ConfigError(
                f"profile {self}: the three shapes must have one rank and min <= opt <= max in each place"
            )

    def __str__(self) -> str:
        """Return "1x3x32,8x3x320,8x3x640", or one shape where the three are equal."""
        shapes = (self.opt,) if self.min == self.opt == self.max else (self.min, self.opt, self.max)
        return ",".join("x".join(map(str, shape)) for shape in shapes)


def encode(profiles: Mapping[str, Profile]) -> str:
    """Return what METADATA_KEY holds."""
    return json.dumps({name: asdict(profile) for name, profile in profiles.items()})


def read(entry: Mapping[str, Any]) -> Profile:
    """Return the profile that JSON gives as {"min", "opt", "max"}.

    Raises:
        ConfigError: the shapes do not fit each other.
        KeyError, TypeError, ValueError: it is no profile.
    """
    low, usual, high = (tuple(int(size) for size in entry[key]) for key in ("min", "opt", "max"))
    return Profile(low, usual, high)
