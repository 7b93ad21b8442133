"""Agreement with the FP32 model, where there are no right answers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from calib.errors import ConfigError, DataError
from calib.metrics.base import Outputs, SampleScore
from calib.metrics.reading import Array, shapes

Floats = npt.NDArray[np.float64]
Kind = Literal["logits", "probabilities", "classes", "values"]

_SUM = 0.01  # how far from 1 the probabilities of a position may add up to: FP16 rounds
_EXACT = 1e-5  # how near to 1 the sums are of what can only be probabilities
_LEAST = float(np.finfo(np.float32).smallest_subnormal)  # what a probability that float32 rounded to 0 counts as
_SHOWN = 16  # positions

_SCORES: Mapping[Kind, Mapping[str, bool]] = {
    "logits": {"token": True, "top1": True, "cosine": True, "kl": False},
    "probabilities": {"token": True, "top1": True, "cosine": True, "kl": False},
    "classes": {"token": True, "top1": True},
    "values": {"cosine": True, "relative": False},
}


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """How near one output is to FP32's on the same sample.

    token: share of the positions whose largest class is FP32's. top1: share of the samples where all of them are. cosine: mean
    cosine of the angle between the two flattened outputs (1 where both are 0, 0 where one is). kl: mean over positions of the
    Kullback-Leibler divergence of the model from FP32, in nats: S. Kullback, R. Leibler, "On Information and Sufficiency", 1951.
    relative: root of the sum of squared differences over that of FP32's squares; 20 log10 of it is minus the SQNR.

    A sample is right when it counts for top1. The margin is the smallest, over positions, of log-probability of FP32's class
    less that of the best other one. Neither is known of values, and no margin of classes.

    Attributes:
        output: name; "" for the only one that fits.
        outputs: what it holds: "logits" or "probabilities" of classes, "classes" (numbers: the argmax is inside the model), or
            "values" (regression, embeddings: no classes).
        axis: of the classes, for logits and probabilities; 1 for a segmentation [n, classes, height, width].
    """

    output: str = ""
    outputs: Kind = "logits"
    axis: int = -1

    def __post_init__(self) -> None:
        """Check the options."""
        if self.outputs not in _SCORES:
            raise ConfigError(f"outputs must be {', '.join(_SCORES)}, not {self.outputs!r}")

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        return _SCORES[self.outputs]

    @property
    def aggregates(self) -> Mapping[str, str]:
        """Aggregate of each score."""
        return {score: "root" if score == "relative" else "ratio" for score in self.higher_is_better}

    def compare(self, outputs: Outputs, reference: Outputs) -> list[SampleScore]:
        """Compare a batch with FP32's outputs.

        Raises:
            DataError: no such output, FP32's has another shape, or it does not hold what `outputs` says.
        """
        name = self._name(outputs)
        if name not in reference or reference[name].shape != outputs[name].shape:
            other = list(reference[name].shape) if name in reference else "none of that name"
            raise DataError(f"output '{name}' is {list(outputs[name].shape)} and the FP32 model has {other}")
        found, against = outputs[name], reference[name]
        if self.outputs == "classes":
            return [_classes(one, two) for one, two in zip(found, against, strict=True)]
        if self.outputs == "values":
            return [_values(one, two) for one, two in zip(_floats(found), _floats(against), strict=True)]
        if found.ndim < 2 or not -found.ndim < self.axis < found.ndim or not self.axis or found.shape[self.axis] < 2:
            raise DataError(
                f"output '{name}' is {list(found.shape)} and has no two classes along axis {self.axis}: set axis, or set "
                'outputs to "values" where there are no classes'
            )
        if self.outputs == "logits" and _sum_to_one(against, self.axis, _EXACT):
            raise DataError(f"output '{name}' holds probabilities, not logits: set outputs to \"probabilities\"")
        pairs = zip(np.moveaxis(found, self.axis, -1), np.moveaxis(against, self.axis, -1), strict=True)
        return [self._sample(name, *map(_floats, pair)) for pair in pairs]  # a sample at a time: float64 is large

    def _sample(self, name: str, found: Floats, against: Floats) -> SampleScore:
        found, against = found.reshape(-1, found.shape[-1]), against.reshape(-1, against.shape[-1])
        cosine = _cosine(found, against)
        chosen, right = found.argmax(axis=1), against.argmax(axis=1)
        if self.outputs == "probabilities":
            found, against = (_logarithm(name, rows) for rows in (found, against))
        weights, top = _exponential(against)
        total = weights.sum(axis=1)
        own, own_top = _exponential(found)
        # sum of p (log p - log q), where log p is a logit less the logarithm of the sum of all exponentials
        divergence = np.einsum("tc,tc->t", weights, against - found) / total - top - np.log(total)
        divergence += own_top + np.log(own.sum(axis=1))
        rows = np.arange(len(found))
        ahead = found[rows, right]
        found[rows, right] = -np.inf
        scores = {"cosine": (cosine, 1.0), "kl": (max(0.0, float(divergence.sum())), float(len(found)))}
        return _decided(chosen, right, scores, float((ahead - found.max(axis=1)).min()))

    def _name(self, outputs: Outputs) -> str:
        kinds = "iu" if self.outputs == "classes" else "f"
        fitting = [name for name, array in outputs.items() if array.dtype.kind in kinds and array.ndim]
        if self.output in fitting:
            return self.output
        if not self.output and len(fitting) == 1:
            return fitting[0]
        wanted = f"'{self.output}'" if self.output else "one output"
        numbers = "integers" if kinds == "iu" else "floats"
        raise DataError(
            f"metric agreement compares {wanted} of {numbers} and the model gave {shapes(outputs)}: set output"
        )


def agreement(
    metadata: Mapping[str, str], output: str = "", outputs: Kind = "logits", axis: int = -1
) -> OutputAgreement:
    """Make the metric; the options are the attributes of OutputAgreement."""
    del metadata  # FP32's outputs say all
    return OutputAgreement(output, outputs, axis)


def _decided(
    chosen: Array,
    right: Array,
    more: Mapping[str, tuple[float, float]],
    margin: float | None,
) -> SampleScore:
    equal, positions = int((chosen == right).sum()), right.size
    text = " ".join(map(str, chosen.ravel())) if positions <= _SHOWN else _digest(chosen)
    values = {"token": (float(equal), float(positions)), "top1": (float(equal == positions), 1.0), **more}
    return SampleScore(text, values, right=equal == positions, margin=margin)


def _classes(found: Array, against: Array) -> SampleScore:
    return _decided(np.asarray(found), np.asarray(against), {}, None)


def _values(found: Floats, against: Floats) -> SampleScore:
    squares = float(((found - against) ** 2).sum()), float((against**2).sum())
    text = str(found.item()) if found.size == 1 else _digest(found.astype(np.float32))
    return SampleScore(text, {"cosine": (_cosine(found, against), 1.0), "relative": squares})


def _cosine(found: Floats, against: Floats) -> float:
    norms = float(np.linalg.norm(found)), float(np.linalg.norm(against))
    if not all(norms):
        return float(norms[0] == norms[1])
    return float(np.clip(np.vdot(found, against) / (norms[0] * norms[1]), -1, 1))


def _sum_to_one(array: Array, axis: int, tolerance: float) -> bool:
    return bool(array.min() >= 0 and (np.abs(array.sum(axis=axis, dtype=np.float32) - 1) < tolerance).all())


def _logarithm(name: str, rows: Floats) -> Floats:
    if not _sum_to_one(rows, 1, _SUM):
        raise DataError(
            f"output '{name}' holds no probabilities: they are not all from 0 to 1 with a sum of 1; set outputs to "
            '"logits", or axis to that of the classes'
        )
    return np.log(np.maximum(rows, _LEAST))


def _exponential(rows: Floats) -> tuple[Floats, Floats]:
    """Return e to each number less the largest of its row, and that largest, (rows,)."""
    peak = rows.max(axis=1)
    return np.exp(rows - peak[:, None]), peak


def _floats(array: Array) -> Floats:
    return array.astype(np.float64)  # a copy


def _digest(array: Array) -> str:
    """Name a long prediction, so that two can be told apart."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
