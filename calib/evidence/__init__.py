"""Evidence: is a model as good as the baseline, on whom is it worse, and how sure is that?"""

from calib.evidence.difference import difference, differences
from calib.evidence.judge import Question, judge
from calib.evidence.result import (
    Bound,
    Decisions,
    Difference,
    Evidence,
    Interval,
    Power,
    SliceEvidence,
)

__all__ = [
    "Bound",
    "Decisions",
    "Difference",
    "Evidence",
    "Interval",
    "Power",
    "Question",
    "SliceEvidence",
    "difference",
    "differences",
    "judge",
]
