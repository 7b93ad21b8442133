"""Plans: which layer runs in which precision. People edit them; scales are for machines and live elsewhere."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from calib import config
from calib.errors import ConfigError


class Precision(StrEnum):
    """What a layer computes in."""

    INT8 = "int8"
    FP16 = "fp16"
    FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class Plan:
    """Precision by layer: `layers` maps a layer's name, or a pattern with * and ?, to its precision.

    A plan.toml holds the same::

        default = "int8"

        [layers]
        "p2o.Conv.0" = "fp32"    # the input layer
        "p2o.MatMul.*" = "fp16"

    A layer that `layers` puts in INT8 is quantized whatever speaks against it; one that only the default does is not where
    a rule of `calib.qdq` says that TensorRT gains nothing.
    """

    default: str = Precision.INT8.value
    layers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check every precision."""
        for where, precision in [("default", self.default), *self.layers.items()]:
            if precision not in Precision.__members__.values():
                raise ConfigError(f"precision of '{where}' must be one of {', '.join(Precision)}, not '{precision}'")


def load(path: Path) -> Plan:
    """Read plan.toml.

    Raises:
        ConfigError: unreadable, an unknown key or an unknown precision.
    """
    return config.load(path, Plan)


def apply(plan: Plan, layers: Iterable[str]) -> Mapping[str, Precision]:
    """Return the precision of every layer; an exact name wins over a pattern, a later pattern over an earlier one.

    Raises:
        ConfigError: a name or pattern of the plan matches no layer.
    """
    names = list(layers)
    return dict.fromkeys(names, Precision(plan.default)) | named(plan, names)


def named(plan: Plan, layers: Iterable[str]) -> dict[str, Precision]:
    """Return the precision of the layers that the plan names, exactly or by a pattern.

    Raises:
        ConfigError: as `apply`.
    """
    names = list(layers)
    result: dict[str, Precision] = {}
    exact = [key for key in plan.layers if key in set(names)]
    for key in [*(k for k in plan.layers if k not in exact), *exact]:
        matching = [key] if key in exact else fnmatch.filter(names, key)
        if not matching:
            near = difflib.get_close_matches(key, names, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else "`calib inspect` lists the layers"
            raise ConfigError(f"the plan names '{key}', which matches no layer of the model; {hint}")
        result.update(dict.fromkeys(matching, Precision(plan.layers[key])))
    return result
