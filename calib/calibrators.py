"""Calibrators: from a tensor's statistics to amax, the largest |x| that INT8 keeps.

A calibrator is any object with the attributes of `Calibrator`; CONTRIBUTING.md says how to add one.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from calib import config, kernels
from calib.errors import CalibError, ConfigError, DataError
from calib.histogram import Float64, Histogram
from calib.scales import MIN_SCALE
from calib.statistics import Statistics


@runtime_checkable
class Calibrator(Protocol):
    """Chooses amax for one tensor.

    Attributes:
        name: as it appears in studies, files and reports; safe as a folder name.
        needs_linear: whether `amax` reads `Statistics.linear`, which costs a second pass over the data.
    """

    @property
    def name(self) -> str:
        """Name of the calibrator with its parameters."""
        ...

    @property
    def needs_linear(self) -> bool:
        """Whether a second pass is needed."""
        ...

    def amax(self, statistics: Statistics) -> float:
        """Return amax, 0 < amax, for a tensor that holds at least one non-zero value."""
        ...


@dataclass(frozen=True, slots=True)
class Max:
    """Clips nothing: amax is the largest |x| seen. Equals TensorRT's IInt8MinMaxCalibrator."""

    needs_linear: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Return "max"."""
        return "max"

    def amax(self, statistics: Statistics) -> float:
        """Return the exact largest |x|."""
        return statistics.histogram.amax


@dataclass(frozen=True, slots=True)
class Percentile:
    """Keeps `percent` of the values: amax is the smallest bin edge with at least that share of |x| at or below it."""

    percent: float
    needs_linear: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the percentage."""
        if not 0 < self.percent <= 100:
            raise ConfigError(f"The 'percent' parameter of Percentile must be in (0, 100]. Got {self.percent} instead.")

    @property
    def name(self) -> str:
        """Return for example "percentile-99.99"."""
        return f"percentile-{self.percent:g}"

    def amax(self, statistics: Statistics) -> float:
        """Return the percentile, at most 2**-10 above the exact one; amax where the percentile itself is 0."""
        histogram = statistics.histogram
        # Counting from the top keeps the sum exact: total * percent is not representable, a count above it is.
        allowed_above = histogram.total * ((100.0 - self.percent) / 100.0)
        above = histogram.total - np.cumsum(histogram.counts)
        edge = float(histogram.upper_edges()[np.argmax(above <= allowed_above)])
        zero_bin_only = edge < MIN_SCALE * 127
        return histogram.amax if zero_bin_only else edge


@dataclass(frozen=True, slots=True)
class Mse:
    """Minimizes the mean squared error of quantizing the values to INT8, clipping and rounding together.

    The error has a narrow valley wherever a point mass falls on a step, so the search is dense where amax usually lies
    (.25 % steps in the upper two octaves, 2 % in the six below) and then fine (.02 %) around the eight best. The error
    of a candidate is that of the bins' exact means.
    """

    needs_linear: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """Return "mse"."""
        return "mse"

    def amax(self, statistics: Statistics) -> float:
        """Return the amax of the least error; the larger of two equals, which clips less."""
        histogram = statistics.histogram
        coarse = histogram.amax * np.r_[2.0 ** -np.arange(0, 2, 1 / 277), 2.0 ** -np.arange(2, 8, 1 / 35)]
        errors = _errors(histogram, coarse)
        fine = np.outer(coarse[np.argsort(errors, kind="stable")[:8]], np.linspace(1.003, 0.997, 31)).ravel()
        fine = np.sort(fine[fine <= histogram.amax])[::-1]
        return float(fine[int(np.argmin(_errors(histogram, fine)))])


