"""Evaluation: a score for every sample, kept, so that any two models can be compared on the same samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from calib import aggregates, files
from calib.data.batch import Batch
from calib.data.sets import SampleSet
from calib.errors import CalibError, DataError
from calib.histogram import nonfinite_rows
from calib.metrics import Agreement, Metric, Outputs, SampleScore, aggregates_of
from calib.runtime import Runner

FORMAT = "calib-evaluation"
FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What one model scored on a set.

    Attributes:
        model_sha256: of the ONNX file.
        data_sha256: of the set.
        runtime: what ran it, and how.
        higher_is_better: of each score.
        aggregates: of each score (`calib.aggregates`).
        ids: of the samples, in the set's order.
        digests: sha256 of each sample, which tells whether two evaluations scored the same ones.
        samples: a score for each of them.
    """

    model_sha256: str
    data_sha256: str
    runtime: str
    higher_is_better: Mapping[str, bool]
    aggregates: Mapping[str, str]
    ids: tuple[str, ...]
    digests: tuple[str, ...]
    samples: tuple[SampleScore, ...]

    def terms(self, score: str, where: npt.NDArray[np.bool_] | None = None) -> list[tuple[float, ...]]:
        """Return the terms of a score, of every sample or of those in the mask."""
        chosen = range(len(self.samples)) if where is None else np.flatnonzero(where)
        return [self.samples[position].values[score] for position in chosen]

    def value(self, score: str, where: npt.NDArray[np.bool_] | None = None) -> float:
        """Return the set's value, or that of the samples in the mask; NaN where it is not defined."""
        return aggregates.value(self.aggregates[score], self.terms(score, where))

    def right(self) -> npt.NDArray[np.bool_] | None:
        """Return which samples are right, shape (n,); None where the metric knows no right and wrong."""
        known = [sample.right for sample in self.samples]
        return None if any(right is None for right in known) else np.asarray(known, np.bool_)


def evaluate(
    runner: Runner,
    samples: SampleSet,
    metric: Metric | Agreement,
    *,
    model_sha256: str,
    batch_size: int,
    reference: Runner | None = None,
    progress: Callable[[int], None] | None = None,
) -> Evaluation:
    """Run a model over a set and score every sample.

    Args:
        runner: the model.
        samples: the set.
        metric: scores against the set's right answers, or the agreement with `reference`.
        model_sha256: of the model, recorded.
        batch_size: samples a batch.
        reference: the FP32 model, which an Agreement compares with; it runs on the same batches.
        progress: called with the number of samples done since the last call.

    Raises:
        DataError: the set is empty, does not fit the model, or has no right answers; or an output holds NaN.
        ModelError: the model fails on a batch.
    """
    if not len(samples):
        raise DataError(f"{samples.where} holds no samples, so nothing can be evaluated")
    if isinstance(metric, Agreement) and reference is None:
        raise DataError(
            "this metric compares with the FP32 model's outputs: give that model to compare with (--against)"
        )
    targets = samples.column(samples.target) if samples.target else [""] * len(samples)
    scored: list[SampleScore | None] = [None] * len(samples)
    for batch in samples.batches(batch_size, runner.inputs):
        outputs = _run(runner, batch)
        if isinstance(metric, Agreement):
            assert reference is not None
            against = outputs if reference is runner else _run(reference, batch)
            found = _scores(metric, lambda: metric.compare(outputs, against), batch.ids)  # noqa: B023  called at once
        else:
            right = [targets[position] for position in batch.positions]
            found = _scores(metric, lambda: metric.score(outputs, right), batch.ids)  # noqa: B023  called at once
        for position, score in zip(batch.positions, found, strict=True):
            scored[position] = score
        if progress:
            progress(len(batch.ids))
    complete = tuple(score for score in scored if score is not None)
    result = Evaluation(
        model_sha256,
        samples.sha256,
        runner.description,
        metric.higher_is_better,
        aggregates_of(metric),
        tuple(entry.id for entry in samples.entries),
        tuple(entry.sha256 for entry in samples.entries),
        complete,
    )
    for name, kind in result.aggregates.items():
        if kind != "ap":
            _check_lengths(samples.where, result.ids, name, result.terms(name))
        if np.isnan(result.value(name)):
            hint = f" (the recipe's 'target' must name the column that holds them; it is '{samples.target}')"
            raise DataError(
                f"{samples.where}: score '{name}' has no value: {aggregates.undefined(kind)}"
                + ("" if isinstance(metric, Agreement) else hint)
            )
    return result


