"""A finished run's artefacts that a comparison reads, checked to belong together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from calib import evaluate, files, scales
from calib.data import sets
from calib.data.sets import SampleSet
from calib.errors import DataError
from calib.evaluate import Evaluation
from calib.qdq import Decisions
from calib.scales import Scales
from calib.study import load_result
from calib.study.result import Candidate, StudyResult


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run."""

    folder: Path
    result: StudyResult
    best: Candidate
    calibration: SampleSet
    evaluation: SampleSet
    decisions: Decisions  # of the best candidate
    fp32_scores: Evaluation
    best_scores: Evaluation

    def scales(self, candidate: str) -> Scales:
        """Read a candidate's scales.

        Raises:
            DataError: missing or damaged.
        """
        return scales.load(_file(self.folder, candidate, "scales.json"))


def load(folder: Path) -> Run:
    """Read a run.

    Raises:
        DataError: it is not finished, or a file of it is damaged or belongs to other samples.
    """
    result = load_result(folder / "study.json")
    known = {one.name: one for one in result.candidates}
    baseline = next((one for one in result.candidates if one.kind == "baseline"), None)
    best = known.get(result.evidence.candidate)
    if best is None or baseline is None:
        raise DataError(f"{folder / 'study.json'} has no FP32 model or not the candidate that it judges; run it again")
    samples = sets.read(folder / "evaluation")
    return Run(
        folder,
        result,
        best,
        sets.read(folder / "calibration"),
        samples,
        Decisions.load(_file(folder, best.name, "quantization.json")),
        _scores(folder, baseline.name, samples),
        _scores(folder, best.name, samples),
    )


def _scores(folder: Path, candidate: str, samples: SampleSet) -> Evaluation:
    path = _file(folder, candidate, "evaluation.json")
    found = evaluate.load(path)
    if found.digests != tuple(entry.sha256 for entry in samples.entries):
        raise DataError(f"{path} scores other samples than {samples.where} holds; run the study again")
    return found


def _file(folder: Path, candidate: str, name: str) -> Path:
    return files.inside(folder / "candidates", f"{candidate}/{name}", DataError)
