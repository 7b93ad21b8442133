"""Are there enough samples? How far a scale from n samples is from that of endless data, told from the set alone.

The set is kept as b exchangeable blocks (`Shards`). Random permutations of them are cut into disjoint segments of m = 1,
2, 4 ... b/2 blocks, and the calibrator is run on each segment's merged histogram; s is the logarithm of a scale.

1. Noise. Disjoint segments are independent sets of their size, so that the variance among those of one permutation is
   an unbiased Var(s_m) for any calibrator. For a mean it is the spread about the whole set with the finite population
   correction, Var(s_m - s_b) = Var(s_m) (1 - m / b): the b / m segments have r - 1 = (b - m) / m degrees of freedom.
   (Shao and Wu, "A general theory for jackknife variance estimation", Annals of Statistics 1989; Politis, Romano and
   Wolf, "Subsampling", 1999.)
2. The whole set has no second one of its size. A power law through the variances is read off at b (least squares of
   logarithms, weighted by degrees of freedom d, with the logarithms raised by -E log(chi2_d / d) = 1/d + 1/(3 d^2)). A
   mean gives a slope of -1, and then half-samples tell all: Var(s_b) = Var(s_{b/2}) / 2 = E (s_{b/2} - s_b)^2. The
   largest value of a heavy tail gives 0.
3. Bias. Scales that follow the largest values grow with n. Quenouille's jackknife ("Notes on bias in estimation",
   Biometrika 1956) takes endless data to be as far from the whole set as that is from its half, which is exact where
   bias ~ 1/n. Where the growth does not fade (max of a distribution without end), endless data has no scale at all: the
   deviation then says what twice as much data would change, `Curve.growth` by how much, and there is no estimate.
4. deviation = 95 % quantile of |exp(y) - 1|, y normal with that bias and noise. The noise is widened by Student's t for
   b blocks, because it is itself an estimate. It holds tensor by tensor, not for all of them at once.

In simulations of 32 uneven samples (tests/test_sufficiency.py: normal, Student's t with 3 degrees of freedom, ReLU) the
predictions' median is .6 to 1.4 times the actual 95 % quantile, and 80 % of single ones are .36 to 3.5 times it: an order
of magnitude, no more. Lowest (.6, single ones from .22) is MSE on Student's t, whose scale follows the largest values.

Blocks hold whole groups (patients, documents): the spread is then that over groups, which is what new data will show.
Blocks are taken to be equal in size. Coarse histograms put a percentile into steps of up to .5 %, so that less than half
of that is not told apart; anything below .01 % is taken as that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from calib import calibrators, histogram
from calib.calibrators import Calibrator
from calib.errors import DataError
from calib.histogram import Float64, Histogram
from calib.quality.result import Curve, Sufficiency
from calib.scales import MIN_SCALE, scale_of
from calib.statistics import Shards, Statistics

_BAND = 1.96
_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
_LEAST_VARIANCE = 1e-8
_SLOWEST = -0.25  # slope of the variance: slower, and 1 / sqrt(n) would promise too much

Subset = tuple[int, ...]


def sufficiency(
    shards: Shards,
    full: Mapping[str, Statistics],
    calibrator: Calibrator,
    *,
    tolerance: float = 0.01,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Sufficiency:
    """Judge every tensor of the shards; about 40 calls of the calibrator each.

    Entropy reads 2,048 bins over [0, amax], which no block can keep before amax is known. `max` is judged in its place,
    because those bins move with it, and the result says so.

    Args:
        shards: histograms by block of the set.
        full: the whole set's statistics, of the same tensors.
        calibrator: whose scales are judged.
        tolerance: relative; .01 is 1 %.
        seed: of the permutations, which are the same for all tensors.
        progress: called with 1 after each tensor.

    Raises:
        DataError: fewer than 2 blocks, or a tensor of the whole set that has no scale.
    """
    blocks = len(shards.samples)
    if blocks < 2:
        raise DataError(
            f"whether {sum(shards.samples)} samples in {blocks} block are enough cannot be told: at least 2 samples are "
            "needed (2 groups, where samples are grouped), and 16 for a curve"
        )
    judged, note = calibrator, ""
    if calibrator.needs_linear:
        judged = calibrators.Max()
        note = f"{calibrator.name} reads bins over [0, amax], which are not kept by block; max, which moves them, is judged"
    plan = _Plan.of(blocks, seed)
    sizes = tuple(round(sum(shards.samples) * m / blocks) for m in (*plan.cuts, blocks))
    found: list[tuple[Curve, int | None]] = []
    for tensor in shards.tensors:
        parts = shards.histograms(tensor)
        scale = float(scale_of(calibrators.calibrate({tensor: full[tensor]}, judged)[tensor]))
        found.append(_judge(tensor, parts, scale, plan, judged, tolerance=tolerance, sizes=sizes))
        if progress:
            progress(1)
    found.sort(key=lambda item: (-item[0].deviation[-1], item[0].tensor))
    curves, needed = tuple(curve for curve, _ in found), [estimate for _, estimate in found]
    largest = [max(curve.deviation[i] for curve in curves) if curves else 0.0 for i in range(len(sizes))]
    enough = _enough(largest, sizes, tolerance)
    known = [n for n in needed if n is not None]
    estimate = max(known) if enough is None and len(known) == len(needed) else None
    return Sufficiency(judged.name, tolerance, blocks, sizes, curves, enough, estimate, note)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which blocks are merged: for each number of blocks the permutations' disjoint segments."""

    blocks: int
    cuts: Mapping[int, tuple[tuple[Subset, ...], ...]]

    @classmethod
    def of(cls, blocks: int, seed: int) -> _Plan:
        """Cut permutations so that every size has a few degrees of freedom; a segment of one is part of one of the next."""
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(blocks) for _ in range(5)]
        cuts = {}
        for m in (1, 2, 4, 8):
            if 2 * m <= blocks:
                several = blocks // m
                repeats = 1 if several >= 8 else 2 if several >= 4 else 5
                cuts[m] = tuple(_segments(order, m) for order in orders[:repeats])
        return cls(blocks, cuts)

    def subsets(self) -> list[Subset]:
        """Return every subset once, the whole set first."""
        every = (segment for cut in self.cuts.values() for segments in cut for segment in segments)
        return list(dict.fromkeys([tuple(range(self.blocks)), *every]))

    def freedom(self, m: int) -> int:
        """Return the degrees of freedom of the variance of m blocks; all that the set has are blocks - 1."""
        return min(self.blocks - 1, len(self.cuts[m]) * (self.blocks // m - 1))


def _segments(order: np.ndarray, m: int) -> tuple[Subset, ...]:
    return tuple(tuple(sorted(order[i : i + m].tolist())) for i in range(0, order.size - m + 1, m))


@dataclass(frozen=True, slots=True)
class _Spread:
    """What the segments tell of a statistic: by size (b last) the mean log ratio to the whole set, and its noise.

    alive[i] is False where some segment has no scale; `slope` is None where nothing is known.
    """

    mean: Float64
    noise: Float64
    alive: tuple[bool, ...]
    slope: float | None

    def band(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return where 95 % of other sets lie, relative to the whole set; from 0 where there may be no scale."""
        low = np.where(self.alive, np.exp(self.mean - _BAND * self.noise), 0.0)
        return tuple(low.tolist()), tuple(np.exp(self.mean + _BAND * self.noise).tolist())


def _judge(
    tensor: str,
    parts: Sequence[Histogram],
    scale: float,
    plan: _Plan,
    calibrator: Calibrator,
    *,
    tolerance: float,
    sizes: tuple[int, ...],
) -> tuple[Curve, int | None]:
    """Return a tensor's curve and the number of samples that it needs, if that can be said."""
    amax = max(part.amax for part in parts)
    if _constant(parts):
        one, nothing = (1.0,) * len(sizes), (0.0,) * len(sizes)
        return Curve(tensor, scale, amax, one, one, one, one, nothing, 0.0, sizes[0]), sizes[0]
    largest = {subset: max(parts[i].amax for i in subset) for subset in plan.subsets()}
    alive = {subset: value for subset, value in largest.items() if value >= MIN_SCALE * 127}
    labels = {f"{tensor}, blocks {'+'.join(map(str, subset))}": subset for subset in alive}
    merged = {label: Statistics(histogram.merge(parts[i] for i in subset).coarse()) for label, subset in labels.items()}
    scales = {labels[label]: found for label, found in calibrators.calibrate(merged, calibrator).items()}
    spread, of_amax = _spread(plan, scales), _spread(plan, alive)
    deviation, growth = _deviations(plan, spread)
    enough = _enough(deviation, sizes, tolerance)
    needed = enough
    if enough is None and spread.slope is not None and _fades(spread, spread.slope, tolerance):
        needed = int(np.ceil(sizes[-1] * (deviation[-1] / tolerance) ** 2))
    return Curve(tensor, scale, amax, *spread.band(), *of_amax.band(), deviation, growth, enough), needed


def _spread(plan: _Plan, values: Mapping[Subset, float]) -> _Spread:
    whole = np.log(values[tuple(range(plan.blocks))])
    means, variances, alive = [], [], []
    for cut in plan.cuts.values():
        logs = [[np.log(values[segment]) - whole for segment in segments if segment in values] for segments in cut]
        alive.append(all(len(found) == len(segments) for found, segments in zip(logs, cut, strict=True)))
        every = [value for found in logs for value in found]
        means.append(float(np.mean(every)) if every else 0.0)
        variances.append(float(np.mean([np.var(found, ddof=1) for found in logs])) if alive[-1] else 0.0)
    known = [i for i, ok in enumerate(alive) if ok]
    counts = np.log([*plan.cuts, plan.blocks])
    mean = np.asarray([*means, 0.0])
    if not known:
        return _Spread(mean, np.zeros(counts.size), (*alive, True), None)
    freedom = np.asarray([plan.freedom(m) for m in plan.cuts], np.float64)
    logs_of = np.log(np.maximum(variances, _LEAST_VARIANCE))
    if len(known) > 1:
        logs_of += 1 / freedom + 1 / (3 * freedom**2)
    level, slope = _line(counts[known], logs_of[known], freedom[known])
    return _Spread(mean, np.exp((level + slope * counts) / 2), (*alive, True), slope)


def _line(x: Float64, y: Float64, weights: Float64) -> tuple[float, float]:
    """Return level and slope of the weighted least squares line; -1, a mean's slope, where there is but one point."""
    middle, height = np.average(x, weights=weights), np.average(y, weights=weights)
    slope = -1.0
    if x.size > 1:
        slope = float(np.sum(weights * (x - middle) * y) / np.sum(weights * (x - middle) ** 2))
        slope = min(max(slope, -2.0), 0.0)
    return float(height - slope * middle), slope


def _deviations(plan: _Plan, spread: _Spread) -> tuple[tuple[float, ...], float]:
    """Return the deviation at each size, and the growth of the last doubling; 1 where a set may have no scale."""
    half = list(plan.cuts)[-1]
    growth = -float(spread.mean[-2]) * half / (plan.blocks - half)  # of s from the whole set to endless data
    if not spread.alive[-2]:
        return (1.0,) * len(spread.alive), float(np.expm1(growth))
    widened = spread.noise * (_STUDENT[plan.blocks - 2] / _BAND)
    each = zip(spread.mean - growth, widened, spread.alive, strict=True)
    found = [_quantile(float(bias), float(noise)) if ok else 1.0 for bias, noise, ok in each]
    never_less = np.maximum.accumulate(found[::-1])[::-1]  # a scale far too small counts less than one far too large
    return tuple(never_less.tolist()), float(np.expm1(growth))


def _quantile(bias: float, noise: float) -> float:
    """Return the 95 % quantile of |exp(y) - 1|, y normal, by bisection."""
    normal = NormalDist(bias, noise)
    low, high = 0.0, float(np.expm1(abs(bias) + 3 * noise))
    for _ in range(50):
        middle = (low + high) / 2
        inside = normal.cdf(np.log1p(middle)) - (normal.cdf(np.log1p(-middle)) if middle < 1 else 0.0)
        low, high = (middle, high) if inside < 0.95 else (low, middle)
    return high


def _fades(spread: _Spread, slope: float, tolerance: float) -> bool:
    """Whether both growth and noise, as far as they matter, fall with n, so that 1 / sqrt(n) may be extrapolated."""
    steps = np.diff(spread.mean)
    usual = 2.0 ** (-np.arange(steps.size) / 2)  # of 1 / sqrt(n)
    slow = steps.size < 2 or steps[-1] > usual[-1] / usual[:-1].mean() * steps[:-1].mean()
    grows = steps[-1] > tolerance / 2 and slow
    stays = spread.noise[-1] > tolerance / 4 and slope > _SLOWEST
    return not (grows or stays)


def _enough(deviation: Sequence[float], sizes: tuple[int, ...], tolerance: float) -> int | None:
    """Return the size from which on all deviations are within the tolerance."""
    beyond = [i for i, value in enumerate(deviation) if value > tolerance]
    first = beyond[-1] + 1 if beyond else 0
    return sizes[first] if first < len(sizes) else None


def _constant(parts: Sequence[Histogram]) -> bool:
    """Whether all blocks hold the same distribution, so that no part of them has another scale."""
    first = parts[0]
    return first.total > 0 and all(
        part.amax == first.amax
        and np.array_equal(part.bins, first.bins)
        and np.array_equal(part.counts / part.total, first.counts / first.total)
        and np.array_equal(part.residuals / part.counts, first.residuals / first.counts)
        for part in parts[1:]
    )
