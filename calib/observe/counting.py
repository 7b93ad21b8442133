"""Histograms and ranges of tensors over a set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from calib.data.batch import Batch, Samples
from calib.histogram import Counter, Histogram, LinearCounter, merge
from calib.observe.passes import Arrays, Progress, count, run_over
from calib.profiles import Profile
from calib.ranges import RangeCounter
from calib.runtime import ort
from calib.statistics import Observed, Shards, Statistics


def observe(
    model: ir.Model,
    samples: Samples,
    tensors: Sequence[str],
    ranged: Mapping[str, bool] | None = None,
    *,
    batch_size: int,
    shards: bool = False,
    progress: Progress | None = None,
) -> Observed:
    """Return the histogram of |x| of each tensor over a set, the range of others, and the inputs' shapes, from one pass.

    Args:
        model: normalized float model.
        samples: with the model's inputs.
        tensors: names of float tensors of the graph or of its inputs.
        ranged: names of those whose range is wanted, and whether the smallest magnitude is wanted too; NaN and Inf are
            allowed in the ones that are not in `tensors`.
        batch_size: samples in a batch at most; but for the profile's batch, the result does not depend on it.
        shards: whether the histograms of each block of the set are wanted too.
        progress: called with the number of samples done since the last call.

    Raises:
        DataError: the set is empty or does not fit the model, or a tensor holds NaN or Inf (named with the sample).
        ModelError: the model fails on a batch.
    """
    counting = _Counting(model, tensors, ranged or {}, shards=shards)
    shapes = run_over(model, samples, counting.read, counting.extremes, batch_size, progress, counting)
    return counting.observed(shapes)


def observe_linear(
    model: ir.Model,
    samples: Samples,
    observed: Observed,
    *,
    batch_size: int,
    progress: Progress | None = None,
) -> Observed:
    """Return the same with TensorRT's linear histogram of each tensor, from a second pass over the same set.

    Raises:
        DataError: as `observe`; also when a value exceeds the first pass's amax, so that the sets differ.
    """
    counters = {tensor: LinearCounter(item.histogram.amax) for tensor, item in observed.tensors.items()}
    # The same outputs as in the first pass: ONNX Runtime fuses what is not read, and rounds otherwise then.
    whole = [tensor for tensor, seen in observed.ranges.items() if seen.smallest and tensor not in counters]
    extremes = [tensor for tensor, seen in observed.ranges.items() if not seen.smallest]
    run_over(model, samples, [*counters, *whole], extremes, batch_size, progress, _Second(counters))
    linear = {tensor: counter.histogram() for tensor, counter in counters.items()}
    return replace(
        observed, tensors={tensor: replace(item, linear=linear[tensor]) for tensor, item in observed.tensors.items()}
    )


class _Counting:
    """Histograms and ranges, block by block."""

    def __init__(self, model: ir.Model, tensors: Sequence[str], ranged: Mapping[str, bool], *, shards: bool) -> None:
        self._counters = {tensor: Counter() for tensor in tensors}
        self._ranged = ranged
        others = {tensor: RangeCounter() for tensor in ranged if tensor not in self._counters}
        inputs = {value.name for value in model.graph.inputs}
        self._whole = {tensor: counter for tensor, counter in others.items() if ranged[tensor] or tensor in inputs}
        self._extremes = {tensor: counter for tensor, counter in others.items() if tensor not in self._whole}
        self._shards = shards
        self._total = {tensor: Histogram.empty() for tensor in tensors}
        self._samples: list[int] = []
        self._parts: dict[str, list[Histogram]] = {tensor: [] for tensor in tensors}

    @property
    def read(self) -> list[str]:
        return [*self._counters, *self._whole]

    @property
    def extremes(self) -> list[str]:
        return list(self._extremes)

    def take(self, values: Arrays, batch: Batch) -> None:
        for tensor, ranges in self._extremes.items():
            ranges.add_extremes(float(values[ort.LEAST + tensor]), float(values[ort.LARGEST + tensor]))
        for tensor, counter in self._counters.items():
            count(tensor, counter.add, values[tensor], batch)
        for tensor, whole in self._whole.items():
            count(tensor, whole.add, values[tensor], batch)

    def end_block(self, samples: int) -> None:
        self._samples.append(samples)
        if self._shards:
            for tensor in self._counters:
                self._cut(tensor)

    def observed(self, shapes: Mapping[str, Profile]) -> Observed:
        if not self._shards:
            self._total = {tensor: counter.histogram() for tensor, counter in self._counters.items()}
        found = {tensor: Statistics(histogram) for tensor, histogram in self._total.items()}
        known = {tensor: counter.range() for tensor, counter in (*self._whole.items(), *self._extremes.items())}
        known |= {tensor: found[tensor].histogram.range() for tensor in self._ranged if tensor in found}
        parts = {tensor: tuple(blocks) for tensor, blocks in self._parts.items()}
        return Observed(found, known, shapes, Shards(tuple(self._samples), parts) if self._shards else None)

    def _cut(self, tensor: str) -> None:
        part = self._counters[tensor].cut()
        self._total[tensor] = merge([self._total[tensor], part])
        self._parts[tensor].append(part.coarse())


class _Second:
    """Linear histograms; other tensors are read as they were in the first pass, and not looked at."""

    def __init__(self, counters: Mapping[str, LinearCounter]) -> None:
        self._counters = counters

    def take(self, values: Arrays, batch: Batch) -> None:
        for tensor, counter in self._counters.items():
            count(tensor, counter.add, values[tensor], batch)

    def end_block(self, samples: int) -> None:
        """Do nothing: the whole set is counted."""
