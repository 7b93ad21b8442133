"""The one pass over a source: what could be chosen is kept, in memory bounded by the sizes asked for.

A sample's rank is a hash of the seed and its id. The lowest ranks are a random sample that depends neither on the order of
the stream nor on its length: a reservoir, of which a larger one holds every smaller one. Kept are the lowest ranks over
all, and those of every stratum, up to the level that fills the same memory again; separately for what suits calibration,
evaluation, and both.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from calib.data.parts import NAMES, Part, Rules, Stratum, before, moment, show, value
from calib.data.source import Item, Record
from calib.errors import ConfigError, DataError

STRATA = 1000
_MULTIPLE = 8  # candidates for each sample asked for: unreadable ones, unlucky groups, pools of diverse selection
_KNOWN = 8192  # ranks by which an id that comes twice is noticed
_LEAST = 16  # candidates of a stratum, whatever the number of strata


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A sample that could be chosen; `fits` says for calibration and evaluation whether it may be there."""

    rank: int
    item: Item
    stratum: Stratum
    group: str
    fits: tuple[bool, bool]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What is kept of a stream.

    Attributes:
        kept: by rank, lowest first.
        counts: for calibration and evaluation, samples of each stratum in the whole stream that they admit.
    """

    kept: tuple[Candidate, ...]
    counts: tuple[Mapping[Stratum, int], Mapping[Stratum, int]]


def rank(seed: int, key: str, purpose: str = "rank") -> int:
    """Return a number that orders samples (by id) or groups at random, and always the same."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{purpose}\0{key}".encode()).digest()[:16], "big")


def gather(items: Iterable[Item], calibration: Part, evaluation: Part, rules: Rules) -> Candidates:
    """Go through a stream once and keep what `choose` needs.

    An id that comes twice is found wherever both samples could be chosen: they have the same rank, so both are kept.
    Elsewhere it is found among the first `_KNOWN` samples, and among those of the lowest ranks of a longer stream.

    Raises:
        ConfigError: a time window without a time column.
        DataError: a column is missing, an id comes twice, there are too many strata, or nothing passes a filter.
    """
    filters = [_Filter(name, part, rules) for name, part in zip(NAMES, (calibration, evaluation), strict=True)]
    size = _MULTIPLE * (calibration.samples + evaluation.samples)
    shelves: dict[tuple[bool, bool], _Shelf] = {}
    ids = _Ids()
    for item in items:
        record = item.record
        order = rank(rules.seed, str(value(record, "id")))
        ids.add(order, record)
        stratum, group = rules.stratum(record), rules.group_of(record)
        fits = (filters[0].admits(record), filters[1].admits(record))
        if not any(fits):
            continue
        shelf = shelves.setdefault(fits, _Shelf(size))
        shelf.add(Candidate(order, item, stratum, group, fits))
        if len(shelf.counts) > STRATA:
            raise DataError(
                f"stratify = {list(rules.stratify)}: more than {STRATA} strata; the last is '{show(stratum)}'. "
                "Choose columns with few values, or make one that sums them up"
            )
    counts = [_total(shelf.counts for fits, shelf in shelves.items() if fits[side]) for side in (0, 1)]
    for known, total in zip(filters, counts, strict=True):
        known.check(total.total())
    kept = sorted({c for shelf in shelves.values() for c in shelf.kept()}, key=lambda c: (c.rank, c.fits))
    for one, other in pairwise(kept):
        if one.rank == other.rank:
            raise _twice(one.item.record)
    return Candidates(tuple(kept), (counts[0], counts[1]))


def _twice(record: Record) -> DataError:
    return DataError(f"sample id '{record['id']}' appears twice; ids must be unique")


