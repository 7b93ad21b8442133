"""Sample sets on disk: npz shards of model-ready inputs and a manifest with a sha256 for each sample.

    calibration/manifest.json      how it was made, and the samples in order: id, sha256, shard, row, metadata, block
    calibration/shard-00000.npz    one array an input, [n, ...], for n samples of equal shapes and of one block

A block is a part of the set that is like any other (whole groups, by rank): what varies between blocks would vary between
sets. `calib.data.writing` writes them.

A plain .npz of stacked arrays, [N, ...] an input, is read as a set too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import files
from calib.data.batch import Batch, InputSpec, check, fixed_batch
from calib.data.sources import expand, npy
from calib.errors import DataError
from calib.histogram import nonfinite_rows

FORMAT = "calib-samples"
FORMAT_VERSION = 2
SHARD_SAMPLES = 64
BLOCKS = 16

Inputs = Mapping[str, npt.NDArray[np.generic]]
Metadata = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample of a set."""

    id: str
    sha256: str
    shard: str
    row: int
    metadata: Metadata
    block: int = 0


@dataclass(frozen=True, slots=True)
class SampleSet:
    """A set that can be gone through any number of times.

    Attributes:
        where: folder, or npz file.
        entries: the samples in their order.
        recipe: name of the recipe that made it; "" for a plain npz.
        target: metadata column with the right answer; "" when there is none.
        stratify: metadata columns that the recipe stratifies by.
        group: metadata column of what belongs together (document, patient); "" when there is none.
        preparation: how the inputs were made of the source's fields, as `calib.data.prepare` records it; empty for a
            plain npz.
        notes: what was skipped or chosen otherwise than asked.
    """

    where: Path
    entries: tuple[Entry, ...]
    recipe: str = ""
    target: str = ""
    stratify: tuple[str, ...] = ()
    group: str = ""
    preparation: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.entries)

    @property
    def sha256(self) -> str:
        """Digest of the samples' digests; it does not depend on their order."""
        return hashlib.sha256("\n".join(sorted(entry.sha256 for entry in self.entries)).encode()).hexdigest()

    @property
    def blocks(self) -> list[int]:
        """Block of each sample."""
        return [entry.block for entry in self.entries]

    def strata(self) -> list[str]:
        """Return each sample's stratum: its values of the stratify columns, joined; "" where there are none."""
        return [" / ".join(str(entry.metadata.get(name, "")) for name in self.stratify) for entry in self.entries]

    def column(self, name: str) -> list[str]:
        """Return a metadata column as text, one value a sample."""
        return [str(entry.metadata.get(name, "")) for entry in self.entries]

    def groups(self) -> list[str] | None:
        """Return what each sample belongs to (document, patient); None where the recipe names no group."""
        return self.column(self.group) if self.group else None

    def batches(self, size: int, specs: Mapping[str, InputSpec] | None = None) -> Iterator[Batch]:
        """Yield every sample once, block by block, in batches of samples of equal shapes, `size` at most.

        A model whose batch is fixed gets batches of that size, whatever `size` is.

        Raises:
            DataError: a shard is missing, truncated or not what the manifest says; with `specs` also where a sample
                does not fit the model's inputs.
        """
        fixed = fixed_batch(specs or {})
        for batch in self._joined(fixed) if fixed > 1 else self._parts(fixed or size):
            if specs is not None:
                check(batch, specs, self.where)
            yield batch

    def _parts(self, size: int) -> Iterator[Batch]:
        parts: dict[tuple[int, str], list[int]] = {}
        for position, entry in enumerate(self.entries):
            parts.setdefault((entry.block, entry.shard), []).append(position)
        for (_, shard), positions in sorted(parts.items()):
            arrays = self._read(shard, positions)
            for start in range(0, len(positions), size):
                chosen = positions[start : start + size]
                rows = [self.entries[position].row for position in chosen]
                inputs = {name: array[rows] for name, array in arrays.items()}
                yield Batch(inputs, tuple(self.entries[position].id for position in chosen), tuple(chosen))

    def _joined(self, size: int) -> Iterator[Batch]:
        """Yield full batches, also of samples of several blocks; what is left of a shape comes last."""
        waiting: dict[tuple[Any, ...], list[Batch]] = {}
        for one in self._parts(1):
            shape = tuple(sorted((name, array.shape) for name, array in one.inputs.items()))
            same = waiting.setdefault(shape, [])
            same.append(one)
            if len(same) == size:
                yield _join(waiting.pop(shape))
        yield from map(_join, waiting.values())

    def one(self, position: int) -> dict[str, npt.NDArray[np.generic]]:
        """Return one sample's inputs, without the batch dimension."""
        entry = self.entries[position]
        return {name: array[entry.row] for name, array in self._read(entry.shard, [position]).items()}

    def _read(self, shard: str, positions: Sequence[int]) -> dict[str, npt.NDArray[np.generic]]:
        path = files.inside(self.where, shard, DataError) if shard else self.where
        arrays = files.read_npz(path) if shard else dict(_mapped(path, *_version(path)))
        last = max(self.entries[position].row for position in positions)
        for name, array in arrays.items():
            if array.ndim == 0 or array.shape[0] <= last:
                raise DataError(f"{path}: array '{name}' has shape {array.shape} and the manifest needs row {last}")
        for position in positions:
            entry = self.entries[position]
            if digest({name: array[entry.row] for name, array in arrays.items()}) != entry.sha256:
                raise DataError(
                    f"{path}: sample '{entry.id}' is not the one that the manifest lists: build the set again"
                )
        return arrays


