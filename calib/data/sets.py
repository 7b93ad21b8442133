"""Sample sets on disk: npz shards of model-ready inputs and a manifest with a sha256 for each sample.

    calibration/manifest.json      samples in order: id, sha256, shard, row, metadata
    calibration/shard-00000.npz    one array an input, [n, ...], for n samples of equal shapes

A plain .npz of stacked arrays, [N, ...] an input, is read as a set too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from calib import files
from calib.errors import DataError
from calib.histogram import nonfinite_rows

FORMAT = "calib-samples"
FORMAT_VERSION = 1
SHARD_SAMPLES = 64

Inputs = Mapping[str, npt.NDArray[np.generic]]
Metadata = Mapping[str, str | int | float]


class InputSpec(Protocol):
    """What a runtime says of one model input; `onnxruntime.NodeArg` has this form."""

    @property
    def type(self) -> str:
        """Element type, as "tensor(float)"."""
        ...

    @property
    def shape(self) -> Sequence[int | str | None]:
        """Shape with the batch dimension; a name or None where a size is free."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Samples stacked along a new first axis; `positions` are their places in the set."""

    inputs: dict[str, npt.NDArray[np.generic]]
    ids: tuple[str, ...]
    positions: tuple[int, ...]


class Samples(Protocol):
    """What a pass over data needs; `SampleSet` on disk, or anything that makes batches.

    Attributes:
        where: named in error messages.
        sha256: identifies the data; statistics and scales are bound to it.
    """

    @property
    def where(self) -> Path:
        """Name for error messages."""
        ...

    @property
    def sha256(self) -> str:
        """Identity of the data."""
        ...

    def __len__(self) -> int:
        """Return the number of samples."""
        ...

    def batches(self, size: int, specs: Mapping[str, InputSpec] | None = None) -> Iterator[Batch]:
        """Yield every sample once, checked against the model's inputs."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample of a set."""

    id: str
    sha256: str
    shard: str
    row: int
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class SampleSet:
    """A set that can be gone through any number of times.

    Attributes:
        where: folder, or npz file.
        entries: the samples in their order.
        recipe: name of the recipe that made it; "" for a plain npz.
        target: metadata column with the right answer; "" when there is none.
        stratify: metadata column that the recipe stratifies by; "" when there is none.
        group: metadata column of what belongs together (document, patient); "" when there is none.
    """

    where: Path
    entries: tuple[Entry, ...]
    recipe: str = ""
    target: str = ""
    stratify: str = ""
    group: str = ""

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.entries)

    @property
    def sha256(self) -> str:
        """Digest of the samples' digests; it does not depend on their order."""
        return hashlib.sha256("\n".join(sorted(entry.sha256 for entry in self.entries)).encode()).hexdigest()

    def column(self, name: str) -> list[str]:
        """Return a metadata column as text, one value a sample."""
        return [str(entry.metadata.get(name, "")) for entry in self.entries]

    def batches(self, size: int, specs: Mapping[str, InputSpec] | None = None) -> Iterator[Batch]:
        """Yield every sample once, in batches of samples of equal shapes, `size` at most.

        A model whose batch is fixed gets batches of that size, whatever `size` is.

        Raises:
            DataError: a shard is missing, truncated or not what the manifest says; with `specs` also where a sample
                does not fit the model's inputs.
        """
        by_shard: dict[str, list[int]] = {}
        for position, entry in enumerate(self.entries):
            by_shard.setdefault(entry.shard, []).append(position)
        size = _fixed_batch(specs or {}) or size
        for shard, positions in by_shard.items():
            arrays = self._read(shard, positions)
            for start in range(0, len(positions), size):
                chosen = positions[start : start + size]
                rows = [self.entries[position].row for position in chosen]
                batch = Batch(
                    {name: array[rows] for name, array in arrays.items()},
                    tuple(self.entries[position].id for position in chosen),
                    tuple(chosen),
                )
                if specs is not None:
                    check(batch, specs, self.where)
                yield batch

    def one(self, position: int) -> dict[str, npt.NDArray[np.generic]]:
        """Return one sample's inputs, without the batch dimension."""
        entry = self.entries[position]
        return {name: array[entry.row] for name, array in self._read(entry.shard, [position]).items()}

    def _read(self, shard: str, positions: Sequence[int]) -> dict[str, npt.NDArray[np.generic]]:
        path = self.where if not shard else files.inside(self.where, shard, DataError)
        arrays = files.read_npz(path)
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


def check(batch: Batch, specs: Mapping[str, InputSpec], where: Path) -> None:
    """Check a batch against the model's inputs.

    Raises:
        DataError: an input is missing or unknown, or a dtype, rank or size differs; the message names the sample.
    """
    sample = f"{where}, sample '{batch.ids[0]}'"
    missing, extra = sorted(specs.keys() - batch.inputs.keys()), sorted(batch.inputs.keys() - specs.keys())
    if missing or extra:
        problems = [f"the model's input {name!r} is missing" for name in missing]
        problems += [f"the model has no input {name!r}" for name in extra]
        raise DataError(f"{sample}: {'; '.join(problems)} (the model's inputs are {', '.join(map(repr, specs))})")
    for name, spec in specs.items():
        array = batch.inputs[name]
        wanted = spec.type.removeprefix("tensor(").removesuffix(")").replace("float16", "f2")
        dtype = np.dtype({"float": "float32", "double": "float64", "f2": "float16"}.get(wanted, wanted))
        if array.dtype != dtype:
            raise DataError(f"{sample}: input '{name}' has dtype {array.dtype} and the model needs {dtype}")
        free = list(spec.shape)
        fits = len(free) == array.ndim and all(
            not isinstance(want, int) or want <= 0 or want == have
            for want, have in zip(free[1:], array.shape[1:], strict=False)
        )
        if not fits:
            raise DataError(
                f"{sample}: input '{name}' has shape {list(array.shape[1:])} and the model needs {free[1:]}"
            )
        if free and isinstance(free[0], int) and free[0] > 0 and array.shape[0] != free[0]:
            raise DataError(
                f"{sample}: the model's batch is fixed at {free[0]} for input '{name}' and {array.shape[0]} samples are "
                f"left for the last one: give a number of samples that {free[0]} divides, or export the model with a free batch"
            )


