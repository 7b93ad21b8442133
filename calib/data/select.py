"""Selection: which samples calibrate and which evaluate. Deterministic by seed, through hashes of ids.

A sample's rank is a hash of the seed and its id, so that it depends on no other sample: a larger set holds all that a
smaller one held, and a log that grew keeps what was chosen unless a new sample ranks before it.
"""

from __future__ import annotations

import hashlib
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

    Groups are divided first, in proportion to the two sizes, so that no group is on both sides; then each set takes
    from every stratum its share of the source (largest remainder), by rank.

    Raises:
        DataError: a column does not exist, or a side has too few samples in a stratum.
    """
    for column in filter(None, (stratify, group)):
        if any(column not in record for record in records):
            raise DataError(f"the recipe names the column '{column}', which not every sample of the source has")
    share = calibration / (calibration + evaluation)
    sides: tuple[list[int], list[int]] = ([], [])
    for position, record in enumerate(records):
        key = str(record[group]) if group else str(record["id"])
        sides[_unit(seed, "side", key) >= share].append(position)
    strata = [str(record[stratify]) if stratify else "all" for record in records]
    quotas = [_quotas(strata, size) for size in (calibration, evaluation)]
    chosen = []
    for name, side, quota in zip(("calibration", "evaluation"), sides, quotas, strict=True):
        ranked = sorted(side, key=lambda position: _unit(seed, "rank", str(records[position]["id"])))
        chosen.append(_take(name, ranked, strata, quota))
    return Selection(*chosen)


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
