"""The tensors that candidates clip most, as the report shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from calib import kernels, scales
from calib.histogram import Histogram
from calib.statistics import Statistics
from calib.study.folder import RunFolder
from calib.study.result import TensorRange

_SHOWN = 8
_BINS_AN_OCTAVE = 4
_OCTAVES = 16


def most_clipped(
    place: RunFolder, model: ir.Model, seen: Mapping[str, Statistics], candidates: Sequence[str]
) -> tuple[TensorRange, ...]:
    """Return the tensors of which some candidate clips the largest share of values, worst first."""
    readers = {
        str(value.name): tuple(str(node.name) for node in value.consumers())
        for value in (*model.graph.inputs, *(out for node in model.graph for out in node.outputs))
    }
    by_candidate = {name: scales.load(place.candidate(name) / "scales.json").thresholds() for name in candidates}
    ranges = []
    for tensor, statistics in seen.items():
        thresholds = {name: found[tensor] for name, found in by_candidate.items() if tensor in found}
        if thresholds:
            ranges.append(_range(tensor, readers[tensor], statistics.histogram, thresholds))
    return tuple(sorted(ranges, key=lambda item: (-max(item.clipped.values()), item.tensor))[:_SHOWN])


def _range(tensor: str, readers: tuple[str, ...], histogram: Histogram, thresholds: dict[str, float]) -> TensorRange:
    means, counts = histogram.means(), histogram.counts.astype(np.float64)
    nonzero = means > 0
    top = int(np.ceil(np.log2(histogram.amax) * _BINS_AN_OCTAVE))
    edges = np.arange(top - _OCTAVES * _BINS_AN_OCTAVE, top + 1) / _BINS_AN_OCTAVE
    share, _ = np.histogram(np.log2(means[nonzero]), edges, weights=counts[nonzero])
    return TensorRange(
        tensor=tensor,
        consumers=readers,
        amax=histogram.amax,
        edges_log2=tuple(edges.tolist()),
        share=tuple((share / counts[nonzero].sum()).tolist()),
        zeros=float(counts[~nonzero].sum() / counts.sum()),
        thresholds=thresholds,
        # A scale is a float32: a threshold that is amax itself may come back one rounding below it.
        clipped={name: histogram.clipped_share(value * (1 + 1e-6)) for name, value in thresholds.items()},
        sqnr_db={name: _sqnr_db(means, counts, value) for name, value in thresholds.items()},
    )


def _sqnr_db(means: np.ndarray, counts: np.ndarray, amax: float) -> float:
    error = kernels.quantization_errors(means, counts, np.array([amax]))[0]
    return float(10 * np.log10((counts * means**2).sum() / max(error, np.finfo(np.float64).tiny)))
