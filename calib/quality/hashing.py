"""Short fingerprints of prepared inputs: alike where two samples look alike, whatever their size, brightness or noise.

Kept libraries were no help: imagehash takes PIL pictures, not prepared arrays, and its 8 x 8 grid cannot tell one text line
from another; datasketch is for sets only and its hashes are eight times as large.

1. Pictures, signals, vectors (floats and integers of 8 or 16 bits): channels averaged, area mean to a fixed grid, DCT; the
   signs of up to 512 low frequencies, of each sample less the average one. So what all samples share (a page's layout, a
   fixed camera's background) says nothing. The constant part and the contrast do not matter. The weakest third of a
   sample's frequencies is masked: its signs turn over by noise alone.
2. Ids (wider integers, bool): 512 one-bit MinHashes (Li & König 2010) of runs of three. Two samples that share the part J
   of their runs differ in (1 - J) / 2 of the bits.

Unrelated samples differ in half of the bits. An input that is constant, too small for 64 bits, or (ids) made of fewer than
8 different runs is plain: it has no fingerprint, since all blank pages would look alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

BITS = 512
LEAST_BITS = 64
LEAST_RUNS = 8
MASKED = 1 / 3
LEAST_SHARED = 24  # bits that both samples of a pair must have unmasked
CENTRED = 16  # samples from which on their average is taken off
_SMALL_ROWS = 16  # a matrix with so few rows or columns is a signal of so many channels
_CHANNELS = 4

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """How the samples of one input are hashed: by the lowest rows x columns frequencies less `average`, or as ids."""

    rows: int
    columns: int
    average: npt.NDArray[np.float32] | None  # None: ids, or too small
    ids: bool = False

    @property
    def bits(self) -> int:
        """Return the length of a hash; 0: the input has none."""
        if self.average is None:
            return BITS if self.ids else 0
        return self.average.size


def scheme(arrays: Sequence[Array]) -> Scheme:
    """Return how to hash an input, from a few of its samples (no batch dimension); nothing is taken off yet."""
    if is_ids(arrays[0]):
        return Scheme(0, 0, None, ids=True)
    shapes = np.median([plane(array[None]).shape[1:] for array in arrays], axis=0)
    rows, columns = _frequencies(int(shapes[0]), int(shapes[1]))
    if rows * columns <= LEAST_BITS:
        return Scheme(0, 0, None)
    return Scheme(rows, columns, np.zeros(rows * columns - 1, np.float32))


def averaged(how: Scheme, batches: Iterable[Array]) -> Scheme:
    """Return the same less the average sample of many; as it is where there are fewer than 16, or for ids."""
    if how.average is None:
        return how
    total, count = np.zeros(how.average.size), 0
    for batch in batches:
        found = spectrum(batch, how)
        total += found.sum(0, dtype=np.float64)
        count += int((np.abs(found).max(1) > 0).sum())
    return how if count < CENTRED else replace(how, average=(total / count).astype(np.float32))


def hashes(batch: Array, how: Scheme) -> tuple[Words, npt.NDArray[np.bool_]]:
    """Return the hash of every sample of a batch [n, ...], (n, 2 w): its signs and their mask; and which are plain."""
    if not how.bits:
        return np.zeros((len(batch), 0), np.uint64), np.ones(len(batch), np.bool_)
    if how.average is None:
        runs = [_ids(sample) for sample in batch]
        signs = np.array([bits if bits is not None else np.zeros(BITS, np.bool_) for bits in runs])
        plain = np.array([bits is None for bits in runs])
        strong = np.ones_like(signs)
    else:
        found = spectrum(batch, how)
        rest = found - how.average
        plain = (np.abs(found).max(1) == 0) | (np.linalg.norm(rest, axis=1) < 1e-3)
        signs = rest > 0
        strong = np.abs(rest) >= np.quantile(np.abs(rest), MASKED, axis=1, keepdims=True)
    return np.hstack([_packed(signs), _packed(strong)]), plain


def differing(one: Words, two: Words) -> npt.NDArray[np.float32]:
    """Return the share of the bits unmasked in both that differ, of each of the one and each of the two."""
    half = one.shape[1] // 2
    differ = np.zeros((len(one), len(two)), np.uint16)
    shared = np.zeros_like(differ)
    for word in range(half):
        mask = one[:, None, half + word] & two[None, :, half + word]
        shared += np.bitwise_count(mask)
        differ += np.bitwise_count((one[:, None, word] ^ two[None, :, word]) & mask)
    share = differ.astype(np.float32) / np.maximum(shared, 1).astype(np.float32)
    return np.asarray(np.where(shared < LEAST_SHARED, np.inf, share), np.float32)


def is_ids(array: Array) -> bool:
    """Say whether the values are names, of which being near means nothing."""
    return array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.dtype.itemsize > 2)


def plane(batch: Array) -> npt.NDArray[np.float32]:
    """Return a batch as [n, rows, columns]: channels and other leading axes averaged, a signal's channels as rows."""
    values = batch.astype(np.float32, copy=False)
    if values.ndim <= 2:
        return values.reshape(len(values), 1, -1)
    if values.ndim == 4 and values.shape[1] > _CHANNELS >= values.shape[-1]:
        values = values.mean(-1)
    values = values.mean(tuple(range(1, values.ndim - 2))) if values.ndim > 3 else values
    if values.shape[2] <= _SMALL_ROWS and values.shape[2] < values.shape[1]:
        values = values.swapaxes(1, 2)
    return np.asarray(values)


