"""All that is judged of a calibration set, in one go: the passes over the data that it needs, and the findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from calib import observe
from calib.calibrators import Calibrator
from calib.data.sets import SampleSet
from calib.errors import DataError
from calib.features import Features
from calib.progress import Progress
from calib.quality.coverage import coverage
from calib.quality.drift import LEVEL, LIMIT, drift
from calib.quality.duplicates import duplicates
from calib.quality.result import Coverage, Drift, Duplicates, Quality, Sufficiency
from calib.quality.sufficiency import sufficiency
from calib.scales import Scales
from calib.statistics import Observed


@dataclass(frozen=True, slots=True)
class Question:
    """What is judged.

    Attributes:
        calibration: the set.
        others: sets that it is compared with, by the name that reports give them.
        model: normalized float model; None: only inputs can be compared.
        seen: what the model made of the calibration set, with shards; None: its size is not judged.
        calibrator: whose scales the size is judged by.
        scales: by name, those whose clipping is counted.
        columns: metadata columns whose values are slices.
        limit: effect from which a difference is drift.
        level: p below which it is not chance.
    """

    calibration: SampleSet
    others: Mapping[str, SampleSet]
    model: ir.Model | None = None
    seen: Observed | None = None
    calibrator: Calibrator | None = None
    scales: Mapping[str, Scales] = field(default_factory=dict)
    columns: Sequence[str] = ()
    limit: float = LIMIT
    level: float = LEVEL


def judge(question: Question, progress: Progress, *, batch_size: int) -> Quality:
    """Answer a question.

    Raises:
        DataError: a set does not fit the model.
        ModelError: the model fails on a batch.
    """
    judging = _Judging(question, progress, batch_size)
    enough = judging.sufficiency()
    own = judging.features("calibration", question.calibration) if question.others else None
    covered: list[Coverage] = []
    drifted: list[Drift] = []
    double: list[Duplicates] = []
    for name, other in question.others.items():
        with progress.stage(f"Looking for duplicates: {name}", 1):
            double.append(duplicates(question.calibration, other, name=name))
        assert own is not None  # there are others
        theirs = judging.features(name, other)
        covered += judging.coverage(name, own, theirs, other)
        drifted += judging.drift(name, own, theirs, other)
    return Quality(
        len(question.calibration), enough, tuple(covered), tuple(drifted), tuple(double), tuple(judging.notes)
    )


class _Judging:
    def __init__(self, question: Question, progress: Progress, batch_size: int) -> None:
        self._question = question
        self._progress = progress
        self._batch_size = batch_size
        self._thresholds = {name: found.thresholds() for name, found in question.scales.items()}
        self.notes: list[str] = []
        if question.model is None:
            self.notes.append("No model was given: inputs were compared, not activations, and no scales were judged.")

    def sufficiency(self) -> Sufficiency | None:
        seen, calibrator = self._question.seen, self._question.calibrator
        if seen is None or seen.shards is None or calibrator is None:
            return None
        try:
            with self._progress.stage("Judging the number of samples", len(seen.tensors)) as advance:
                return sufficiency(seen.shards, seen.tensors, calibrator, progress=advance)
        except DataError as error:
            self.notes.append(f"Whether there are enough samples could not be judged: {error}")
            return None

    def features(self, name: str, samples: SampleSet) -> Features:
        with self._progress.stage(f"Looking at single samples: {name}", len(samples)) as advance:
            if self._question.model is None:
                found = observe.input_features(samples, batch_size=self._batch_size, progress=advance)
            else:
                tensors = list(self._question.seen.tensors) if self._question.seen else []
                found = observe.features(
                    self._question.model,
                    samples,
                    tensors,
                    self._thresholds,
                    batch_size=self._batch_size,
                    progress=advance,
                )
        if len(found.ids) < len(samples):
            self.notes.append(f"{name}: {len(found.ids)} of its {len(samples)} samples were looked at one by one.")
        return found

    def coverage(self, name: str, own: Features, theirs: Features, other: SampleSet) -> list[Coverage]:
        records = _records(other, theirs), _records(self._question.calibration, own)
        columns = []
        for column in self._question.columns:
            if not any(column in record for record in records[0]) and any(column in record for record in records[1]):
                self.notes.append(f"{name} has no column '{column}', so its values were not looked at apart.")
            else:
                columns.append(column)
        return [
            replace(
                coverage(
                    theirs,
                    records[0],
                    columns,
                    scales,
                    thresholds=thresholds,
                    calibration=own,
                    calibration_metadata=records[1],
                ),
                other=name,
            )
            for scales, thresholds in self._thresholds.items()
        ]

    def drift(self, name: str, own: Features, theirs: Features, other: SampleSet) -> list[Drift]:
        groups = (_groups(self._question.calibration, own), _groups(other, theirs))
        try:
            with self._progress.stage(f"Testing for drift: {name}", 1):
                limit, level = self._question.limit, self._question.level
                return [drift(own, theirs, groups=groups, name=name, limit=limit, level=level)]
        except DataError as error:
            self.notes.append(f"Drift against {name} could not be judged: {error}")
            return []


def _records(samples: SampleSet, found: Features) -> list[Mapping[str, str | int | float]]:
    by_id = {entry.id: entry.metadata for entry in samples.entries}
    return [by_id[identity] for identity in found.ids]


def _groups(samples: SampleSet, found: Features) -> list[str] | None:
    if not samples.group:
        return None
    records = _records(samples, found)
    for identity, record in zip(found.ids, records, strict=True):
        if samples.group not in record:
            raise DataError(
                f"{samples.where}: sample '{identity}' has no column '{samples.group}', by which the calibration set is "
                "grouped: log it too, or build the set without a group"
            )
    return [str(record[samples.group]) for record in records]