@dataclass(frozen=True, slots=True)
class Entropy:
    """TensorRT's entropy calibration of one batch, exactly: the least KL divergence over 2,048 equal bins.

    Equals the scale of IInt8EntropyCalibrator and IInt8EntropyCalibrator2 given all data as one batch (tests/golden).
    TensorRT's own depends on the batching when there are more. After S. Migacz, "8-bit inference with TensorRT", GTC
    2017; the details (bin 0, outliers, groups, ties) were measured against TensorRT 8.6.
    """

    needs_linear: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Return "entropy"."""
        return "entropy"

    def amax(self, statistics: Statistics) -> float:
        """Return the middle of the bin after the best cut.

        Raises:
            DataError: the statistics hold no linear histogram.
        """
        linear = statistics.linear
        if linear is None:
            raise DataError("entropy needs the linear histograms of a second pass, which these statistics do not hold")
        counts = linear.counts.astype(np.float64)
        counts[0] = counts[1]
        if not counts[:-1].any():  # one value only (and zeros): the divergence says nothing
            return linear.amax
        index = int(kernels.entropy_threshold(counts, 128))
        return (index + 0.5) * linear.amax / counts.size


def parse(text: str, base: Path | None = None) -> Calibrator:
    """Return the calibrator that `text` names: max, percentile-P, mse, entropy, package.module:attribute, path/file.py:attribute.

    A path is relative to `base`.

    Raises:
        ConfigError: no such calibrator, or the attribute is not one.
    """
    if ":" in text:
        found = config.resolve(text, base)
        try:
            calibrator = found() if isinstance(found, type) else found
        except TypeError as error:
            raise ConfigError(f"calibrator {text} cannot be made without arguments: {error}") from error
        if not isinstance(calibrator, Calibrator):
            raise ConfigError(f"{text} is not a calibrator: it needs name, needs_linear and amax(statistics)")
        if not calibrator.name or not all(c.isalnum() or c in "-_." for c in calibrator.name):
            raise ConfigError(f"{text}: name must be letters, digits, '-', '_' and '.', not '{calibrator.name}'")
        return calibrator
    if text in _BY_NAME:
        return _BY_NAME[text]
    kind, _, percent = text.partition("-")
    if kind == "percentile":
        try:
            return Percentile(float(percent))
        except ValueError:
            raise ConfigError(f"'{text}' needs a number, as in percentile-99.99") from None
    raise ConfigError(
        f"no calibrator is called '{text}'; known are max, percentile-P, mse, entropy and module:attribute"
    )


_BY_NAME: dict[str, Calibrator] = {"max": Max(), "mse": Mse(), "entropy": Entropy()}


def calibrate(statistics: Mapping[str, Statistics], calibrator: Calibrator) -> dict[str, float]:
    """Return amax by tensor.

    Raises:
        DataError: a tensor has no values, or only zeros, so that no scale can be known; or the calibrator failed on one.
    """

    def one(item: tuple[str, Statistics]) -> tuple[str, float]:
        tensor, seen = item
        if seen.histogram.amax < MIN_SCALE * 127:
            seen_what = "has no values" if not seen.histogram.total else "is zero for every sample"
            raise DataError(
                f"tensor '{tensor}' {seen_what}, so it has no INT8 scale: add samples for which it is not, "
                "or keep the layers that read it in float in the plan"
            )
        try:
            amax = float(calibrator.amax(seen))
        except CalibError as error:
            raise DataError(f"tensor '{tensor}': {error}") from error
        except Exception as error:  # a user's calibrator may raise anything
            raise DataError(
                f"calibrator {calibrator.name} fails on tensor '{tensor}': {type(error).__name__}: {error}"
            ) from error
        if not 0 < amax < np.inf:
            raise DataError(f"calibrator {calibrator.name} gave amax {amax} for tensor '{tensor}'; it must be positive")
        return tensor, amax

    with ThreadPoolExecutor() as pool:
        return dict(pool.map(one, statistics.items()))


def _errors(histogram: Histogram, candidates: Float64) -> Float64:
    means, counts = histogram.means(), histogram.counts.astype(np.float64)
    return np.asarray(kernels.quantization_errors(means, counts, candidates))
