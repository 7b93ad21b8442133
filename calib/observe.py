"""Observing: the float model runs over a set, and every tensor's values are counted as they pass.

Memory holds a few batches' tensors and the counters, whatever the number of samples.
"""

from __future__ import annotations

import os
from collections import Counter as Counter_
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib.data.sets import Batch, InputSpec, Samples
from calib.errors import DataError
from calib.histogram import Counter, LinearCounter, nonfinite_rows
from calib.profiles import Profile
from calib.ranges import RangeCounter
from calib.runtime import ort
from calib.statistics import Observed, Statistics

Progress = Callable[[int], None]
_MOST_WORKERS = 4


class _Counts(Protocol):
    def add(self, values: npt.NDArray[np.generic]) -> None: ...


class _Nothing:
    """Stands for a counter where a tensor is only read, as it was in another pass."""

    def add(self, values: npt.NDArray[np.generic]) -> None:
        """Count nothing."""


def observe(
    model: ir.Model,
    samples: Samples,
    tensors: Sequence[str],
    ranged: Mapping[str, bool] | None = None,
    *,
    batch_size: int,
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
        progress: called with the number of samples done since the last call.

    Raises:
        DataError: the set is empty or does not fit the model, or a tensor holds NaN or Inf (named with the sample).
        ModelError: the model fails on a batch.
    """
    counters = {tensor: Counter() for tensor in tensors}
    ranged, inputs = ranged or {}, {value.name for value in model.graph.inputs}
    others = {tensor: RangeCounter() for tensor in ranged if tensor not in counters}
    whole = {tensor: counter for tensor, counter in others.items() if ranged[tensor] or tensor in inputs}
    extremes = {tensor: counter for tensor, counter in others.items() if tensor not in whole}
    shapes = _pass(model, samples, {**counters, **whole}, extremes, batch_size, progress)
    found = {tensor: Statistics(counter.histogram()) for tensor, counter in counters.items()}
    known = {tensor: counter.range() for tensor, counter in others.items()}
    known |= {tensor: found[tensor].histogram.range() for tensor in ranged if tensor in found}
    return Observed(found, known, shapes)


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
    whole = {tensor: _Nothing() for tensor, seen in observed.ranges.items() if seen.smallest and tensor not in counters}
    extremes = {tensor: RangeCounter() for tensor, seen in observed.ranges.items() if not seen.smallest}
    _pass(model, samples, {**counters, **whole}, extremes, batch_size, progress)
    linear = {tensor: counter.histogram() for tensor, counter in counters.items()}
    return replace(
        observed, tensors={tensor: replace(item, linear=linear[tensor]) for tensor, item in observed.tensors.items()}
    )


def _pass(
    model: ir.Model,
    samples: Samples,
    counters: Mapping[str, _Counts],
    extremes: Mapping[str, RangeCounter],
    batch_size: int,
    progress: Progress | None,
) -> dict[str, Profile]:
    """Run and count batches side by side, a core each: faster than all cores on one batch, which often wait.

    As many batches are in memory as there are workers; counting is exact, so their order does not matter.
    """
    if not len(samples):
        raise DataError(f"{samples.where} holds no samples, so nothing can be calibrated")
    cores = os.cpu_count() or 1
    workers = min(cores, _MOST_WORKERS)
    running: deque[Future[int]] = deque()
    shapes: Counter_[tuple[tuple[int, ...], ...]] = Counter_()
    with (
        ort.exposing(model, counters, extremes, threads=cores // workers) as runner,
        ThreadPoolExecutor(workers) as pool,
    ):
        divisible = all(spec.shape and not isinstance(spec.shape[0], int) for spec in runner.inputs.values())
        idle: SimpleQueue[ort.Reusing] = SimpleQueue()
        for _ in range(workers):
            idle.put(ort.Reusing(runner))

        def run(batch: Batch) -> int:
            mine = idle.get()
            try:
                for part in _singly(batch) if divisible else [batch]:
                    _count_batch(mine, part, counters, extremes)
            finally:  # the batches that wait would wait for ever
                idle.put(mine)
            return len(batch.ids)

        def finish_one() -> None:
            done = running.popleft().result()
            if progress:
                progress(done)

        for batch in samples.batches(batch_size, runner.inputs):
            shapes[tuple(batch.inputs[name].shape for name in runner.inputs)] += len(batch.ids)
            running.append(pool.submit(run, batch))
            if len(running) > workers:
                finish_one()
        while running:
            finish_one()
        return {
            name: _profile([shape[i] for shape in shapes], list(shapes.values()), spec)
            for i, (name, spec) in enumerate(runner.inputs.items())
        }


def _profile(shapes: Sequence[tuple[int, ...]], samples: Sequence[int], spec: InputSpec) -> Profile:
    """Return the least, the median and the largest size along each axis; a free batch goes from 1 to the largest."""
    usual = []
    for sizes in zip(*shapes, strict=True):
        order = np.argsort(sizes, kind="stable")
        below = np.cumsum(np.asarray(samples)[order])
        usual.append(sizes[order[int(np.searchsorted(below, (below[-1] + 1) // 2))]])
    least, largest = [min(sizes) for sizes in zip(*shapes, strict=True)], [max(s) for s in zip(*shapes, strict=True)]
    if usual and spec.shape and not isinstance(spec.shape[0], int):
        least[0], usual[0] = 1, largest[0]
    return Profile(tuple(least), tuple(usual), tuple(largest))


def _count_batch(
    runner: ort.Reusing, batch: Batch, counters: Mapping[str, _Counts], extremes: Mapping[str, RangeCounter]
) -> None:
    values = {**batch.inputs, **runner.run(batch.inputs)}
    for tensor, ranges in extremes.items():
        ranges.add_extremes(float(values[ort.LEAST + tensor]), float(values[ort.LARGEST + tensor]))
    for tensor, counter in counters.items():
        _count(tensor, counter, values[tensor], batch)


def _singly(batch: Batch) -> Iterator[Batch]:
    for row, (identity, position) in enumerate(zip(batch.ids, batch.positions, strict=True)):
        inputs = {name: array[row : row + 1] for name, array in batch.inputs.items()}
        yield Batch(inputs, (identity,), (position,))


def _count(tensor: str, counter: _Counts, values: npt.NDArray[np.generic], batch: Batch) -> None:
    try:
        counter.add(values)
    except DataError as error:
        rows = nonfinite_rows(values)
        one_each = values.ndim > 0 and values.shape[0] == len(batch.ids)
        named = [batch.ids[row] for row in rows] if one_each and rows.size else list(batch.ids)
        where = f"sample '{named[0]}'" if len(named) == 1 else f"samples {', '.join(named[:5])}"
        raise DataError(
            f"tensor '{tensor}': {error} ({where}); no scales were made: remove the sample, or repair its preprocessing"
        ) from error
