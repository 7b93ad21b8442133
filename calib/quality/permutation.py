"""Is a difference between two samples chance? Permutation of whole groups, corrected for many statistics at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
TAIL = 0.1  # of the pooled samples lie in a tail


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Which groups are taken for the other sample: as it is (row 0), then at random, always as many groups.

    Attributes:
        chosen: (b, g), 1 where the group is on the other side.
        starts: (g,), where each group begins; samples are sorted by group.
        samples: how many there are.
    """

    chosen: npt.NDArray[np.float32]
    starts: npt.NDArray[np.intp]
    samples: int

    def sizes(self) -> Floats:
        """Return the number of samples on the other side, (b, 1)."""
        return self.sums(np.ones((self.samples, 1)))

    def sums(self, values: Floats) -> Floats:
        """Return the sum over the other side of (n, k) values, for every labelling: (b, k)."""
        return np.asarray(self.chosen.astype(np.float64) @ np.add.reduceat(values, self.starts, axis=0))

    def columns(self) -> npt.NDArray[np.float32]:
        """Return the label of every sample, (n, b)."""
        lengths = np.diff(np.append(self.starts, self.samples))
        return np.repeat(self.chosen, lengths, axis=1).T


def permuted(first: int, groups: npt.NDArray[np.intp], rows: int, rng: np.random.Generator) -> Labels:
    """Draw labellings.

    Args:
        first: groups of the calibration set; they come before the other's.
        groups: (n,) number of each sample's group, never falling.
        rows: number of labellings with the one that is.
        rng: source of the draws.
    """
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    observed = (np.arange(starts.size) >= first).astype(np.float32)
    drawn = rng.permuted(np.tile(observed, (rows - 1, 1)), axis=1)
    return Labels(np.vstack([observed[None], drawn]), starts, groups.size)


def difference(labels: Labels, values: Floats) -> Floats:
    """Return mean(other) - mean(calibration) of (n, k) values for every labelling: (b, k)."""
    sums, sizes = labels.sums(values), labels.sizes()
    return np.asarray(sums / sizes - (values.sum(0) - sums) / (labels.samples - sizes))


def ranks(values: npt.ArrayLike, axis: int = 0) -> tuple[Floats, Floats]:
    """Return the lowest and the highest rank, from 1, of every value among its equals; their mean is the midrank."""
    from scipy.stats import rankdata

    low = np.asarray(rankdata(values, method="min", axis=axis), np.float64)
    return low, np.asarray(rankdata(values, method="max", axis=axis), np.float64)


def tail(low: Floats, high: Floats) -> Floats:
    """Return how much of every value lies in the highest tenth; equal values share what room there is for them."""
    return np.asarray(np.clip((high - (1 - TAIL) * low.shape[0]) / (high - low + 1), 0, 1))


def standardized(statistics: Floats, *, two_sided: bool) -> npt.NDArray[np.float32]:
    """Return (b, k) statistics in units of their own spread over the labellings; 0 where there is none.

    So that no statistic is heard above the others because it varies more: one that is alike within a group does.
    """
    centred = statistics - statistics.mean(0)
    spread = statistics.std(0)
    result = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-9)
    return np.asarray(np.abs(result) if two_sided else result, np.float32)


def adjusted(statistics: npt.NDArray[np.float32]) -> Floats:
    """Return p of each of k statistics, corrected for all: step-down maximum (Westfall & Young 1993, algorithm 2.8).

    Under "no difference" every row is as likely to be the observed one, so the chance that any p is at most a level is
    at most the level, however the statistics depend on each other.

    Args:
        statistics: (b, k), comparable; row 0 is observed.
    """
    order = np.argsort(-statistics[0], kind="stable")
    # Of each row the largest among a statistic and those observed to be weaker.
    largest = np.maximum.accumulate(statistics[:, order[::-1]], axis=1)[:, ::-1]
    p = (largest >= statistics[0, order] - 1e-4).mean(0)
    result = np.empty(order.size)
    result[order] = np.maximum.accumulate(p)
    return result