def _run(runner: Runner, batch: Batch) -> Outputs:
    outputs = runner.run(batch.inputs)
    for name, array in outputs.items():
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            row = int(nonfinite_rows(array)[0]) if array.shape[:1] == (len(batch.ids),) else 0
            raise DataError(
                f"output '{name}' holds NaN or Inf (sample '{batch.ids[row]}'); this model cannot be scored"
            )
    return outputs


def _scores(
    metric: Metric | Agreement, call: Callable[[], Sequence[SampleScore]], ids: Sequence[str]
) -> list[SampleScore]:
    """Call the metric and check what it gives, as numbers of Python's: those of NumPy have no JSON."""
    where = f"the metric, on the batch of sample '{ids[0]}',"
    kinds = aggregates_of(metric)
    try:
        found = call()
        if len(found) != len(ids):
            raise DataError(f"gave {len(found)} scores for {len(ids)} samples")
        return [_checked(score, kinds, identity) for score, identity in zip(found, ids, strict=True)]
    except CalibError as error:
        raise DataError(f"{where} {error}") from error
    except Exception as error:  # a user's metric may raise anything
        raise DataError(f"{where} failed: {type(error).__name__}: {error}") from error


def _checked(score: SampleScore, kinds: Mapping[str, str], identity: str) -> SampleScore:
    if set(score.values) != set(kinds):
        raise DataError(f"must give {', '.join(kinds)} for each sample, and gave {', '.join(score.values)}")
    terms = {name: tuple(map(float, score.values[name])) for name in kinds}
    for name, kind in kinds.items():
        if not aggregates.valid(kind, terms[name]):
            raise DataError(
                f"gave {terms[name]} for score '{name}' of sample '{identity}'; a score that is aggregated as {kind} needs "
                f"{aggregates.wanted(kind)}"
            )
    if score.margin is not None and not np.isfinite(score.margin):
        raise DataError(f"gave the margin {score.margin} for sample '{identity}'; it must be a number or None")
    return SampleScore(
        str(score.prediction),
        terms,
        None if score.right is None else bool(score.right),
        None if score.margin is None else float(score.margin),
    )


def _check_lengths(where: Path, ids: Sequence[str], name: str, terms: Sequence[Sequence[float]]) -> None:
    for identity, own in zip(ids, terms, strict=True):
        if len(own) != len(terms[0]):
            raise DataError(
                f"{where}: score '{name}' has {len(own)} terms for sample '{identity}' and {len(terms[0])} for '{ids[0]}'; "
                "the metric must give as many for each"
            )


def save(evaluation: Evaluation, path: Path) -> None:
    """Write evaluation.json, with every sample's scores and prediction."""
    content = {
        "model_sha256": evaluation.model_sha256,
        "data_sha256": evaluation.data_sha256,
        "runtime": evaluation.runtime,
        "higher_is_better": dict(evaluation.higher_is_better),
        "aggregates": dict(evaluation.aggregates),
        "samples": [
            {
                "id": identity,
                "sha256": digest,
                "prediction": sample.prediction,
                "scores": {name: list(terms) for name, terms in sample.values.items()},
                "right": sample.right,
                "margin": sample.margin,
            }
            for identity, digest, sample in zip(evaluation.ids, evaluation.digests, evaluation.samples, strict=True)
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
        kinds = dict(document["aggregates"])
        samples = tuple(_sample(entry, kinds) for entry in document["samples"])
        return Evaluation(
            document["model_sha256"],
            document["data_sha256"],
            document["runtime"],
            document["higher_is_better"],
            kinds,
            tuple(entry["id"] for entry in document["samples"]),
            tuple(entry["sha256"] for entry in document["samples"]),
            samples,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a valid evaluation ({type(error).__name__}: {error}); evaluate again"
        ) from error


def _sample(entry: Mapping[str, Any], kinds: Mapping[str, str]) -> SampleScore:
    scores = {score: tuple(map(float, terms)) for score, terms in entry["scores"].items()}
    for name, kind in kinds.items():
        if not aggregates.valid(kind, scores[name]):
            raise ValueError(f"score '{name}' of sample '{entry['id']}' is {scores[name]}")
    return SampleScore(entry["prediction"], scores, entry["right"], entry["margin"])
