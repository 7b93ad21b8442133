"""Selection: which samples calibrate and which evaluate. Deterministic by seed, through hashes of ids.

A sample's rank is a hash of the seed and its id, so that it depends neither on the order of the source nor on how many
samples are asked for.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calib.errors import DataError

Record = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Selection:
    """Positions in the source, in rank order."""

    calibration: tuple[int, ...]
    evaluation: tuple[int, ...]


def select(
    records: Sequence[Record], calibration: int, evaluation: int, *, seed: int, stratify: str = "", group: str = ""
) -> Selection:
    """Choose two disjoint sets of the given sizes.

    Groups are divided first, stratum by stratum in proportion to the two sizes, so that no group is on both sides; then
    each set takes from every stratum its share of the source (largest remainder), by rank.

    Raises:
        DataError: a column does not exist, or a side has too few samples in a stratum.
    """
    for column in filter(None, (stratify, group)):
        if any(column not in record for record in records):
            raise DataError(f"the recipe names the column '{column}', which not every sample of the source has")
    strata = [str(record[stratify]) if stratify else "all" for record in records]
    groups: dict[str, list[int]] = {}
    for position, record in enumerate(records):
        groups.setdefault(str(record[group] if group else record["id"]), []).append(position)
    sides = _divide(groups, strata, calibration / (calibration + evaluation), seed)
    quotas = [_quotas(strata, size) for size in (calibration, evaluation)]
    chosen = []
    for name, side, quota in zip(("calibration", "evaluation"), sides, quotas, strict=True):
        ranked = sorted(side, key=lambda position: _unit(seed, "rank", str(records[position]["id"])))
        chosen.append(_take(name, ranked, strata, quota))
    return Selection(*chosen)


def _divide(
    groups: Mapping[str, Sequence[int]], strata: Sequence[str], share: float, seed: int
) -> tuple[list[int], list[int]]:
    """Give each group, in rank order, to the side that lacks most in the group's main stratum."""
    sides: tuple[list[int], list[int]] = ([], [])
    given: dict[str, list[int]] = {}
    for key in sorted(groups, key=lambda key: _unit(seed, "side", key)):
        members = groups[key]
        counts = Counter(strata[position] for position in members)
        so_far = given.setdefault(min(counts, key=lambda stratum: (-counts[stratum], stratum)), [0, 0])
        side = 0 if so_far[0] < share * (sum(so_far) + len(members)) else 1
        so_far[side] += len(members)
        sides[side].extend(members)
    return sides


def _take(name: str, ranked: list[int], strata: list[str], quota: dict[str, int]) -> tuple[int, ...]:
    left = dict(quota)
    result = []
    for position in ranked:
        if left[strata[position]] > 0:
            left[strata[position]] -= 1
            result.append(position)
    short = {stratum: missing for stratum, missing in left.items() if missing}
    if short:
        needs = ", ".join(f"{missing} more of '{stratum}'" for stratum, missing in short.items())
        raise DataError(f"the source has too few samples for the {name} set: it needs {needs}; ask for fewer samples")
    return tuple(result)


def _quotas(strata: Sequence[str], size: int) -> dict[str, int]:
    counts = {stratum: strata.count(stratum) for stratum in sorted(set(strata))}
    exact = {stratum: size * count / len(strata) for stratum, count in counts.items()}
    quota = {stratum: int(value) for stratum, value in exact.items()}
    by_remainder = sorted(exact, key=lambda stratum: (quota[stratum] - exact[stratum], stratum))
    for stratum in by_remainder[: size - sum(quota.values())]:
        quota[stratum] += 1
    return quota


def _unit(seed: int, purpose: str, key: str) -> float:
    digest = hashlib.sha256(f"{seed}\0{purpose}\0{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