def _fixed_batch(specs: Mapping[str, InputSpec]) -> int:
    """Return the size of the first axis where the model fixes it, else 0."""
    sizes = [spec.shape[0] for spec in specs.values() if spec.shape]
    return next((size for size in sizes if isinstance(size, int) and size > 0), 0)


def write(
    folder: Path, samples: Iterable[tuple[str, Inputs, Metadata]], header: Mapping[str, Any] | None = None
) -> SampleSet:
    """Write a set; the same samples in the same order give the same bytes.

    Samples are sharded by shape, so that a batch never mixes shapes. Memory holds one open shard a shape.

    Args:
        folder: is replaced as a whole, when everything is written.
        samples: id, inputs without the batch dimension, metadata; ids are unique.
        header: recipe, target, stratify and group of the set.

    Raises:
        DataError: no samples, an id twice, NaN or Inf in an input, or inputs that differ in name or dtype; or `folder`
            exists and is not a sample set.
    """
    if folder.exists() and not (folder / "manifest.json").exists():
        raise DataError(f"{folder} exists and is not a sample set: give another place, or remove it")
    entries: list[Entry] = []
    with files.replacing(folder) as temporary:
        temporary.mkdir()
        shards = _Shards(temporary)
        seen: set[str] = set()
        for identity, inputs, metadata in samples:
            if identity in seen:
                raise DataError(f"sample id '{identity}' appears twice; ids must be unique")
            seen.add(identity)
            _check_finite(identity, inputs)
            shard, row = shards.add(identity, inputs)
            entries.append(Entry(identity, digest(inputs), shard, row, dict(metadata)))
        if not entries:
            raise DataError(f"no samples were selected for {folder.name}; check the recipe's source and its options")
        shards.close()
        content = {**(header or {}), "samples": [_entry_json(entry) for entry in entries]}
        files.write_json(temporary / "manifest.json", FORMAT, FORMAT_VERSION, content)
    return read(folder)


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
        named = {key: str(document.get(key, "")) for key in ("recipe", "target", "stratify", "group")}
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path / 'manifest.json'} is not a valid manifest ({error}); build the set again") from error
    return SampleSet(path, entries, **named)


def digest(inputs: Inputs) -> str:
    """Return the sha256 of a sample: names, dtypes, shapes and values of its inputs."""
    result = hashlib.sha256()
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        result.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        result.update(array.data)
    return result.hexdigest()


def _from_npz(path: Path) -> SampleSet:
    arrays = files.read_npz(path)
    sizes = {array.shape[0] if array.ndim else -1 for array in arrays.values()}
    if len(sizes) != 1 or min(sizes, default=0) < 1:
        raise DataError(f"{path} must hold one array an input, [N, ...], all with the same N >= 1")
    rows = range(sizes.pop())
    samples = [{name: array[row] for name, array in arrays.items()} for row in rows]
    for row, inputs in enumerate(samples):
        _check_finite(f"row-{row}", inputs)
    return SampleSet(path, tuple(Entry(f"row-{row}", digest(samples[row]), "", row, {}) for row in rows))


def _entry(sample: Mapping[str, Any]) -> Entry:
    entry = Entry(**sample)
    if not (isinstance(entry.row, int) and entry.row >= 0 and isinstance(entry.shard, str)):
        raise ValueError(f"sample '{entry.id}': row {entry.row!r} of shard {entry.shard!r}")
    return entry


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "sha256": entry.sha256,
        "shard": entry.shard,
        "row": entry.row,
        "metadata": dict(entry.metadata),
    }


def _check_finite(identity: str, inputs: Inputs) -> None:
    for name, array in inputs.items():
        if np.issubdtype(array.dtype, np.floating) and nonfinite_rows(array[None]).size:
            raise DataError(f"sample '{identity}': input '{name}' holds NaN or Inf; repair its preprocessing")


class _Shards:
    """The open shard of each shape."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[tuple[Any, ...], tuple[str, list[Inputs]]] = {}
        self._number = 0
        self._kinds: dict[str, np.dtype[Any]] | None = None

    def add(self, identity: str, inputs: Inputs) -> tuple[str, int]:
        kinds = {name: array.dtype for name, array in inputs.items()}
        if self._kinds is not None and kinds != self._kinds:
            raise DataError(f"sample '{identity}' has inputs {kinds} and those before it {self._kinds}")
        self._kinds = kinds
        shape = tuple(sorted((name, array.shape) for name, array in inputs.items()))
        if shape not in self._open:
            self._open[shape] = (f"shard-{self._number:05d}.npz", [])
            self._number += 1
        name, rows = self._open[shape]
        rows.append(inputs)
        if len(rows) == SHARD_SAMPLES:
            self._write(shape)
        return name, len(rows) - 1

    def close(self) -> None:
        for shape in list(self._open):
            self._write(shape)

    def _write(self, shape: tuple[Any, ...]) -> None:
        name, rows = self._open.pop(shape)
        files.write_npz(self._folder / name, {key: np.stack([row[key] for row in rows]) for key in rows[0]})
