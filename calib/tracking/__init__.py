"""Tracking: a study's runs in a tracking server. The run folder stays the source of truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """One run to record: a study, or one of its candidates."""

    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    artifacts: Sequence[Path]


class Tracker(Protocol):
    """Records a study as one parent run and a nested run for each candidate.

    Attributes:
        uri: where the runs can be looked at.
    """

    uri: str

    def record(self, experiment: str, parent: TrackedRun, nested: Sequence[TrackedRun]) -> str:
        """Record a study and return the parent run's id."""
        ...
