"""The evidence of a study: its best candidate against FP32 on the evaluation set."""

from __future__ import annotations

from collections.abc import Sequence

from calib.data.sets import SampleSet
from calib.evidence.inputs import describe
from calib.evidence.judge import Question, judge
from calib.evidence.result import Evidence
from calib.study.config import StudyConfig
from calib.study.evaluated import Evaluated

_CLASSIFIER = ("macro-f1", "auroc")


def evidence(
    declared: StudyConfig, samples: SampleSet, columns: Sequence[str], evaluated: Sequence[Evaluated], best: Evaluated
) -> Evidence:
    """Return what is known of the best candidate."""
    baseline = evaluated[0].evaluation
    # Right answers name slices where they are classes; a text may be a patient's.
    classes = any(kind in _CLASSIFIER for kind in baseline.aggregates.values())
    return judge(
        Question(
            candidate=best.name,
            metric=declared.budget.metric,
            margin=declared.budget.max_drop,
            candidates=sum(item.kind == "candidate" for item in evaluated),
            baseline=baseline,
            other=best.evaluation,
            groups=samples.groups(),
            columns={column: samples.column(column) for column in columns},
            classes=samples.column(samples.target) if classes and samples.target else (),
            features=describe(samples, declared.calibrate.batch_size) if declared.evidence.regions else {},
            level=declared.evidence.level,
            smallest=declared.evidence.smallest_slice,
            pairs=declared.evidence.pairs,
        )
    )
