"""A model of a run with its evaluation: what the stages hand to the summary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from calib.evaluate import Evaluation


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A model of the run and its evaluation."""

    name: str
    kind: Literal["baseline", "reference", "candidate", "control"]
    calibrator: str  # "" for FP32 and FP16
    int8_layers: int
    total_layers: int
    path: Path
    evaluation: Evaluation
