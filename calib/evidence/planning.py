"""How many samples a study needs: from the flips that are expected, or from what a run has measured."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats

from calib.errors import ConfigError
from calib.evidence.power import POWER, required, unseen
from calib.evidence.result import Difference

_POWERS = (POWER, 0.9)  # that are always shown
FEW = 30
"""Expected flips below which the formula says too few samples (reports/evidence-power.md)."""


@dataclass(frozen=True, slots=True)
class Need:
    """Samples that show the margin so often."""

    power: float
    if_equal: int | None  # if the model is as good as FP32; None where the margin is 0
    as_expected: int | None  # if it loses `drop`; None where that reaches the margin


@dataclass(frozen=True, slots=True)
class SampleSize:
    """How many independent samples a margin needs.

    Attributes:
        margin: how much worse the model may be, in the score's unit.
        drop: that is expected; 0 where it is expected to be better.
        deviation: of one sample's difference between the models.
        level: of the interval.
        power: that is asked for.
        needs: by power, ascending; that of 0.8, of 0.9 and the asked one.
        samples: that a run had; None where no run was given.
        detectable: smallest drop that these would show to be one, with the asked power.
        changes: share of samples that are expected to break or be fixed; None where that is not known.
    """

    margin: float
    drop: float
    deviation: float
    level: float
    power: float
    needs: tuple[Need, ...]
    samples: int | None = None
    detectable: float | None = None
    changes: float | None = None

    @property
    def asked(self) -> Need:
        """What the asked power needs."""
        return next(need for need in self.needs if need.power == self.power)

    @property
    def few(self) -> bool:
        """Whether so few changes are expected that the formula says too few samples."""
        number = self.asked.as_expected
        return self.changes is not None and number is not None and number * self.changes < FEW


def of_flips(margin: float, broken: float, fixed: float, *, level: float, power: float) -> SampleSize:
    """Return what a margin of accuracy needs, from the shares of samples that break and that are fixed.

    Of one sample the difference is -1, 0 or 1, its variance broken + fixed - (broken - fixed)^2 (`calib.evidence.power` has
    the source). As good as FP32 means that the same share of samples changes, half of them for the better.

    Raises:
        ConfigError: an argument is out of its range.
    """
    if not (broken >= 0 and fixed >= 0 and broken + fixed <= 1):
        raise ConfigError(
            f"broken and fixed must be shares of the samples, 0 or more and 1 at most together, not {broken:g} and {fixed:g}"
        )
    drop = max(broken - fixed, 0.0)
    spread = math.sqrt(broken + fixed - (broken - fixed) ** 2)
    needs = _needs(margin, drop, (math.sqrt(broken + fixed), spread), level, power, share=True)
    return SampleSize(margin, drop, spread, level, power, needs, changes=broken + fixed)


def of_run(found: Difference, margin: float, *, higher_is_better: bool, level: float, power: float) -> SampleSize:
    """Return what a margin needs, from a measured difference; samples are groups where they are grouped.

    Raises:
        ConfigError: an argument is out of its range, or the difference has no interval and so no deviation.
    """
    if found.interval is None:
        raise ConfigError(f"the run does not tell how much samples differ: {found.why}")
    drop = max(-found.delta if higher_is_better else found.delta, 0.0)
    deviation = found.standard_error * math.sqrt(found.groups)
    needs = _needs(margin, drop, (deviation, deviation), level, power, share=not found.changed)
    detectable = 1 - ((1 - level) / 2) ** (1 / found.groups)
    if found.changed:
        detectable = float(stats.norm.ppf((1 + level) / 2) + stats.norm.ppf(power)) * found.standard_error
    return SampleSize(margin, drop, deviation, level, power, needs, found.groups, detectable)


def _needs(
    margin: float, drop: float, deviations: tuple[float, float], level: float, power: float, *, share: bool
) -> tuple[Need, ...]:
    """Return what each power needs; of a share, what is needed at least even where no sample changes."""
    if not 0 <= margin < math.inf:
        raise ConfigError(f"margin must be 0 or more, not {margin:g}")
    equal, expected = deviations
    found = []
    for one in sorted({*_POWERS, power}):
        numbers = [
            required(margin, worse, deviation, level=level, power=one)
            for worse, deviation in ((0.0, equal), (drop, expected))
        ]
        least = unseen(margin, level) if share and 0 < margin < 1 else 2
        found.append(Need(one, *(None if number is None else max(number, least) for number in numbers)))
    return tuple(found)
