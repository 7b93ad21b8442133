"""What a number of samples can show: the smallest drop that would be seen, and how many samples a margin needs."""

from __future__ import annotations

import math

from scipy import stats

from calib.errors import ConfigError
from calib.evidence.result import Difference, Power

POWER = 0.8


def required(margin: float, drop: float, deviation: float, *, level: float = 0.95, power: float = POWER) -> int | None:
    """Return how many independent samples show, with probability `power`, that a drop is smaller than the margin.

    n = ((z(1 - alpha / 2) + z(power)) * deviation / (margin - drop))^2, for the upper end of a two-sided interval: the usual
    formula of non-inferiority, as in S.-C. Chow, J. Shao, H. Wang, "Sample Size Calculations in Clinical Research", 2008,
    section 3.1. For right and wrong deviation^2 = broken + fixed - (broken - fixed)^2, shares of the samples: R. Connor,
    "Sample size for testing differences in proportions for the paired-sample design", Biometrics 43, 1987.

    Args:
        margin: largest drop that is accepted, in the score's unit.
        drop: that is expected.
        deviation: standard deviation of one sample's difference, in the score's unit.
        level: of the interval.
        power: probability that the whole interval lies within the margin.

    Returns:
        None where the drop reaches the margin, which no number of samples shows to be smaller. Where fewer than some 30
        samples are expected to change, it is too few (reports/evidence-power.md), and `unseen` is what is needed at least.

    Raises:
        ConfigError: an argument is out of its range.
    """
    if not (0 < level < 1 and 0.5 <= power < 1):
        raise ConfigError(f"level must be between 0 and 1, and power from 0.5 to below 1, not {level} and {power}")
    if not (deviation >= 0 and math.isfinite(deviation) and math.isfinite(margin) and math.isfinite(drop)):
        raise ConfigError(f"margin, drop and deviation must be numbers, the deviation 0 or more, not {deviation}")
    if drop >= margin:
        return None
    z = float(stats.norm.ppf((1 + level) / 2) + stats.norm.ppf(power))
    return max(2, math.ceil((z * deviation / (margin - drop)) ** 2))


def unseen(margin: float, level: float) -> int:
    """Return how many samples show a share below the margin, 0 < margin < 1, when none of them changes: the rule of three."""
    return math.ceil(math.log((1 - level) / 2) / math.log1p(-margin))


def assess(difference: Difference, margin: float, *, higher_is_better: bool, level: float) -> Power | None:
    """Return what the samples of a difference could have shown; None where there is no interval to judge by.

    Samples are groups where they are grouped: those are what must become more. Where nothing changed, the numbers are those of
    the interval of 0 changes.
    """
    if difference.interval is None:
        return None
    drop = -difference.delta if higher_is_better else difference.delta
    if not difference.changed:
        least = unseen(margin, level) if 0 < margin < 1 else None
        return Power(POWER, difference.interval.high, least, least, difference.groups)
    deviation = difference.standard_error * math.sqrt(difference.groups)
    z = float(stats.norm.ppf((1 + level) / 2) + stats.norm.ppf(POWER))
    return Power(
        power=POWER,
        detectable=z * difference.standard_error,
        needed_if_equal=required(margin, 0.0, deviation, level=level),
        needed_as_seen=required(margin, max(drop, 0.0), deviation, level=level),
        samples=difference.groups,
    )
