"""The likelihood of a text under CTC: A. Graves and others, "Connectionist Temporal Classification", ICML 2006."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

_SUM = 0.01  # how far from 1 the probabilities of a step may add up to: FP16 rounds
_LEAST = float(np.finfo(np.float32).smallest_subnormal)


def log_likelihoods(
    steps: Sequence[npt.NDArray[np.generic]], labels: Sequence[Sequence[int]], blanks: Sequence[int]
) -> Floats:
    """Return the natural logarithm of the probability of each row of labels, over all its alignments.

    The forward algorithm, in log space, all rows at once. A sample's numbers are probabilities if none is negative and those
    of every step add up to 1, give or take 0.01; otherwise they are taken through log-softmax. A probability of 0 is one that
    float32 could not hold and counts as its smallest number, 1.4e-45.

    Args:
        steps: n arrays [T, classes], T >= 1.
        labels: n rows of classes, none of them a blank.
        blanks: classes that say nothing; the first is CTC's blank, and the others' probability is added to its own.

    Returns:
        (n,); minus infinity where T steps are too few for the labels.
    """
    if not len(labels):
        return np.zeros(0)
    longest = max(map(len, labels))
    states = np.full((len(labels), 2 * longest + 1), -1)
    for row, own in enumerate(labels):
        states[row, 1 : 2 * len(own) : 2] = own
    # Without a blank between them two labels may follow each other where they differ.
    direct = np.zeros(states.shape, np.bool_)
    direct[:, 3::2] = states[:, 3::2] != states[:, 1:-2:2]
    emitted = np.stack([_emitted(sample, own, blanks) for sample, own in zip(steps, states, strict=True)], axis=1)
    forward = np.full(states.shape, -np.inf)
    forward[:, :2] = emitted[0, :, :2]
    for step in emitted[1:]:
        reached = forward.copy()
        reached[:, 1:] = np.logaddexp(reached[:, 1:], forward[:, :-1])
        reached[:, 2:] = np.where(direct[:, 2:], np.logaddexp(reached[:, 2:], forward[:, :-2]), reached[:, 2:])
        forward = reached + step
    rows, last = np.arange(len(labels)), 2 * np.array([len(own) for own in labels])
    without_blank = np.where(last > 0, forward[rows, np.maximum(last - 1, 0)], -np.inf)
    return np.asarray(np.logaddexp(forward[rows, last], without_blank))


def _emitted(sample: npt.NDArray[np.generic], states: npt.NDArray[np.int64], blanks: Sequence[int]) -> Floats:
    """Return the log-probability of each state (-1 is a blank) at each step of a sample [T, classes], (T, states)."""
    chosen = np.asarray(sample[:, [*states[1::2], *blanks]], np.float64)
    if sample.min() >= 0 and (np.abs(sample.sum(axis=1, dtype=np.float32) - 1) < _SUM).all():
        chosen = np.log(np.maximum(chosen, _LEAST))
    else:
        numbers = np.asarray(sample, np.float32)
        peak = numbers.max(axis=1, keepdims=True)
        chosen -= peak + np.log(np.exp(numbers - peak).sum(axis=1, keepdims=True))  # a fifth of the time of scipy's
    labels = len(states) // 2
    result = np.empty((len(sample), len(states)))
    result[:, 0::2] = special.logsumexp(chosen[:, labels:], axis=1, keepdims=True)
    result[:, 1::2] = chosen[:, :labels]
    return result
