"""Two samples' features as one table, with the group of each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calib.errors import DataError
from calib.features import Features
from calib.quality.permutation import Floats

MOST = 1000  # samples a side; of a larger one as many are drawn: Cliff's delta is then known to .03
LARGEST = 0.9  # quantile of the sizes of groups that both sides' groups are cut to

Groups = tuple[Sequence[str] | None, Sequence[str] | None]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """Both samples, the calibration set first, sorted by group.

    Attributes:
        vectors: (n, 2 t) `Features.vectors`.
        groups: (n,) number of the group; the calibration set's first.
        sizes: samples of either.
        units: groups of either.
        most: samples of a group at most.
        left_out: samples of both that are not among them.
    """

    vectors: Floats
    groups: Places
    sizes: tuple[int, int]
    units: tuple[int, int]
    most: int
    left_out: int


def pool(calibration: Features, other: Features, groups: Groups, name: str, rng: np.random.Generator) -> Pooled:
    """Put two samples into one table.

    Groups are exchanged as wholes, which needs them alike in size: where they are not (documents against single lines),
    the larger are cut at random to what the smaller have, or hardly any drift could be told from chance.

    Raises:
        DataError: the tensors differ, a feature is NaN, a side is empty, or groups are given for one side only.
    """
    _check(calibration, other, groups, name)
    place = {tensor: i for i, tensor in enumerate(other.tensors)}
    order = [place[tensor] for tensor in calibration.tensors]
    order += [len(order) + i for i in order]
    drawn = [_draw(side, named, rng) for side, named in zip((calibration, other), groups, strict=True)]
    most = min(int(np.ceil(np.quantile(np.bincount(number), LARGEST))) for _, number in drawn)
    (first, one), (second, two) = (_cut(*side, most, rng) for side in drawn)
    vectors = np.vstack([_vectors(calibration, first), _vectors(other, second)[:, order]])
    if np.isnan(vectors).any():
        raise DataError(f"NaN among the features of {name} or of the calibration set: make them again")
    units = int(one.max()) + 1, int(two.max()) + 1
    left_out = len(calibration.ids) + len(other.ids) - len(vectors)
    return Pooled(vectors, np.concatenate([one, two + units[0]]), (one.size, two.size), units, most, left_out)


def _check(calibration: Features, other: Features, groups: Groups, name: str) -> None:
    missing = sorted(set(calibration.tensors) ^ set(other.tensors))
    if missing or calibration.inputs != other.inputs:
        raise DataError(
            f"{name} has features of other tensors than the calibration set ({', '.join(missing[:3]) or 'inputs'} "
            f"{'and more ' if len(missing) > 3 else ''}on one side only): make both with the same model and placement"
        )
    if (groups[0] is None) != (groups[1] is None):
        side = "the calibration set" if groups[0] is None else name
        raise DataError(
            f"{side} has no groups and what it is compared with has: give the group column of both, or of neither if all "
            f"samples are independent"
        )
    if not calibration.ids or not other.ids:
        raise DataError(f"{name if calibration.ids else 'the calibration set'} has no samples to compare")


def _draw(features: Features, named: Sequence[str] | None, rng: np.random.Generator) -> tuple[Places, Places]:
    """Return rows, by id so that their order does not matter, and the number of each row's group."""
    chosen = np.argsort(np.asarray(features.ids, np.str_), kind="stable")
    if chosen.size > MOST:
        chosen = chosen[np.sort(rng.permutation(chosen.size)[:MOST])]
    keys = np.asarray(features.ids if named is None else named, np.str_)[chosen]
    return chosen, np.unique(keys, return_inverse=True)[1]


def _cut(rows: Places, number: Places, most: int, rng: np.random.Generator) -> tuple[Places, Places]:
    """Return the rows and their groups' numbers, sorted by group, with at most so many of a group."""
    mixed = rng.permutation(rows.size)
    mixed = mixed[np.argsort(number[mixed], kind="stable")]
    sorted_ = number[mixed]
    kept = np.arange(rows.size) - np.searchsorted(sorted_, sorted_) < most
    return rows[mixed[kept]], sorted_[kept]


def _vectors(features: Features, rows: Places) -> Floats:
    return replace(features, amax=features.amax[rows], mean=features.mean[rows]).vectors()
