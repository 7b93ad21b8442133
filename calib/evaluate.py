"""Evaluation: a score for every sample, kept, so that any two models can be compared on the same samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import files
from calib.data.sets import SampleSet
from calib.errors import CalibError, DataError
from calib.histogram import nonfinite_rows
from calib.metrics import Metric, Outputs, SampleScore
from calib.runtime import Runner

FORMAT = "calib-evaluation"
FORMAT_VERSION = 1
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one model scored on a set.

    Attributes:
        model_sha256: of the ONNX file.
        data_sha256: of the set.
        runtime: what ran it, and how.
        higher_is_better: of each score.
        ids: of the samples, in the set's order.
        samples: a score for each of them.
    """

    model_sha256: str
    data_sha256: str
    runtime: str
    higher_is_better: Mapping[str, bool]
    ids: tuple[str, ...]
    samples: tuple[SampleScore, ...]

    def ratios(self, score: str) -> npt.NDArray[np.float64]:
        """Return the numerators and denominators of a score, shape (n, 2)."""
        return np.asarray([sample.values[score] for sample in self.samples], np.float64).reshape(-1, 2)

    def value(self, score: str, where: npt.NDArray[np.bool_] | None = None) -> float:
        """Return the set's value, or that of the samples in the mask: sum of numerators over sum of denominators."""
        chosen = self.ratios(score) if where is None else self.ratios(score)[where]
        return _ratio(chosen.sum(axis=0))


def evaluate(
    runner: Runner,
    samples: SampleSet,
    metric: Metric,
    *,
    model_sha256: str,
    batch_size: int,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Run a model over a set and score every sample.

    Raises:
        DataError: the set is empty, does not fit the model, or has no right answers; or an output holds NaN.
        ModelError: the model fails on a batch.
    """
    if not len(samples):
        raise DataError(f"{samples.where} holds no samples, so nothing can be evaluated")
    targets = samples.column(samples.target) if samples.target else [""] * len(samples)
    scored: list[SampleScore | None] = [None] * len(samples)
    for batch in samples.batches(batch_size, runner.inputs):
        outputs = runner.run(batch.inputs)
        for name, array in outputs.items():
            if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
                row = int(nonfinite_rows(array)[0]) if array.shape[:1] == (len(batch.ids),) else 0
                raise DataError(
                    f"output '{name}' holds NaN or Inf (sample '{batch.ids[row]}'); this model cannot be scored"
                )
        found = _score(metric, outputs, [targets[position] for position in batch.positions], batch.ids)
        for position, score in zip(batch.positions, found, strict=True):
            scored[position] = score
        if progress:
            progress(len(batch.ids))
    complete = tuple(score for score in scored if score is not None)
    ids = tuple(entry.id for entry in samples.entries)
    result = Evaluation(model_sha256, samples.sha256, runner.description, metric.higher_is_better, ids, complete)
    for name in result.higher_is_better:
        if not result.ratios(name)[:, 1].sum() > 0:
            raise DataError(
                f"{samples.where}: score '{name}' has nothing to divide by: every right answer is empty; the recipe's "
                f"'target' must name the column that holds them (it is '{samples.target}')"
            )
    return result


def _score(metric: Metric, outputs: Outputs, targets: Sequence[str], ids: Sequence[str]) -> Sequence[SampleScore]:
    where = f"the metric, on the batch of sample '{ids[0]}',"
    try:
        found = metric.score(outputs, targets)
        names = [set(score.values) for score in found]
        finite = all(np.isfinite(list(score.values.values())).all() for score in found)
    except CalibError:
        raise
    except Exception as error:  # a user's metric may raise anything
        raise DataError(f"{where} failed: {type(error).__name__}: {error}") from error
    if len(found) != len(ids):
        raise DataError(f"{where} gave {len(found)} scores for {len(ids)} samples")
    if not finite or any(name != set(metric.higher_is_better) for name in names):
        raise DataError(
            f"{where} must give {', '.join(metric.higher_is_better)} for each sample, as two finite numbers"
        )
    return found


def paired_interval(
    baseline: npt.NDArray[np.float64],
    other: npt.NDArray[np.float64],
    groups: Sequence[str] | None = None,
    level: float = 0.95,
) -> tuple[float, float]:
    """Return a confidence interval of other's value minus baseline's, from a paired percentile bootstrap.

    Whole groups are drawn, because lines of one document are not independent. B. Efron, R. Tibshirani, "An Introduction
    to the Bootstrap", 1993, sections 8 and 13.

    Args:
        baseline: (n, 2) numerators and denominators.
        other: (n, 2), of the same samples.
        groups: n labels; each sample is its own group by default.
        level: of confidence.
    """
    labels = np.asarray(groups if groups is not None else np.arange(len(baseline)))
    _, index = np.unique(labels, return_inverse=True)
    sums = np.zeros((index.max() + 1, 4))
    np.add.at(sums, index, np.hstack([baseline, other]))
    draws = np.random.default_rng(0)
    deltas = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, 500):  # in pieces, so that memory stays flat for any n
        weights = draws.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=500)
        total = weights @ sums
        with np.errstate(invalid="ignore", divide="ignore"):
            deltas[start : start + 500] = total[:, 2] / total[:, 3] - total[:, 0] / total[:, 1]
    tail = 50 * (1 - level)
    low, high = np.nanpercentile(deltas, [tail, 100 - tail])
    return float(low), float(high)


def save(evaluation: Evaluation, path: Path) -> None:
    """Write evaluation.json, with every sample's scores and prediction."""
    content = {
        "model_sha256": evaluation.model_sha256,
        "data_sha256": evaluation.data_sha256,
        "runtime": evaluation.runtime,
        "higher_is_better": dict(evaluation.higher_is_better),
        "samples": [
            {"id": identity, "prediction": sample.prediction, "scores": {k: list(v) for k, v in sample.values.items()}}
            for identity, sample in zip(evaluation.ids, evaluation.samples, strict=True)
        ],
    }
    files.write_json(path, FORMAT, FORMAT_VERSION, content)


def load(path: Path) -> Evaluation:
    """Read evaluation.json.

    Raises:
        DataError: not such a file, or not valid.
    """
    document = files.read_json(path, FORMAT, FORMAT_VERSION)
    try:
        samples = tuple(_sample(entry) for entry in document["samples"])
        return Evaluation(
            document["model_sha256"],
            document["data_sha256"],
            document["runtime"],
            document["higher_is_better"],
            tuple(entry["id"] for entry in document["samples"]),
            samples,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a valid evaluation ({type(error).__name__}: {error}); evaluate again"
        ) from error


def _sample(entry: Mapping[str, Any]) -> SampleScore:
    scores = {score: (float(top), float(bottom)) for score, (top, bottom) in entry["scores"].items()}
    return SampleScore(entry["prediction"], scores)


def _ratio(sums: npt.NDArray[np.float64]) -> float:
    return float(sums[0] / sums[1]) if sums[1] else float("nan")