def _join(batches: Sequence[Batch]) -> Batch:
    inputs = {name: np.concatenate([batch.inputs[name] for batch in batches]) for name in batches[0].inputs}
    return Batch(inputs, tuple(b.ids[0] for b in batches), tuple(b.positions[0] for b in batches))


def read(path: Path) -> SampleSet:
    """Open a set: a folder with a manifest, or an .npz of stacked arrays.

    Raises:
        DataError: neither, or the manifest is not valid.
    """
    if path.is_file():
        return _from_npz(path)
    document = files.read_json(path / "manifest.json", FORMAT, FORMAT_VERSION)
    try:
        entries = tuple(_entry(sample) for sample in document["samples"])
        named: dict[str, Any] = {key: str(document.get(key, "")) for key in ("recipe", "target", "group")}
        named |= {key: tuple(map(str, document.get(key, ()))) for key in ("stratify", "notes")}
        preparation = dict(document.get("preparation", {}))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path / 'manifest.json'} is not a valid manifest ({error}); build the set again") from error
    return SampleSet(path, entries, **named, preparation=preparation)


def digest(inputs: Inputs) -> str:
    """Return the sha256 of a sample: names, dtypes, shapes and values of its inputs."""
    result = hashlib.sha256()
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        result.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        result.update(array.data)
    return result.hexdigest()


def _from_npz(path: Path) -> SampleSet:
    arrays = _mapped(path, *_version(path))
    sizes = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    if len(sizes) != 1 or min(sizes, default=0) < 1:
        raise DataError(f"{path} must hold one array an input, [N, ...], all with the same N >= 1")
    count, entries = sizes.pop(), []
    for row in range(count):
        inputs = {name: array[row] for name, array in arrays.items()}
        check_finite(f"row-{row}", inputs)
        entries.append(Entry(f"row-{row}", digest(inputs), "", row, {}, row * BLOCKS // count))
    return SampleSet(path, tuple(entries))


def _version(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=2)
def _mapped(path: Path, changed: int, size: int) -> Mapping[str, npt.NDArray[np.generic]]:
    """Map the arrays of a plain npz; each block of the set asks for it."""
    return npy.read_npz(path, expand.LIMIT_MB)


def _entry(sample: Mapping[str, Any]) -> Entry:
    entry = Entry(**sample)
    if not (
        isinstance(entry.row, int) and entry.row >= 0 and isinstance(entry.shard, str) and isinstance(entry.block, int)
    ):
        raise ValueError(f"sample '{entry.id}': row {entry.row!r} of shard {entry.shard!r}, block {entry.block!r}")
    return entry


def check_finite(identity: str, inputs: Inputs) -> None:
    """Check a sample's values.

    Raises:
        DataError: an input holds NaN or Inf.
    """
    for name, array in inputs.items():
        if np.issubdtype(array.dtype, np.floating) and nonfinite_rows(array[None]).size:
            raise DataError(f"sample '{identity}': input '{name}' holds NaN or Inf; repair its preprocessing")