def _packed(bits: npt.NDArray[np.bool_]) -> Words:
    packed = np.packbits(bits, axis=1)
    padded = np.zeros((len(bits), -(-packed.shape[1] // 8) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def _frequencies(rows: int, columns: int) -> tuple[int, int]:
    """Return how many frequencies each way: 512 in all, the longer side more, none finer than three values.

    A small input gives finer ones too, until there are 64. Nothing that a shift by one value turns over, if possible.
    """
    for finest in (3, 2, 1):
        most = rows if rows <= _SMALL_ROWS else rows // finest, columns // finest
        if most[0] * most[1] > LEAST_BITS:
            break
    if not most[0] * most[1]:
        return 0, 0
    wanted = round((BITS / (columns / rows) ** 0.5) ** 0.5)
    first = most[0] if rows <= _SMALL_ROWS else min(max(wanted, 1), most[0])
    second = min(BITS // first, most[1])
    return min(BITS // second, most[0]), second


def spectrum(batch: Array, how: Scheme) -> npt.NDArray[np.float32]:
    """Return the lowest frequencies of every sample without the constant one, of length 1; 0 where a sample is constant."""
    values = plane(batch)
    centred = values - values.mean((1, 2), keepdims=True, dtype=np.float64).astype(np.float32)
    down, across = _transform(values.shape[1], how.rows), _transform(values.shape[2], how.columns)
    found = (down @ centred @ across.T).reshape(len(values), -1)[:, 1:]
    flat = values.max((1, 2)) == values.min((1, 2))
    length = np.linalg.norm(found, axis=1)
    length[flat | (length == 0)] = np.inf
    return np.asarray(found / length[:, None])


@lru_cache(maxsize=256)
def _transform(size: int, frequencies: int) -> npt.NDArray[np.float32]:
    """Return the matrix that takes `size` values to their area means on a fixed grid, and these to low frequencies."""
    from scipy.fft import dct

    grid = 2 * frequencies
    edges = np.linspace(0, size, grid + 1)
    cells = np.arange(size)
    overlap = np.minimum(edges[1:, None], cells + 1) - np.maximum(edges[:-1, None], cells)
    mean = np.clip(overlap, 0, None) * grid / size
    return np.asarray(dct(mean, axis=0, norm="ortho")[:frequencies], np.float32)


def _ids(sample: Array) -> npt.NDArray[np.bool_] | None:
    """Return the MinHash bits of a sample of ids; None where it holds too few different runs."""
    flat = sample.reshape(-1).astype(np.int64).view(np.uint64)
    if flat.size < LEAST_RUNS + 2:
        return None
    with np.errstate(over="ignore"):
        runs = np.unique(_mixed(_mixed(_mixed(flat[:-2]) + flat[1:-1]) + flat[2:]))
        if runs.size < LEAST_RUNS:
            return None
        odd, added = _multipliers()
        least = np.full(BITS, np.iinfo(np.uint64).max, np.uint64)
        for start in range(0, runs.size, 4096):
            part = runs[start : start + 4096, None] * odd + added
            least = np.minimum(least, part.min(0))
        return np.asarray(_mixed(least) & np.uint64(1), np.bool_)


@lru_cache(maxsize=1)
def _multipliers() -> tuple[Words, Words]:
    rng = np.random.default_rng(2026)
    drawn = rng.integers(0, 2**63, (2, BITS), np.uint64)
    return drawn[0] * np.uint64(2) + np.uint64(1), drawn[1]


def _mixed(values: Words) -> Words:
    """Return well-spread hashes of 64-bit values (the end of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
