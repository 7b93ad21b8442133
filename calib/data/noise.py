"""Noise instead of data: the control that shows what a calibration set is worth."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from calib.data import sets
from calib.data.batch import Batch, InputSpec
from calib.data.sets import SampleSet


@dataclass(frozen=True, slots=True)
class NoiseSet:
    """A set's shapes filled with uniform noise over each input's own range; made batch by batch, stored nowhere."""

    like: SampleSet
    ranges: Mapping[str, tuple[float, float]]

    @property
    def where(self) -> Path:
        """Name the set that gave the shapes."""
        return self.like.where / "noise"

    @property
    def sha256(self) -> str:
        """Digest of what decides the noise."""
        return hashlib.sha256(f"noise {sorted(self.ranges.items())} {self.like.sha256}".encode()).hexdigest()

    @property
    def blocks(self) -> list[int]:
        """Block of each sample."""
        return self.like.blocks

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.like)

    def batches(self, size: int, specs: Mapping[str, InputSpec] | None = None) -> Iterator[Batch]:
        """Yield batches of noise; a sample's noise depends on its id alone."""
        for batch in self.like.batches(size, specs):
            inputs = {
                name: np.stack([self._fill(identity, name, array[0]) for identity in batch.ids])
                for name, array in batch.inputs.items()
            }
            yield Batch(inputs, batch.ids, batch.positions)

    def _fill(self, identity: str, name: str, like: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        seed = int.from_bytes(hashlib.sha256(f"{identity}\0{name}".encode()).digest()[:8], "big")
        draws, (low, high) = np.random.default_rng(seed), self.ranges[name]
        if np.issubdtype(like.dtype, np.floating):
            return draws.uniform(low, high, like.shape).astype(like.dtype)
        return draws.integers(int(low), int(high) + 1, like.shape).astype(like.dtype)


def like(samples: SampleSet) -> NoiseSet:
    """Return noise with the shapes, dtypes and ranges of a set."""
    ranges: dict[str, tuple[float, float]] = {}
    for batch in samples.batches(sets.SHARD_SAMPLES):
        for name, array in batch.inputs.items():
            low, high = ranges.get(name, (np.inf, -np.inf))
            ranges[name] = (min(low, float(np.min(array))), max(high, float(np.max(array))))
    return NoiseSet(samples, ranges)
