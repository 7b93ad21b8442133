"""Does a later sample look like the calibration set? Features one by one, and a classifier for all together.

A feature is the largest or the mean |x| of one tensor in one sample. Two views of it:

1. Typical: Cliff's delta, P(other > calibration) - P(other < calibration). The limit .33 is what Romano et al. (2006)
   call a medium effect; for normal distributions it is a shift by .6 standard deviations.
2. Tail: of the tenth of all samples that is highest (or lowest), how much more often the other's samples are in it than
   the calibration set's: (a - b) / (a + b) of the two shares. A new device in 30 % of the samples, however strange, moves
   Cliff's delta and an AUC by .3 only, but it fills the tail: 1. The tail's limit is 1.5 times the other: that is what
   a shift at the limit does to the tails of normal distributions. Only samples that the calibration set lacks count, for
   a set may well hold more of the rare than production does.

The features, and the classifier's two statistics (the same two views of its score), go through a permutation test
(`permutation.adjusted`) with half of the level each: the chance of any false alarm is at most the level. Groups (a
document's lines) are permuted as a whole. A group with samples on both sides counts as two; that these resemble each
other makes an alarm less likely, not more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from calib.errors import ConfigError, DataError
from calib.features import Features
from calib.quality import classifier, permutation, words
from calib.quality.permutation import Floats, Labels
from calib.quality.pooling import MOST, Groups, Pooled, pool
from calib.quality.result import Classifier, Drift, Shift, Tail

FAMILIES = 2  # of statistics: the features', and the classifier's two, which would drown among them
LIMIT = 0.33  # of |Cliff's delta| and of 2 AUC - 1
LEVEL = 0.01
PERMUTATIONS = 20  # over the level
TAIL_LIMIT = 1.5  # times the limit of Cliff's delta
USED = 5  # features named of a classifier
COLUMNS = 256  # features ranked at once

_Feature = Literal["amax", "mean"]
_Kind = Literal["input", "activation"]


@dataclass(frozen=True, slots=True, eq=False)
class _Tails:
    """One tail of every feature: the shares of both sides in it, (k,), and their difference for every labelling, (b, k)."""

    calibration: Floats
    other: Floats
    difference: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Views:
    """Every feature for every labelling, (b, k), and the ratios of its medians, (k,)."""

    delta: Floats
    upper: _Tails
    lower: _Tails
    ratio: Floats


def drift(
    calibration: Features,
    other: Features,
    *,
    groups: Groups,
    limit: float = LIMIT,
    level: float = LEVEL,
    name: str,
    seed: int = 0,
) -> Drift:
    """Compare a later sample with the calibration set.

    Args:
        calibration: what the model makes of the calibration set.
        other: of the later sample; the same tensors, in any order.
        groups: of each sample of both, what belongs together (document, patient); None where the samples are independent.
        limit: of |Cliff's delta| and of the classifier's 2 AUC - 1.
        level: largest chance of a false alarm; .001 to .2. 20 / level labellings are drawn.
        name: of the later sample.
        seed: of the labellings, the folds and the samples drawn from more than 1,000.

    Raises:
        ConfigError: limit or level is out of range.
        DataError: the tensors differ, a feature is NaN, groups are missing for one side, or there are too few samples
            for any difference to be told from chance.
    """
    if not (0 < limit < 1 and 0.001 <= level <= 0.2):
        raise ConfigError(f"drift needs a limit between 0 and 1 and a level from .001 to .2, not {limit} and {level}")
    rng = np.random.default_rng(seed)
    pooled = pool(calibration, other, groups, name, rng)
    if not _enough(pooled.units, level):
        raise _too_few(pooled.units, _guess(pooled.units), limit, name)
    labels = permutation.permuted(pooled.units[0], pooled.groups, round(PERMUTATIONS / level), rng)
    views, ranked = _views(pooled, labels)
    found = classifier.scores(ranked, labels, rng)
    auc, rest, top = classifier.separation(found, labels)
    features = np.hstack(
        [
            permutation.standardized(views.delta, two_sided=True),
            *(permutation.standardized(side.difference, two_sided=False) for side in (views.upper, views.lower)),
        ]
    )
    told_apart = permutation.standardized(np.hstack([auc, top - rest]), two_sided=False)
    p = np.split(_p(features), 3)
    auc_p, top_p = _p(told_apart)
    detectable = _detectable(views.delta, features, level)
    if detectable >= 1:
        raise _too_few(pooled.units, detectable, limit, name)
    shifts = tuple(sorted(_shifts(calibration, views, p), key=lambda shift: -abs(shift.effect)))
    best = np.argsort(-classifier.followed(found[:, 0], ranked), kind="stable")[:USED]
    told = Classifier(
        float(auc[0, 0]),
        float(auc_p),
        tuple(
            f"{tensor}: {words.FEATURES[feature]}"
            for tensor, _, feature in (_column(calibration, int(i)) for i in best)
        ),
        Tail("upper", float(rest[0, 0]), float(top[0, 0]), _excess(top[0, 0], rest[0, 0]), float(top_p)),
    )
    reasons = tuple(words.reasons(shifts, told, (limit, TAIL_LIMIT * limit), level))
    return Drift(
        other=name,
        samples=(len(calibration.ids), len(other.ids)),
        groups=pooled.units,
        limit=limit,
        level=level,
        shifts=shifts,
        classifier=told,
        beyond=bool(reasons),
        reasons=reasons,
        detectable=detectable,
        notes=(*_notes(pooled, detectable, limit), *words.within(shifts, limit, level)),
    )


def _views(pooled: Pooled, labels: Labels) -> tuple[_Views, Floats]:
    """Return the statistics of every feature, and the features as midranks."""
    first = pooled.sizes[0]
    deltas: list[Floats] = []
    middles: list[Floats] = []
    tails: tuple[list[_Tails], list[_Tails]] = ([], [])
    for start in range(0, pooled.vectors.shape[1], COLUMNS):
        low, high = permutation.ranks(pooled.vectors[:, start : start + COLUMNS])
        middles.append((low + high) / 2)
        deltas.append(2 / len(low) * permutation.difference(labels, middles[-1]))
        turned = len(low) + 1 - high, len(low) + 1 - low
        for parts, (least, most) in zip(tails, ((low, high), turned), strict=True):
            inside = permutation.tail(least, most)
            parts.append(_Tails(inside[:first].mean(0), inside[first:].mean(0), permutation.difference(labels, inside)))
    upper, lower = (
        _Tails(
            np.concatenate([part.calibration for part in parts]),
            np.concatenate([part.other for part in parts]),
            np.hstack([part.difference for part in parts]),
        )
        for parts in tails
    )
    ratio = np.exp2(np.median(pooled.vectors[first:], axis=0) - np.median(pooled.vectors[:first], axis=0))
    return _Views(np.hstack(deltas), upper, lower, ratio), np.hstack(middles)


def _shifts(features: Features, views: _Views, p: Sequence[Floats]) -> Iterator[Shift]:
    sides: tuple[tuple[Literal["upper", "lower"], _Tails, Floats], ...]
    sides = ("upper", views.upper, p[1]), ("lower", views.lower, p[2])
    for i in range(2 * len(features.tensors)):
        tails = [
            Tail(
                side,
                float(view.calibration[i]),
                float(view.other[i]),
                _excess(view.other[i], view.calibration[i]),
                float(q[i]),
            )
            for side, view, q in sides
        ]
        effect = float(views.delta[0, i])
        yield Shift(
            *_column(features, i),
            effect,
            float(views.ratio[i]),
            float(p[0][i]),
            max(tails, key=lambda tail: tail.effect),
        )


def _column(features: Features, i: int) -> tuple[str, _Kind, _Feature]:
    feature, tensor = divmod(i, len(features.tensors))
    return features.tensors[tensor], "input" if tensor < features.inputs else "activation", ("amax", "mean")[feature]


def _excess(other: float, calibration: float) -> float:
    return float((other - calibration) / (other + calibration)) if other + calibration > 0 else 0.0


def _p(statistics: npt.NDArray[np.float32]) -> Floats:
    return np.minimum(1, FAMILIES * permutation.adjusted(statistics))


def _enough(units: tuple[int, int], level: float) -> bool:
    """Say whether the least p that so few groups can have is within the level."""
    least = (2 if units[0] == units[1] else 1) / math.comb(sum(units), units[0])
    return FAMILIES * least <= level


def _detectable(delta: Floats, statistics: npt.NDArray[np.float32], level: float) -> float:
    """Return the Cliff's delta from which on a typical feature's p is within the level."""
    spread = delta.std(0)
    varies = spread[spread > 1e-9]
    return float(np.quantile(statistics.max(1), 1 - level / FAMILIES) * np.median(varies)) if varies.size else 0.0


def _guess(units: tuple[int, int]) -> float:
    """Return the same before anything was measured: four standard deviations of Cliff's delta between single samples."""
    return 4 * math.sqrt((1 / units[0] + 1 / units[1]) / 3)


def _needed(units: tuple[int, int], detectable: float, limit: float) -> int:
    """Return how many groups a side show an effect at the limit: the spread falls with their root."""
    return math.ceil(2 / (1 / units[0] + 1 / units[1]) * (detectable / limit) ** 2)


def _too_few(units: tuple[int, int], detectable: float, limit: float, name: str) -> DataError:
    return DataError(
        f"the calibration set has {units[0]} and {name} {units[1]} independent groups or samples: too few to tell any "
        f"drift from chance; about {_needed(units, detectable, limit)} on each side show an effect of {words.short(limit)}"
    )


def _notes(pooled: Pooled, detectable: float, limit: float) -> Iterator[str]:
    if pooled.left_out:
        yield (
            f"{pooled.left_out} samples were left out at random: at most {MOST} of a side and {pooled.most} of a group "
            f"are compared"
        )
    if detectable > limit:
        yield (
            f"with {pooled.units[0]} and {pooled.units[1]} groups or samples only effects above {words.short(detectable)} can "
            f"be told from chance; about {_needed(pooled.units, detectable, limit)} on each side show {words.short(limit)}"
        )
