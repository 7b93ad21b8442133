"""Selection: which samples calibrate and which evaluate. Deterministic by seed, whatever the order of the source.

`gather` goes through the source once; `choose` divides what was kept. Groups are divided first, so that none is on both
sides; then every stratum gets its seats on each side; then the samples that take them are chosen, by rank or by features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calib.data import diverse
from calib.data.gathering import Candidate, Candidates, gather, rank
from calib.data.parts import NAMES, Held, Part, Rules, Stratum
from calib.data.quotas import lacks, note, quotas, too_few
from calib.data.source import Fields, Item, Record
from calib.errors import ConfigError, DataError

__all__ = ["Candidates", "Held", "Part", "Rules", "Selection", "blocks", "choose", "gather", "rank"]

Embed = Callable[[Item], npt.NDArray[np.generic]]
"""From a sample to its vector. Asked for a held sample, its item cannot be read: it is known by its id."""

POOL = 4  # samples that are embedded for each one that is chosen by its features
_ATTEMPTS = 16  # ways to divide the groups that are tried, where large ones hardly fit
_NOTHING_HELD = Held()


@dataclass(frozen=True, slots=True)
class Selection:
    """New samples of the two sets, by rank; `notes` say where they are not quite what was asked for."""

    calibration: tuple[Item, ...]
    evaluation: tuple[Item, ...]
    notes: tuple[str, ...]


def choose(
    candidates: Candidates,
    calibration: Part,
    evaluation: Part,
    rules: Rules,
    *,
    bad: AbstractSet[str] = frozenset(),
    held: Held = _NOTHING_HELD,
    embed: Embed | None = None,
) -> Selection:
    """Choose two disjoint sets of the sizes asked for, no group on both sides.

    Args:
        candidates: of `gather`, with the same parts and rules.
        calibration: what is asked of one set.
        evaluation: and of the other.
        rules: of both.
        bad: ids of samples that cannot be read.
        held: what the sets hold already; it stays, its groups stay on their side, and sizes count it.
        embed: features of a sample, for methods that go by them.

    Raises:
        ConfigError: a method needs features and there are none.
        DataError: the source has too few samples of a stratum, or what is held breaks the rules.
    """
    for part, name in zip((calibration, evaluation), NAMES, strict=True):
        if part.method != "random" and embed is None:
            raise ConfigError(f"{name}: method = '{part.method}' needs features: set the recipe's `features`")
    pinned = _pinned(held, rules)
    taken = {str(record["id"]) for record in (*held.calibration, *held.evaluation)} | bad
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates.kept:
        if str(candidate.item.record["id"]) not in taken:
            groups.setdefault(candidate.group, []).append(candidate)
    for attempt in range(_ATTEMPTS):
        sides = (
            _Side(NAMES[0], calibration, candidates.counts[0], held.calibration, rules),
            _Side(NAMES[1], evaluation, candidates.counts[1], held.evaluation, rules),
        )
        order = sorted(groups, key=lambda key: rank(rules.seed, key, f"side {attempt}"))
        _divide(groups, order, sides, pinned)
        if not any(side.lacks() for side in sides):
            break
    why = f" ({len(bad)} could not be read)" if bad else ""
    why += f" (a '{rules.group}' is on one side only)" if rules.group else ""
    notes: list[str] = []
    chosen = [side.choose(rules.seed, embed, why, notes) for side in sides]
    return Selection(chosen[0], chosen[1], tuple(notes))


def blocks(records: Sequence[Record], group: str, count: int = 16) -> list[int]:
    """Return the block of each sample: at most `count` blocks of nearly equal size, groups undivided.

    A group goes to the smallest block so far, large ones first and equal ones by rank, so that blocks are exchangeable:
    what varies between them would vary between sets.

    Raises:
        DataError: a sample has no such column.
    """
    rules = Rules(group=group)
    groups = [rules.group_of(record) for record in records]
    sizes = Counter(groups)
    filled = [0] * min(count, len(sizes))
    places: dict[str, int] = {}
    for key in sorted(sizes, key=lambda key: (-sizes[key], rank(0, key, "block"))):
        places[key] = filled.index(min(filled))
        filled[places[key]] += sizes[key]
    return [places[key] for key in groups]


class _Side:
    """One of the two sets, while groups are divided and samples chosen."""

    def __init__(
        self, name: str, part: Part, counts: Mapping[Stratum, int], held: tuple[Record, ...], rules: Rules
    ) -> None:
        self.name, self.part, self.held, self._counts = name, part, held, counts
        self._strata = [rules.stratum(record) for record in held]
        self._held = Counter(self._strata)
        self._given = Counter(self._held)
        self._needs = quotas(name, part, counts, self._held, Counter(counts) | self._held)
        self._candidates: dict[Stratum, list[Candidate]] = {}

    def fullness(self, counts: Mapping[Stratum, int]) -> tuple[int, float]:
        """Return how little the side needs a group with so many samples of each stratum: least is most needed."""
        needed = {key: count for key, count in counts.items() if self._needs.get(key)}
        if not needed:
            return (1 if counts else 2), 0
        full = sum(count * self._given[key] / self._needs[key] for key, count in needed.items())
        return 0, full / sum(needed.values())

    def add(self, members: Sequence[Candidate]) -> None:
        """Take a group's samples."""
        for candidate in members:
            self._given[candidate.stratum] += 1
            self._candidates.setdefault(candidate.stratum, []).append(candidate)

    def lacks(self) -> list[str]:
        """Return what the side lacks with the groups that it has."""
        return lacks(self.part, self._quota(), self._given)

    def choose(self, seed: int, embed: Embed | None, why: str, notes: list[str]) -> tuple[Item, ...]:
        """Choose the new samples, by rank."""
        quota = self._quota()
        if needs := self.lacks():
            raise too_few(self.name, self.part, needs, why)
        notes += note(self.name, self.part, quota)
        missing = {key: seats - self._held[key] for key, seats in quota.items() if seats > self._held[key]}
        ranked = {key: sorted(self._candidates[key], key=lambda c: c.rank) for key in missing}
        if self.part.method == "random" or embed is None or not missing:
            chosen = [c for key, count in missing.items() for c in ranked[key][:count]]
        else:
            pools = {key: ranked[key][: POOL * count] for key, count in missing.items()}
            chosen = self._diverse(pools, missing, embed, seed)
            size, all_of_them = sum(map(len, pools.values())), sum(map(len, ranked.values()))
            if size < all_of_them:
                notes.append(f"{self.name}: {self.part.method} chose among {size} samples drawn at random")
        return tuple(c.item for c in sorted(chosen, key=lambda c: c.rank))

    def _quota(self) -> dict[Stratum, int]:
        return quotas(self.name, self.part, self._counts, self._held, self._given)

    def _diverse(
        self, pools: Mapping[Stratum, list[Candidate]], missing: Mapping[Stratum, int], embed: Embed, seed: int
    ) -> list[Candidate]:
        known = [(key, Item(record, _unreadable)) for key, record in zip(self._strata, self.held, strict=True)]
        everything = known + [(key, c.item) for key, pool in pools.items() for c in pool]
        rows = diverse.vectors([item for _, item in everything], embed)
        strata = [key for key, _ in everything]
        places: dict[Stratum, tuple[list[int], list[int]]] = {key: ([], []) for key in pools}
        for place, key in enumerate(strata):
            if key in places:
                places[key][place >= len(known)].append(place)
        method = diverse.METHODS[self.part.method]
        return [
            pools[key][position]
            for key, (old, new) in places.items()
            for position in method(rows[old], rows[new], missing[key], seed)
        ]


def _unreadable() -> Fields:
    raise DataError("a sample that is held already is not read from the source again")


def _pinned(held: Held, rules: Rules) -> dict[str, int]:
    """Return the side of every group that is held."""
    pinned: dict[str, int] = {}
    for number, records in enumerate((held.calibration, held.evaluation)):
        for record in records:
            group = rules.group_of(record)
            if pinned.setdefault(group, number) != number:
                raise DataError(
                    f"the sets to be extended share '{group}' ({rules.group or 'id'}), which must be on one side only: "
                    "build new sets"
                )
    return pinned


def _divide(
    groups: Mapping[str, Sequence[Candidate]], order: Sequence[str], sides: Sequence[_Side], pinned: Mapping[str, int]
) -> None:
    """Give each group, held ones first and then in the given order, to the side that needs it more."""
    for key in sorted(order, key=lambda key: key not in pinned):
        fitting = [[c for c in groups[key] if c.fits[number]] for number in (0, 1)]
        number = pinned.get(key)
        if number is None:
            number = min((0, 1), key=lambda side: sides[side].fullness(Counter(c.stratum for c in fitting[side])))
        sides[number].add(fitting[number])
