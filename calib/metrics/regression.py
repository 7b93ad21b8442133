"""Regression: how far numbers are off."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.errors import ConfigError, DataError
from calib.metrics import reading
from calib.metrics.base import Outputs, SampleScore

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Regression:
    """One number or k numbers a sample: the mean absolute error (mae) and the root of the mean squared error (rmse).

    The output is [n] or [n, k], the right answer a number, or a list of k in JSON. The margin is minus the largest error.

    Attributes:
        output: name; "" for the only one.
        tolerance: a sample is right when no error is larger, in the unit of the right answers; None where there is no right.
    """

    output: str = ""
    tolerance: float | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        if self.tolerance is not None and not (
            isinstance(self.tolerance, int | float) and np.isfinite(self.tolerance) and self.tolerance >= 0
        ):
            raise ConfigError(f"tolerance must be a number from 0, not {self.tolerance!r}")

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        return {"mae": False, "rmse": False}

    @property
    def aggregates(self) -> Mapping[str, str]:
        """Aggregate of each score."""
        return {"mae": "ratio", "rmse": "root"}

    def score(self, outputs: Outputs, targets: Sequence[str]) -> list[SampleScore]:
        """Compare a batch with the right numbers.

        Raises:
            DataError: the output does not fit, or a right answer is not as many numbers.
        """
        wanted = "metric regression needs numbers [n] or [n, k]"
        array = reading.read(outputs, self.output, targets, wanted)
        if array.ndim not in (1, 2) or array.dtype.kind not in "fiu" or 0 in array.shape[1:]:
            raise DataError(f"{wanted} and the model gave {reading.shapes(outputs)}")
        rows = array.reshape(len(array), -1)
        return [self._sample(row, _numbers(target, len(row))) for row, target in zip(rows, targets, strict=True)]

    def _sample(self, found: npt.NDArray[np.generic], right: Floats) -> SampleScore:
        error = np.abs(np.asarray(found, np.float64) - right)
        count, largest = float(len(error)), float(error.max())
        return SampleScore(
            prediction=", ".join(map(str, found)),  # NumPy's text of a float gives the same float back
            values={"mae": (float(error.sum()), count), "rmse": (float((error**2).sum()), count)},
            right=None if self.tolerance is None else largest <= self.tolerance,
            margin=-largest,
        )


def regression(metadata: Mapping[str, str], output: str = "", tolerance: float | None = None) -> Regression:
    """Make the metric; the options are the attributes of Regression."""
    del metadata  # numbers have no names
    return Regression(output, tolerance)


def _numbers(target: str, count: int) -> Floats:
    """Return the numbers of a right answer, (count,)."""
    try:
        content = json.loads(target) if target.lstrip().startswith("[") else [float(target)]
        known = all(isinstance(number, int | float) and not isinstance(number, bool) for number in content)
        numbers = np.array(content if known else [], np.float64)
    except (ValueError, OverflowError):
        numbers = np.zeros(0)
    if len(numbers) != count or not np.isfinite(numbers).all():
        wanted = "a finite number" if count == 1 else f"a JSON list of {count} finite numbers"
        raise DataError(f"metric regression: the right answer {target[:80]!r} is not {wanted}, which the output needs")
    return numbers
