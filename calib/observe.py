"""Observing: the float model runs over a set, and every tensor's values are counted as they pass.

Memory holds a few batches' tensors and the counters, whatever the number of samples.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib.data.sets import Batch, Samples
from calib.errors import DataError
from calib.histogram import Counter, Histogram, LinearCounter, LinearHistogram, nonfinite_rows
from calib.runtime import ort

Progress = Callable[[int], None]
C = TypeVar("C", Counter, LinearCounter)
_MOST_WORKERS = 4


def observe(
    model: ir.Model, samples: Samples, tensors: Sequence[str], *, batch_size: int, progress: Progress | None = None
) -> dict[str, Histogram]:
    """Return the histogram of |x| of each tensor over a set, from one pass.

    Args:
        model: normalized float model.
        samples: with the model's inputs.
        tensors: names of float tensors of the graph or of its inputs.
        batch_size: samples in a batch at most; the result does not depend on it.
        progress: called with the number of samples done since the last call.

    Raises:
        DataError: the set is empty or does not fit the model, or a tensor holds NaN or Inf (named with the sample).
        ModelError: the model fails on a batch.
    """
    counters = {tensor: Counter() for tensor in tensors}
    _pass(model, samples, counters, batch_size, progress)
    return {tensor: counter.histogram() for tensor, counter in counters.items()}


def observe_linear(
    model: ir.Model,
    samples: Samples,
    histograms: Mapping[str, Histogram],
    *,
    batch_size: int,
    progress: Progress | None = None,
) -> dict[str, LinearHistogram]:
    """Return TensorRT's linear histogram of each tensor over the same set, from a second pass.

    Raises:
        DataError: as `observe`; also when a value exceeds the first pass's amax, so that the sets differ.
    """
    counters = {tensor: LinearCounter(histogram.amax) for tensor, histogram in histograms.items()}
    _pass(model, samples, counters, batch_size, progress)
    return {tensor: counter.histogram() for tensor, counter in counters.items()}


def _pass(
    model: ir.Model, samples: Samples, counters: Mapping[str, C], batch_size: int, progress: Progress | None
) -> None:
    """Run and count batches side by side, a core each: faster than all cores on one batch, which often wait.

    As many batches are in memory as there are workers; counting is exact, so their order does not matter.
    """
    if not len(samples):
        raise DataError(f"{samples.where} holds no samples, so nothing can be calibrated")
    cores = os.cpu_count() or 1
    workers = min(cores, _MOST_WORKERS)
    running: deque[Future[int]] = deque()
    with ort.exposing(model, counters, threads=cores // workers) as runner, ThreadPoolExecutor(workers) as pool:
        divisible = not any(spec.shape and isinstance(spec.shape[0], int) for spec in runner.inputs.values())
        idle: SimpleQueue[ort.Reusing] = SimpleQueue()
        for _ in range(workers):
            idle.put(ort.Reusing(runner))

        def run(batch: Batch) -> int:
            mine = idle.get()
            try:
                for part in _singly(batch) if divisible else [batch]:
                    _count_batch(mine, part, counters)
            finally:  # the batches that wait would wait for ever
                idle.put(mine)
            return len(batch.ids)

        def finish_one() -> None:
            done = running.popleft().result()
            if progress:
                progress(done)

        for batch in samples.batches(batch_size, runner.inputs):
            running.append(pool.submit(run, batch))
            if len(running) > workers:
                finish_one()
        while running:
            finish_one()


def _count_batch(runner: ort.Reusing, batch: Batch, counters: Mapping[str, C]) -> None:
    values = {**batch.inputs, **runner.run(batch.inputs)}
    for tensor, counter in counters.items():
        _count(tensor, counter, values[tensor], batch)


def _singly(batch: Batch) -> Iterator[Batch]:
    for row, (identity, position) in enumerate(zip(batch.ids, batch.positions, strict=True)):
        inputs = {name: array[row : row + 1] for name, array in batch.inputs.items()}
        yield Batch(inputs, (identity,), (position,))


def _count(tensor: str, counter: C, values: npt.NDArray[np.generic], batch: Batch) -> None:
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
