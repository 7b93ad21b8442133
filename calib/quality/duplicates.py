"""Which samples of another set are in the calibration set too, or nearly?

Measured at the default `near`, .09 of the bits, on 256 + 400 lines of `datasets/lab-reports.toml`: the same line is found
as JPEG of quality 50, with other brightness and contrast, with slight noise, shifted by one pixel (64 of 64 each), and
wider or narrower by 4 of about 400 pixels (127 of 128). 4 of the 400 lines (102,400 pairs) are called near a different
one, such as "LDL 1.8 mmol/L [1.6-3.4]" and "LDL 3.2 mmol/L [1.6-3.4]" in the same type: that two characters differ goes
unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from calib.data.sets import SampleSet
from calib.errors import ConfigError, DataError
from calib.quality import hashing
from calib.quality.hashing import Scheme, Words
from calib.quality.result import Duplicate, Duplicates

NEAR = 0.09  # of the bits differ at most
LISTED = 100
REFERENCE = 512  # samples that say how an input is hashed
READ = 16  # samples at once
ROWS, COLUMNS = 256, 4096  # pairs compared at once
ALIKE = 0.5  # of the pairs of the calibration set: an input that is near in more (positions) says nothing


@dataclass(frozen=True, slots=True, eq=False)
class _Hashes:
    """The samples of a set, sorted by id: hash and "no hash" of each input."""

    ids: list[str]
    words: dict[str, Words]
    plain: dict[str, npt.NDArray[np.bool_]]


def duplicates(calibration: SampleSet, other: SampleSet, *, near: float = NEAR, name: str) -> Duplicates:
    """Find the samples of another set that are in the calibration set too.

    Exact: equal sha256. Near: in every input that has a fingerprint (see `hashing`) at most `near` of the bits differ; a
    sample without any, such as a blank page, can only be exact. Memory holds 128 bytes a sample and input.

    Args:
        calibration: one set.
        other: the other; its samples are counted, and listed each with the nearest of the calibration set.
        near: share of bits, 0 to .3; unrelated samples differ in .5.
        name: of the other.

    Raises:
        ConfigError: `near` is out of range.
        DataError: the sets' inputs differ, or a sample cannot be read.
    """
    if not 0 <= near <= 0.3:
        raise ConfigError(f"near must be between 0 and .3 (unrelated samples differ in .5 of the bits), not {near}")
    schemes = _schemes(calibration, near)
    held = {entry.sha256: entry.id for entry in sorted(calibration.entries, key=lambda entry: entry.id, reverse=True)}
    entries = sorted(other.entries, key=lambda entry: entry.id)
    exact = [Duplicate(held[entry.sha256], entry.id, "exact", 1.0) for entry in entries if entry.sha256 in held]
    rest = tuple(entry for entry in other.entries if entry.sha256 not in held)
    close: list[Duplicate] = []
    if rest:
        mine = _hashed(calibration, schemes, "the calibration set")
        theirs = _hashed(replace(other, entries=rest), schemes, name)
        close = sorted(_near(mine, theirs, schemes, near), key=lambda pair: (-pair.similarity, pair.other))
    return Duplicates(name, len(exact), len(close), tuple((exact + close)[:LISTED]), _method(schemes, near))


def _schemes(calibration: SampleSet, near: float) -> Mapping[str, Scheme]:
    """Return how each input is hashed, from samples that do not depend on the set's order."""
    entries = tuple(sorted(calibration.entries, key=lambda entry: entry.sha256)[:REFERENCE])
    few: dict[str, list[npt.NDArray[np.generic]]] = {}
    for batch in replace(calibration, entries=entries[:READ]).batches(READ):
        for key, arrays in batch.inputs.items():
            few.setdefault(key, []).extend(arrays)
    some = replace(calibration, entries=entries)
    schemes = {
        key: hashing.averaged(hashing.scheme(arrays), (batch.inputs[key] for batch in some.batches(READ)))
        for key, arrays in few.items()
    }
    return _telling(schemes, _hashed(some, schemes, "the calibration set"), near)


