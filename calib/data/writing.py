"""Writing sample sets: shards of samples of equal shapes, block by block, and the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calib import files
from calib.data.sets import (
    FORMAT,
    FORMAT_VERSION,
    SHARD_SAMPLES,
    Entry,
    Inputs,
    Metadata,
    SampleSet,
    check_finite,
    digest,
    read,
)
from calib.errors import DataError


def write(
    folder: Path,
    samples: Iterable[tuple[str, Inputs, Metadata]],
    header: Mapping[str, Any] | None = None,
    blocks: Sequence[int] | None = None,
) -> SampleSet:
    """Write a set; the same samples in the same order give the same bytes.

    Samples are sharded by shape, so that a batch never mixes shapes. Memory holds one open shard a shape.

    Args:
        folder: is replaced as a whole, when everything is written.
        samples: id, inputs without the batch dimension, metadata; ids are unique.
        header: what else the manifest says: recipe, target, stratify, group, preparation, what was skipped.
        blocks: number of each sample's block, never falling; all in one by default. No file holds two blocks.

    Raises:
        DataError: no samples, an id twice, NaN or Inf in an input, or inputs that differ in name or dtype; or `folder`
            exists and is not a sample set.
    """
    check_place(folder)
    entries: list[Entry] = []
    with files.replacing(folder) as temporary:
        temporary.mkdir()
        shards = _Shards(temporary)
        seen: set[str] = set()
        block = 0
        for number, (identity, inputs, metadata) in enumerate(samples):
            if blocks is not None and blocks[number] != block:
                shards.close()
                block = blocks[number]
            if identity in seen:
                raise DataError(f"sample id '{identity}' appears twice; ids must be unique")
            seen.add(identity)
            check_finite(identity, inputs)
            shard, row = shards.add(identity, inputs)
            entries.append(Entry(identity, digest(inputs), shard, row, dict(metadata), block))
        if not entries:
            raise DataError(f"no samples were selected for {folder.name}; check the recipe's source and its options")
        shards.close()
        content = {**(header or {}), "samples": [_entry_json(entry) for entry in entries]}
        files.write_json(temporary / "manifest.json", FORMAT, FORMAT_VERSION, content)
    return read(folder)


def check_place(folder: Path) -> None:
    """Check that a set may be written there.

    Raises:
        DataError: `folder` exists and is not a sample set.
    """
    if folder.exists() and not (folder / "manifest.json").exists():
        raise DataError(f"{folder} exists and is not a sample set: give another place, or remove it")


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "sha256": entry.sha256,
        "shard": entry.shard,
        "row": entry.row,
        "metadata": dict(entry.metadata),
        "block": entry.block,
    }


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
