"""Batches of samples: what a pass over data needs, and whether it fits the model's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from calib.errors import DataError


class InputSpec(Protocol):
    """What a runtime says of one model input; `onnxruntime.NodeArg` has this form."""

    @property
    def type(self) -> str:
        """Element type, as "tensor(float)"."""
        ...

    @property
    def shape(self) -> Sequence[int | str | None]:
        """Shape with the batch dimension; a name or None where a size is free."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples stacked along a new first axis; `positions` are their places in the set."""

    inputs: dict[str, npt.NDArray[np.generic]]
    ids: tuple[str, ...]
    positions: tuple[int, ...]


class Samples(Protocol):
    """What a pass over data needs; `SampleSet` on disk, or anything that makes batches.

    Attributes:
        where: named in error messages.
        sha256: identifies the data; statistics and scales are bound to it.
    """

    @property
    def where(self) -> Path:
        """Name for error messages."""
        ...

    @property
    def sha256(self) -> str:
        """Identity of the data."""
        ...

    @property
    def blocks(self) -> Sequence[int]:
        """Block of each sample; the batches of one come together, in ascending order."""
        ...

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def batches(self, size: int, specs: Mapping[str, InputSpec] | None = None) -> Iterator[Batch]:
        """Yield every sample once, checked against the model's inputs."""
        ...


def check(batch: Batch, specs: Mapping[str, InputSpec], where: Path) -> None:
    """Check a batch against the model's inputs.

    Raises:
        DataError: an input is missing or unknown, or a dtype, rank or size differs; the message names the sample.
    """
    sample = f"{where}, sample '{batch.ids[0]}'"
    missing, extra = sorted(specs.keys() - batch.inputs.keys()), sorted(batch.inputs.keys() - specs.keys())
    if missing or extra:
        problems = [f"the model's input {name!r} is missing" for name in missing]
        problems += [f"the model has no input {name!r}" for name in extra]
        raise DataError(f"{sample}: {'; '.join(problems)} (the model's inputs are {', '.join(map(repr, specs))})")
    for name, spec in specs.items():
        array = batch.inputs[name]
        wanted = spec.type.removeprefix("tensor(").removesuffix(")").replace("float16", "f2")
        dtype = np.dtype({"float": "float32", "double": "float64", "f2": "float16"}.get(wanted, wanted))
        if array.dtype != dtype:
            raise DataError(f"{sample}: input '{name}' has dtype {array.dtype} and the model needs {dtype}")
        free = list(spec.shape)
        fits = len(free) == array.ndim and all(
            not isinstance(want, int) or want <= 0 or want == have
            for want, have in zip(free[1:], array.shape[1:], strict=False)
        )
        if not fits:
            raise DataError(
                f"{sample}: input '{name}' has shape {list(array.shape[1:])} and the model needs {free[1:]}"
            )
        if free and isinstance(free[0], int) and free[0] > 0 and array.shape[0] != free[0]:
            raise DataError(
                f"{sample}: the model's batch is fixed at {free[0]} for input '{name}' and {array.shape[0]} samples are "
                f"left for the last one: give a number of samples that {free[0]} divides, or export the model with a free batch"
            )


def fixed_batch(specs: Mapping[str, InputSpec]) -> int:
    """Return the size of the first axis where the model fixes it, else 0."""
    sizes = [spec.shape[0] for spec in specs.values() if spec.shape]
    return next((size for size in sizes if isinstance(size, int) and size > 0), 0)