def _telling(schemes: Mapping[str, Scheme], seen: _Hashes, near: float) -> Mapping[str, Scheme]:
    """Return the schemes without inputs that are alike in most samples, such as positions, unless none would be left."""
    rows = np.arange(len(seen.ids))
    left = {}
    for key, how in schemes.items():
        open_ = rows[~seen.plain[key]]
        words = seen.words[key][open_]
        pairs = len(open_) * (len(open_) - 1)
        alike = (hashing.differing(words, words) <= near).sum() - len(open_)
        if how.bits and pairs and alike <= ALIKE * pairs:
            left[key] = how
    return left or {key: how for key, how in schemes.items() if how.bits}


def _hashed(samples: SampleSet, schemes: Mapping[str, Scheme], where: str) -> _Hashes:
    order = np.empty(len(samples), np.intp)
    order[sorted(range(len(samples)), key=lambda i: samples.entries[i].id)] = np.arange(len(samples))
    words = {key: np.zeros((len(samples), 2 * -(-how.bits // 64)), np.uint64) for key, how in schemes.items()}
    plain = {key: np.ones(len(samples), np.bool_) for key in schemes}
    for batch in samples.batches(READ):
        places = order[list(batch.positions)]
        for key, how in schemes.items():
            if key not in batch.inputs or hashing.is_ids(batch.inputs[key]) != how.ids:
                raise DataError(
                    f"{where}, sample '{batch.ids[0]}': input '{key}' is missing or of another kind than in the calibration "
                    f"set: prepare both the same way"
                )
            words[key][places], plain[key][places] = hashing.hashes(batch.inputs[key], how)
    return _Hashes(sorted(entry.id for entry in samples.entries), words, plain)


def _near(mine: _Hashes, theirs: _Hashes, schemes: Mapping[str, Scheme], near: float) -> Iterator[Duplicate]:
    """Yield each of their samples that is near one of mine, with the nearest."""
    for start in range(0, len(theirs.ids), ROWS):
        rows = slice(start, start + ROWS)
        count = len(theirs.ids[rows])
        best, partner = np.full(count, np.inf, np.float32), np.zeros(count, np.intp)
        for first in range(0, len(mine.ids), COLUMNS):
            share = _shares(mine, theirs, schemes, rows, slice(first, first + COLUMNS))
            place = share.argmin(1)
            least = share[np.arange(count), place]
            closer = least < best
            best[closer], partner[closer] = least[closer], first + place[closer]
        for i in np.flatnonzero(best <= near):
            yield Duplicate(mine.ids[partner[i]], theirs.ids[start + i], "near", 1 - 2 * float(best[i]))


def _shares(
    mine: _Hashes, theirs: _Hashes, schemes: Mapping[str, Scheme], rows: slice, columns: slice
) -> npt.NDArray[np.float32]:
    """Return the share of bits that differ in the input where most do; inf where no input of the pair has a say."""
    worst: npt.NDArray[np.float32] | None = None
    told: npt.NDArray[np.bool_] | None = None
    for key in schemes:
        share = hashing.differing(theirs.words[key][rows], mine.words[key][columns])
        one, two = theirs.plain[key][rows, None], mine.plain[key][None, columns]
        share[one & two] = 0
        share[one ^ two] = np.inf
        worst = share if worst is None else np.maximum(worst, share)
        told = ~(one | two) if told is None else told | ~(one | two)
    if worst is None or told is None:
        return np.full((len(theirs.ids[rows]), len(mine.ids[columns])), np.inf, np.float32)
    worst[~told] = np.inf
    return worst


def _method(schemes: Mapping[str, Scheme], near: float) -> str:
    exact = "exact: equal sha256 of the prepared inputs"
    if not schemes:
        return f"{exact}; near: not looked for, every input is too small"
    bits = ", ".join(
        f"{key}: {how.bits} {'of its runs of three' if how.ids else 'of its low frequencies'}"
        for key, how in sorted(schemes.items())
    )
    return f"{exact}; near: at most {near:.0%} of the bits of every input's hash differ ({bits})"
