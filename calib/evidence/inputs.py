"""What a sample's inputs look like, in a few numbers that people can read: where regions are looked for without metadata."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calib.data.sets import SampleSet

_Floats = npt.NDArray[np.float64]


def describe(samples: SampleSet, batch_size: int) -> dict[str, _Floats]:
    """Return features of every sample's inputs by name, "x: mean", float64 (n,) each.

    Of an input of floats or of bytes (pixels): mean, deviation, smallest, largest, share of zeros, and edges, the mean
    difference between neighbours along the last axis, which is the sharpness of an image. Of other integers (tokens): the
    number of those that are not 0, and of different values. Of any: the length of each axis that is not the same for all
    samples; the batch is axis 0. One pass; memory holds a batch and the features.

    Args:
        samples: the set.
        batch_size: samples at a time.

    Raises:
        DataError: a shard is missing, truncated or not what the manifest says.
    """
    found: dict[str, _Floats] = {}
    for batch in samples.batches(batch_size):
        where = list(batch.positions)
        for name, array in batch.inputs.items():
            for feature, values in _features(array).items():
                column = found.setdefault(f"{name}: {feature}", np.zeros(len(samples)))
                column[where] = values
    return {name: column for name, column in found.items() if not (": length of axis " in name and np.ptp(column) == 0)}


def _features(array: npt.NDArray[np.generic]) -> dict[str, _Floats | int]:
    """Return the features of a batch's samples: (rows,) each, or a number that all have."""
    sizes: dict[str, _Floats | int] = {f"length of axis {axis}": array.shape[axis] for axis in range(1, array.ndim)}
    rows = array.reshape(len(array), -1)
    if not rows.shape[1] or array.dtype.kind not in "fiub":
        return sizes
    if array.dtype.kind == "f" or (array.dtype.kind in "iu" and array.dtype.itemsize == 1):
        return {**_shades(array, rows), **sizes}
    different = np.array([len(np.unique(row)) for row in rows], np.float64)
    return {
        "number of values not 0": np.count_nonzero(rows, axis=1).astype(np.float64),
        "different values": different,
        **sizes,
    }


def _shades(array: npt.NDArray[np.generic], rows: npt.NDArray[np.generic]) -> dict[str, _Floats | int]:
    values = rows.astype(np.float64)
    steps = np.abs(np.diff(values.reshape(array.shape) if array.ndim > 1 else values, axis=-1))
    return {
        "mean": values.mean(axis=1),
        "deviation": values.std(axis=1),
        "smallest": values.min(axis=1),
        "largest": values.max(axis=1),
        "share of zeros": (values == 0).mean(axis=1),
        "edges": steps.reshape(len(array), -1).mean(axis=1) if steps.size else np.zeros(len(array)),
    }
