"""How good a study's calibration set is: its quality.json, made once."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from calib import calibrators, quality, scales
from calib.data.sets import SampleSet
from calib.progress import Progress
from calib.quality import Quality
from calib.statistics import Observed
from calib.study import summary
from calib.study.config import Study
from calib.study.folder import RunFolder
from calib.study.result import StudyResult


@dataclass(frozen=True, slots=True)
class Data:
    """What is judged."""

    model: ir.Model  # normalized
    seen: Observed  # of the calibration set, with shards
    calibration: SampleSet
    evaluation: SampleSet


def judged(study: Study, place: RunFolder, result: StudyResult, data: Data, progress: Progress) -> Quality:
    """Judge the calibration set: its size by the best candidate's scales, all candidates' by the evaluation set.

    Raises:
        CalibError: a set does not fit the model.
    """
    path = place.path / "quality.json"
    if not path.exists():
        declared, base = study.config.calibrate, study.path.parent
        known = {
            calibrator.name: calibrator for calibrator in (calibrators.parse(c, base) for c in declared.calibrators)
        }
        question = quality.Question(
            calibration=data.calibration,
            others={"evaluation": data.evaluation},
            model=data.model,
            seen=data.seen,
            calibrator=known[result.verdict.candidate],
            scales={name: scales.load(place.candidate(name) / "scales.json") for name in known},
            columns=summary.slices(study.config, data.evaluation),
        )
        with place.timed("judge"):
            quality.save(quality.judge(question, progress, batch_size=declared.batch_size), path)
    return quality.load(path)
