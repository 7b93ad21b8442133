"""Features of single samples: what the model makes of each, in a few numbers a tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from calib import moments
from calib.data.batch import Batch, Samples, check
from calib.errors import DataError
from calib.features import Features
from calib.observe.passes import Arrays, Progress, run_over
from calib.runtime import ort

_FEATURED = 4096
"""Samples of which features are kept at most; of a larger set every k-th."""


def features(
    model: ir.Model,
    samples: Samples,
    tensors: Sequence[str],
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    *,
    batch_size: int,
    progress: Progress | None = None,
) -> Features:
    """Return what the model makes of each sample: of its inputs and of some tensors, and how much is clipped there.

    Args:
        model: normalized float model.
        samples: with the model's inputs; of more than 4,096 every k-th is taken.
        tensors: names of float tensors of the graph; its inputs are always among the features, integers too.
        thresholds: by scales' name, the largest |x| that is kept, by tensor.
        batch_size: samples that are read at a time.
        progress: called with the number of samples done since the last call.

    Raises:
        DataError: the set is empty or does not fit the model, or a tensor holds NaN or Inf (named with the sample).
        ModelError: the model fails on a batch.
    """
    inputs = [str(value.name) for value in model.graph.inputs]
    names = [*inputs, *(tensor for tensor in tensors if tensor not in inputs)]
    sampling = _Sampling(len(samples), names, thresholds or {})
    run_over(model, samples, names, (), batch_size, progress, sampling)
    return sampling.features(len(inputs))


def input_features(samples: Samples, *, batch_size: int, progress: Progress | None = None) -> Features:
    """Return the features of a set's inputs alone, without a model.

    Raises:
        DataError: the set is empty or cannot be read.
    """
    sampling = None
    for batch in samples.batches(batch_size):
        sampling = sampling or _Sampling(len(samples), list(batch.inputs), {})
        sampling.take(batch.inputs, batch)
        if progress:
            progress(len(batch.ids))
    if sampling is None:
        raise DataError(f"{samples.where} holds no samples")
    return sampling.features(len(sampling.tensors))


@contextmanager
def embedding(model: ir.Model, tensors: Sequence[str]) -> Iterator[Callable[[Arrays], npt.NDArray[np.float64]]]:
    """Yield a function from one sample's inputs, without the batch dimension, to the vector of its features.

    Raises:
        ModelError: the model cannot be run.
    """
    inputs = [str(value.name) for value in model.graph.inputs]
    names = [*inputs, *(tensor for tensor in tensors if tensor not in inputs)]
    with ort.exposing(model, names) as runner:

        def embed(sample: Arrays) -> npt.NDArray[np.float64]:
            batch = Batch({name: np.asarray(array)[None] for name, array in sample.items()}, ("",), (0,))
            check(batch, runner.inputs, Path("the recipe's samples"))
            one = _Sampling(1, names, {})
            one.take({**batch.inputs, **runner.run(batch.inputs)}, batch)
            vector: npt.NDArray[np.float64] = one.features(len(inputs)).vectors()[0]
            return vector

        yield embed


class _Sampling:
    """Features of single samples."""

    def __init__(self, samples: int, tensors: Sequence[str], thresholds: Mapping[str, Mapping[str, float]]) -> None:
        self._step = -(-samples // _FEATURED)
        self.tensors = tuple(tensors)
        self._scales = tuple(thresholds)
        # A scale is a float32: 127 times it may come back one rounding below the amax that it is made of.
        limits = [[thresholds[name].get(tensor, np.inf) * (1 + 1e-6) for name in thresholds] for tensor in tensors]
        self._order = [np.argsort(row, kind="stable") for row in limits]
        self._limits = [np.asarray(row, np.float32)[at] for row, at in zip(limits, self._order, strict=True)]
        self._unknown = {name: [tensor not in thresholds[name] for tensor in tensors] for name in thresholds}
        kept, wide = -(-samples // self._step), len(self.tensors)
        self._ids = [""] * kept
        self._amax, self._mean = (np.zeros((kept, wide), np.float32) for _ in range(2))
        self._sizes = np.zeros((kept, wide), np.int64)
        self._clipped = np.zeros((len(self._scales), kept, wide), np.int64)

    def take(self, values: Arrays, batch: Batch) -> None:
        for row, (identity, position) in enumerate(zip(batch.ids, batch.positions, strict=True)):
            if position % self._step:
                continue
            at = position // self._step
            self._ids[at] = identity
            for t, tensor in enumerate(self.tensors):
                array = values[tensor]
                own = array[row] if array.ndim and array.shape[0] == len(batch.ids) else array
                self._one(at, t, own, identity)

    def _one(self, at: int, t: int, values: npt.NDArray[np.generic], identity: str) -> None:
        flat = np.ascontiguousarray(values, np.float32).reshape(-1)
        amax, total, counts = moments.sample(flat, self._limits[t])
        if not np.isfinite(amax):
            raise DataError(f"tensor '{self.tensors[t]}' holds NaN or Inf (sample '{identity}')")
        self._amax[at, t], self._sizes[at, t] = amax, flat.size
        self._mean[at, t] = total / flat.size if flat.size else 0.0
        self._clipped[self._order[t], at, t] = counts

    def end_block(self, samples: int) -> None:
        """Do nothing: samples are apart already."""

    def features(self, inputs: int) -> Features:
        clipped = {}
        for name, counts in zip(self._scales, self._clipped, strict=True):
            counts[:, self._unknown[name]] = -1
            clipped[name] = counts
        return Features(tuple(self._ids), self.tensors, inputs, self._amax, self._mean, self._sizes, clipped)
