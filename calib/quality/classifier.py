"""A classifier that tries to tell two samples apart (Lopez-Paz & Oquab 2017), trained anew for every labelling.

Its p is valid because the whole of it, training and cross-validation, is a function of the vectors and the labels, and is
repeated for labels that are permuted by whole groups; the folds are drawn by group, without looking at the labels. What
makes 2,000 repeats cheap: kernel ridge regression (RBF kernel on ranks) is linear in the labels, so that one Cholesky
factor a fold serves all of them. For 800 samples of 600 features that is about a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from calib.quality.permutation import Floats, Labels, ranks, tail

FOLDS = 5


def scores(ranked: Floats, labels: Labels, rng: np.random.Generator) -> Floats:
    """Return for every labelling the out-of-fold score of every sample, (n, b): large where it looks like the other's.

    Args:
        ranked: (n, k) features as ranks, so that no outlier decides.
        labels: the labellings.
        rng: draws the folds.
    """
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.metrics.pairwise import rbf_kernel
    from sklearn.preprocessing import KernelCenterer

    spread = ranked.std(0)
    scaled = (ranked - ranked.mean(0)) / np.where(spread > 0, spread, 1)
    kernel = rbf_kernel(scaled)  # gamma 1 / k: most pairs of samples are about as far apart as the kernel is wide
    targets = labels.columns()
    lengths = np.diff(np.append(labels.starts, labels.samples))
    folds = np.repeat(rng.permutation(lengths.size) % FOLDS, lengths)
    result = np.empty(targets.shape)
    for fold in range(FOLDS):
        test, train = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if not test.size:
            continue
        # Without an intercept: the share of the other's samples in a fold's training part would tell of its test part.
        centre: Any = KernelCenterer().fit(kernel[np.ix_(train, train)])
        wanted = targets[train] - targets[train].mean(0)
        model: Any = KernelRidge(alpha=1.0, kernel="precomputed").fit(
            centre.transform(kernel[np.ix_(train, train)]), wanted
        )
        result[test] = model.predict(centre.transform(kernel[np.ix_(test, train)]))
    return result


def separation(found: Floats, labels: Labels) -> tuple[Floats, Floats, Floats]:
    """Return for every labelling 2 AUC - 1 and both sides' shares of the tenth that looks most like the other: (b, 1).

    Args:
        found: `scores`.
        labels: the labellings that they belong to.
    """
    low, high = ranks(found)
    other = labels.columns()
    sizes = other.sum(0)
    rest = labels.samples - sizes
    middle, most = (low + high) / 2, tail(low, high)

    def shares(values: Floats) -> tuple[Floats, Floats]:
        inside = np.einsum("nb,nb->b", values, other)
        return inside / sizes, (values.sum(0) - inside) / rest

    one, two = shares(middle)
    top_other, top_rest = shares(most)
    return (2 * (one - two) / labels.samples)[:, None], top_rest[:, None], top_other[:, None]


def followed(score: npt.NDArray[np.float64], ranked: Floats) -> npt.NDArray[np.float64]:
    """Return how closely a score follows each of (n, k) ranked features: |Spearman's rho|."""
    low, high = ranks(score)
    mine = (low + high) / 2
    mine = mine - mine.mean()
    theirs = ranked - ranked.mean(0)
    scale = np.sqrt((mine**2).sum() * (theirs**2).sum(0))
    return np.asarray(np.divide(np.abs(mine @ theirs), scale, out=np.zeros(ranked.shape[1]), where=scale > 0))