class _Ids:
    """Ranks that came: all of a short stream, the lowest of a long one."""

    def __init__(self) -> None:
        self._ranks: set[int] = set()
        self._below = 1 << 128

    def add(self, order: int, record: Record) -> None:
        """Note a sample.

        Raises:
            DataError: it came before.
        """
        if order in self._ranks:
            raise _twice(record)
        if order < self._below:
            self._ranks.add(order)
        if len(self._ranks) > _KNOWN:
            self._ranks = set(sorted(self._ranks)[: _KNOWN // 2])
            self._below = max(self._ranks)


class _Filter:
    """Which samples a part admits."""

    def __init__(self, name: str, part: Part, rules: Rules) -> None:
        self._name, self._where, self._time = name, part.where, rules.time
        self._since, self._until = (moment(text) if text else None for text in (part.since, part.until))
        self._bounds = " and ".join(f"{k} = '{v}'" for k, v in (("since", part.since), ("until", part.until)) if v)
        self._unseen = {(column, text) for column, texts in part.where.items() for text in texts}
        if self._bounds and not rules.time:
            raise ConfigError(f"{name}: {self._bounds} needs the column it speaks of: time = '...'")

    def admits(self, record: Record) -> bool:
        """Return whether a sample is admitted.

        Raises:
            DataError: a column is missing, or its time cannot be compared.
        """
        texts = {column: str(value(record, column)) for column in self._where}
        inside = not self._bounds or self._inside(record)
        if not inside or any(text not in self._where[column] for column, text in texts.items()):
            return False
        if self._unseen:
            self._unseen.difference_update(texts.items())
        return True

    def _inside(self, record: Record) -> bool:
        text = value(record, self._time)
        try:
            time = moment(text)
        except ValueError:
            time = None
        if time is None or any(
            type(bound) is not type(time) for bound in (self._since, self._until) if bound is not None
        ):
            raise DataError(
                f"sample '{record['id']}': {self._time} = {text!r} cannot be compared with {self._name}'s {self._bounds}: "
                "both must be numbers, or both dates and times in ISO 8601"
            )
        return not (self._since is not None and before(time, self._since)) and (
            self._until is None or before(time, self._until)
        )

    def check(self, admitted: int) -> None:
        """Check, after the last sample, that there was something of everything that was asked for.

        Raises:
            DataError: a value that the filter names did not come, or no sample at all.
        """
        if self._unseen:
            named = ", ".join(f"{column} = '{text}'" for column, text in sorted(self._unseen))
            window = f" within {self._bounds}" if self._bounds else ""
            raise DataError(
                f"{self._name}: the source has no sample with {named} that the other filters admit{window}; "
                f"correct the recipe's [{self._name}] where, or leave the value out"
            )
        if not admitted:
            window = f" within {self._bounds} ({self._time})" if self._bounds else ""
            raise DataError(f"{self._name}: the source has no samples{window}; check its options and filters")


class _Shelf:
    """The lowest ranks of one kind of samples: `size` over all, and as many again spread over the strata.

    A stratum keeps the lowest `cap`. With the level m at which sum(min(count, m)) over the strata is `size`, and no more,
    cap = max(m, _LEAST). Counts only grow, so m only falls: what is dropped is never missed, and the order of the stream
    does not matter.
    """

    def __init__(self, size: int) -> None:
        self.counts: Counter[Stratum] = Counter()
        self._size = self._cap = size
        self._added = self._stored = 0
        self._all: list[tuple[int, int, Candidate]] = []
        self._strata: dict[Stratum, list[tuple[int, int, Candidate]]] = {}

    def add(self, candidate: Candidate) -> None:
        self.counts[candidate.stratum] += 1
        self._added += 1
        entry = (-candidate.rank, self._added, candidate)  # the number decides between equal ranks
        _push(self._all, entry, self._size)
        heap = self._strata.setdefault(candidate.stratum, [])
        self._stored -= len(heap)
        _push(heap, entry, self._cap)
        self._stored += len(heap)
        if self._stored > self._size and self._cap > _LEAST:
            self._lower()

    def kept(self) -> Iterator[Candidate]:
        """Yield what is kept, some of it twice."""
        for heap in (self._all, *self._strata.values()):
            yield from (candidate for _, _, candidate in heap)

    def _lower(self) -> None:
        self._cap = max(_level(self.counts.values(), self._size), _LEAST)
        for heap in self._strata.values():
            while len(heap) > self._cap:
                heapq.heappop(heap)
        self._stored = sum(map(len, self._strata.values()))


def _push(heap: list[tuple[int, int, Candidate]], entry: tuple[int, int, Candidate], size: int) -> None:
    if len(heap) < size:
        heapq.heappush(heap, entry)
    else:
        heapq.heappushpop(heap, entry)


def _level(counts: Iterable[int], size: int) -> int:
    """Return the largest m with sum(min(count, m)) <= size."""
    ordered = sorted(counts)
    for place, count in enumerate(ordered):
        share = size // (len(ordered) - place)
        if count > share:
            return share
        size -= count
    return ordered[-1]


def _total(counts: Iterable[Counter[Stratum]]) -> Counter[Stratum]:
    return sum(counts, Counter())
