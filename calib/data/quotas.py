"""How many samples of a set each stratum gives: highest averages (Webster, Sainte-Laguë), with floors and caps.

The next seat goes to the stratum with the largest weight / (2 x seats + 1). Seats are given one by one, so a larger set
never takes a seat away: it can be extended.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

from calib.data.parts import Part, Stratum, show
from calib.errors import DataError

K = TypeVar("K", bound=Hashable)


def seats(
    weights: Mapping[K, float], count: int, floors: Mapping[K, int], caps: Mapping[K, int] | None = None
) -> dict[K, int]:
    """Divide `count` seats; fewer are given only where `caps` allow no more.

    Of equal averages the first in the order of `weights` gets the seat. Floors are given first, whatever they sum to.
    """
    result = {key: floors.get(key, 0) for key in weights}
    queue = [(-weight / (2 * result[key] + 1), place, key) for place, (key, weight) in enumerate(weights.items())]
    queue = [entry for entry in queue if entry[0] < 0]
    heapq.heapify(queue)
    left = count - sum(result.values())
    while left > 0 and queue:
        _, place, key = queue[0]
        if caps is not None and result[key] >= caps.get(key, 0):
            heapq.heappop(queue)
            continue
        result[key] += 1
        left -= 1
        heapq.heapreplace(queue, (-weights[key] / (2 * result[key] + 1), place, key))
    return result


def quotas(
    name: str, part: Part, counts: Mapping[Stratum, int], held: Counter[Stratum], have: Mapping[Stratum, int]
) -> dict[Stratum, int]:
    """Return how many samples each stratum gives to a set, what it holds already included.

    Args:
        name: of the set.
        part: what is asked for.
        counts: samples of each stratum in the source: the proportions.
        held: samples that stay.
        have: samples of each stratum that the set could take; what it holds included.

    Raises:
        DataError: what is held, or the minimum of every stratum, is more than the set's size.
    """
    strata = sorted(counts.keys() | held.keys())
    if held.total() > part.samples:
        raise DataError(
            f"the {name} set holds {held.total()} samples, more than the recipe's {part.samples}: "
            "extending only adds; ask for more, or build a new set"
        )
    floors = {key: max(held[key], part.minimum if counts.get(key) else 0) for key in strata}
    if sum(floors.values()) > part.samples:
        raise DataError(
            f"the {name} set of {part.samples} samples is too small for at least {part.minimum} of each of "
            f"{len(strata)} strata: it needs {sum(floors.values())}; ask for more samples, or for a smaller minimum"
        )
    if part.balance == "proportional":
        return seats({key: counts.get(key, 0) for key in strata}, part.samples, floors)
    return seats({key: 1 for key in strata}, part.samples, floors, have)


def lacks(part: Part, quota: Mapping[Stratum, int], have: Mapping[Stratum, int]) -> list[str]:
    """Return what a set lacks, in words: "3 more of 'fax'"; nothing where it can be filled."""
    short = {key: seats - have.get(key, 0) for key, seats in quota.items() if seats > have.get(key, 0)}
    unseated = part.samples - sum(quota.values())
    if unseated and not short:  # every stratum gives all that it has
        short = {(): unseated}
    return [f"{missing} more of '{show(key)}'" if key else f"{missing} more" for key, missing in short.items()]


def too_few(name: str, part: Part, needs: list[str], why: str) -> DataError:
    """Return the error that says what a set lacks and what to do; `why` says what may make it short."""
    advice = ", a smaller minimum" if part.minimum else ""
    if part.balance == "proportional" and needs[0].endswith("'"):  # a stratum's name
        advice += ", or balance = 'balanced', where other strata fill the places"
    return DataError(
        f"the source has too few samples for the {name} set: it needs {', '.join(needs)}{why}; "
        f"ask for fewer samples{advice}"
    )


def note(name: str, part: Part, quota: Mapping[Stratum, int]) -> list[str]:
    """Return what a balanced set has to say where its strata are not equally large."""
    most = max(quota.values())
    short = {key: seats for key, seats in quota.items() if seats < most - 1}
    if part.balance == "proportional" or not short:
        return []
    listed = ", ".join(f"'{show(key)}' has {seats}" for key, seats in short.items())
    return [f"{name}: balanced as far as the source goes: {listed}; the others have up to {most}"]
