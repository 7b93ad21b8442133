"""Diverse selection: by what samples look like to the model, or to a user's function.

    kmeans    clusters are strata: seats by their size, at least one each while they last, typical samples first
    kcenter   farthest first (Gonzalez 1985): the next is the one farthest from all chosen, so a set of k holds that of k - 1

Both work on a pool, with what is held already: it stays, and the places around it are taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from calib.data import quotas
from calib.data.source import Item
from calib.errors import DataError

Array = npt.NDArray[np.float64]
_CONSTANT = 1e-9  # a feature that varies by less, relative to its size, varies by rounding


def vectors(items: Sequence[Item], embed: Callable[[Item], npt.NDArray[np.generic]]) -> Array:
    """Return the features of each item, [items, features]: mean 0, deviation 1; what never varies is left out.

    Raises:
        DataError: a vector is not finite or differs in length, or all are equal; the message names the sample.
    """
    rows: list[Array] = []
    for item in items:
        identity = item.record["id"]
        try:
            row = np.asarray(embed(item)).astype(np.float64).ravel()
        except (TypeError, ValueError) as error:
            raise DataError(f"sample '{identity}': its features are not numbers ({error})") from error
        if rows and row.size != rows[0].size:
            raise DataError(
                f"sample '{identity}' has {row.size} features and '{items[0].record['id']}' has {rows[0].size}: "
                "features must be a vector of one length"
            )
        if not np.isfinite(row).all():
            raise DataError(f"sample '{identity}': its features hold NaN or Inf")
        rows.append(row)
    result = np.stack(rows)
    largest = np.abs(result).max(axis=0)
    result /= np.where(largest > 0, largest, 1)  # so that no square overflows
    varies = np.ptp(result, axis=0) > _CONSTANT
    if not varies.any() and len(items) > 1:
        raise DataError(
            f"the features of all {len(items)} samples are equal ('{items[0].record['id']}', "
            f"'{items[1].record['id']}', ...): nothing can be chosen by them; give another function of features"
        )
    if not varies.any():
        return np.zeros((1, 1))
    result = result[:, varies]
    return np.asarray((result - result.mean(axis=0)) / result.std(axis=0))


def kcenter(held: Array, pool: Array, count: int, seed: int) -> list[int]:
    """Return `count` positions in the pool, in the order of choice; the first is the one nearest to the mean.

    Args:
        held: features of what is chosen already, [held, features].
        pool: of what can be chosen, [pool, features]; of equally far ones the first is taken.
        count: how many.
        seed: is not used: there is nothing to draw.
    """
    nearest = np.full(len(pool), np.inf)
    for row in held:
        nearest = np.minimum(nearest, _squares(pool, row))
    chosen: list[int] = []
    while len(chosen) < count:
        first = not len(held) and not chosen
        position = int(np.argmin(_squares(pool, pool.mean(axis=0))) if first else np.argmax(nearest))
        chosen.append(position)
        nearest = np.minimum(nearest, _squares(pool, pool[position]))
        nearest[position] = -1  # not again, also where another is equal to it
    return chosen


def kmeans(held: Array, pool: Array, count: int, seed: int) -> list[int]:
    """Return `count` positions in the pool: from each of about sqrt(total) clusters its share, nearest to the centre first.

    Args:
        held: features of what is chosen already, [held, features].
        pool: of what can be chosen, [pool, features].
        count: how many.
        seed: of the first centres.
    """
    everything = np.concatenate([pool, held])
    total = count + len(held)
    clusters = min(math.ceil(math.sqrt(total)), len(np.unique(everything, axis=0)))
    labels, centres = _clusters(everything, clusters, seed)
    distances = ((everything - centres[labels]) ** 2).sum(axis=1)
    sizes = Counter(labels.tolist())
    kept = Counter(labels[len(pool) :].tolist())
    floors = {cluster: max(1, kept[cluster]) for cluster in sizes}
    seats = quotas.seats(dict(sorted(sizes.items())), total, floors if sum(floors.values()) <= total else kept, sizes)
    chosen = []
    for position in np.argsort(distances[: len(pool)], kind="stable").tolist():
        cluster = int(labels[position])
        if seats[cluster] > kept[cluster]:
            seats[cluster] -= 1
            chosen.append(position)
    return chosen


METHODS: Mapping[str, Callable[[Array, Array, int, int], list[int]]] = {"kmeans": kmeans, "kcenter": kcenter}


def _squares(rows: Array, row: Array) -> Array:
    return np.asarray(((rows - row) ** 2).sum(axis=1))


def _clusters(rows: Array, clusters: int, seed: int) -> tuple[npt.NDArray[np.int64], Array]:
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # several threads add up in any order, and the last bits with them
        fitted = KMeans(clusters, n_init=4, random_state=seed % 2**32).fit(rows)
    return fitted.labels_.astype(np.int64), np.asarray(fitted.cluster_centers_, np.float64)
