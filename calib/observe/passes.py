"""One pass over a set: batches run side by side, and an observer sees what the tensors held."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib.data.batch import Batch, InputSpec, Samples
from calib.errors import DataError
from calib.histogram import nonfinite_rows
from calib.profiles import Profile
from calib.runtime import ort

Progress = Callable[[int], None]
Arrays = Mapping[str, npt.NDArray[np.generic]]

_MOST_WORKERS = 4


class Observer(Protocol):
    """What sees the values of a pass."""

    def take(self, values: Arrays, batch: Batch) -> None:
        """See the values of a batch; called from several threads."""

    def end_block(self, samples: int) -> None:
        """See that all samples of a block were taken."""


def run_over(
    model: ir.Model,
    samples: Samples,
    tensors: Sequence[str],
    extremes: Sequence[str],
    batch_size: int,
    progress: Progress | None,
    observer: Observer,
) -> dict[str, Profile]:
    """Run batches side by side, a core each: faster than all cores on one batch, which often wait.

    As many batches are in memory as there are workers; what observes them is exact, so their order does not matter.
    """
    if not len(samples):
        raise DataError(f"{samples.where} holds no samples, so nothing can be calibrated")
    cores, blocks = os.cpu_count() or 1, samples.blocks
    workers = min(cores, _MOST_WORKERS)
    running: deque[Future[int]] = deque()
    shapes: Counter[tuple[tuple[int, ...], ...]] = Counter()
    with (
        ort.exposing(model, tensors, extremes, threads=cores // workers) as runner,
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
                    observer.take({**part.inputs, **mine.run(part.inputs)}, part)
            finally:  # the batches that wait would wait for ever
                idle.put(mine)
            return len(batch.ids)

        def finish(most: int) -> None:
            while len(running) > most:
                done = running.popleft().result()
                if progress:
                    progress(done)

        for _, batches in groupby(
            samples.batches(batch_size, runner.inputs), key=lambda batch: blocks[batch.positions[-1]]
        ):
            taken = 0
            for batch in batches:
                shapes[tuple(batch.inputs[name].shape for name in runner.inputs)] += len(batch.ids)
                running.append(pool.submit(run, batch))
                taken += len(batch.ids)
                finish(workers)
            finish(0)
            observer.end_block(taken)
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


def _singly(batch: Batch) -> Iterator[Batch]:
    for row, (identity, position) in enumerate(zip(batch.ids, batch.positions, strict=True)):
        inputs = {name: array[row : row + 1] for name, array in batch.inputs.items()}
        yield Batch(inputs, (identity,), (position,))


def count(
    tensor: str, add: Callable[[npt.NDArray[np.generic]], None], values: npt.NDArray[np.generic], batch: Batch
) -> None:
    """Add a tensor's values of a batch to a counter.

    Raises:
        DataError: the counter refuses them; the message names tensor and samples.
    """
    try:
        add(values)
    except DataError as error:
        rows = nonfinite_rows(values)
        one_each = values.ndim > 0 and values.shape[0] == len(batch.ids)
        named = [batch.ids[row] for row in rows] if one_each and rows.size else list(batch.ids)
        where = f"sample '{named[0]}'" if len(named) == 1 else f"samples {', '.join(named[:5])}"
        raise DataError(
            f"tensor '{tensor}': {error} ({where}); no scales were made: remove the sample, or repair its preprocessing"
        ) from error
