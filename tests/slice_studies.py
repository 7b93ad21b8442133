"""Made studies whose truth is known: two models' scores on samples with metadata and readable features."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from calib import resampling
from calib.evidence import regions, slices
from calib.evidence.result import SliceEvidence

LEVEL = 0.95
MARGIN = 0.01


@dataclass(frozen=True)
class Made:
    """One study: terms of n samples in two models, what is right, groups, metadata and features."""

    aggregate: str
    higher_is_better: bool
    was: list[tuple[float, float]]
    now: list[tuple[float, float]]
    right: tuple[np.ndarray, np.ndarray]
    groups: list[str] | None
    columns: dict[str, list[str]]
    features: dict[str, np.ndarray]

    def by_column(self) -> list[slices.Slice]:
        return slices.by_columns(self.columns, pairs=True)[0]

    def by_region(self) -> list[slices.Slice]:
        loss = regions.loss(self.aggregate, self.was, self.now, *self.right, higher_is_better=self.higher_is_better)
        assert loss is not None
        return regions.find(self.features, loss, self.groups)

    def examine(self, chosen: list[slices.Slice]) -> tuple[SliceEvidence, ...]:
        return slices.examine(
            chosen, self.aggregate, self.was, self.now, self.groups,
            higher_is_better=self.higher_is_better, margin=MARGIN, level=LEVEL,
        )[0]  # fmt: skip

    def accused(self, chosen: list[slices.Slice]) -> list[str]:
        return [one.name for one in self.examine(chosen) if one.verdict in ("worse", "slightly worse")]


class _Inline:
    """Does at once what a pool's threads would do: the pieces of a simulation are too small for threads."""

    def __init__(self, _workers: int) -> None: ...

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: object) -> None: ...

    map = staticmethod(map)


def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw less often, for simulations: the smallest p-value stays far below what the corrections ask for."""
    monkeypatch.setattr(importlib.import_module("calib.evidence.difference"), "RESAMPLES", 50)
    monkeypatch.setattr(importlib.import_module("calib.evidence.tests"), "RESAMPLES", 2000)
    monkeypatch.setattr(resampling, "ThreadPoolExecutor", _Inline)


def _drawn(
    draws: np.random.Generator, samples: int, each: int = 1
) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """Metadata of three columns, and features of which only the edges tell anything: faxes are blurred."""
    units = samples // each
    columns = {
        "device": draws.choice(["fax", "phone", "scanner"], units, p=[0.05, 0.45, 0.5]),
        "site": draws.choice(["north", "east", "south"], units, p=[0.5, 0.3, 0.2]),
        "kind": draws.choice(["letter", "report"], units, p=[0.6, 0.4]),
    }
    columns = {name: np.repeat(column, each) for name, column in columns.items()}
    blurred = draws.normal(0.02, 0.004, samples)
    sharp = draws.normal(0.05, 0.01, samples)
    features = {
        "x: edges": np.where(columns["device"] == "fax", blurred, sharp),
        "x: mean": draws.normal(0, 1, samples),
        "x: deviation": draws.normal(0, 1, samples),
        "x: length of axis 3": draws.integers(4, 12, samples) * 32.0,
    }
    return {name: column.tolist() for name, column in columns.items()}, features


def _accuracy(right: np.ndarray) -> list[tuple[float, float]]:
    return [(float(one), 1.0) for one in right]


def _flipped(draws: np.random.Generator, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What is right before and after: broken where `change` is 1, fixed where it is -1."""
    same = draws.random(len(change)) < 0.9
    return np.where(change, change == 1, same), np.where(change, change == -1, same)


def planted(seed: int, broken: float, samples: int = 2000) -> Made:
    """Make a model that breaks a share of the faxes, 5 % of the samples; elsewhere 1 % break and 1 % are fixed."""
    draws = np.random.default_rng(seed)
    columns, features = _drawn(draws, samples)
    share = np.where(np.array(columns["device"]) == "fax", broken, 0.01)
    place = draws.random(samples)
    right = _flipped(draws, np.where(place < share, 1, np.where(place < share + 0.01, -1, 0)))
    return Made("ratio", True, *map(_accuracy, right), right, None, columns, features)


def equal_accuracy(seed: int, samples: int = 2000) -> Made:
    """Make a model that breaks as many as it fixes, 3 % of each."""
    draws = np.random.default_rng(seed)
    columns, features = _drawn(draws, samples)
    right = _flipped(draws, draws.choice([1, -1, 0], samples, p=[0.03, 0.03, 0.94]))
    return Made("ratio", True, *map(_accuracy, right), right, None, columns, features)


def equal_text(seed: int, samples: int = 1000) -> Made:
    """Make a model that reads other lines badly, as many and as badly: edits are few, or nearly all of a line."""
    draws = np.random.default_rng(seed)
    columns, features = _drawn(draws, samples)
    length = draws.integers(3, 40, samples)
    edits = [
        np.where(draws.random(samples) < 0.08, np.minimum(length, draws.geometric(0.15, samples)), 0) for _ in "ab"
    ]
    was, now = (list(zip(one.astype(float).tolist(), length.astype(float).tolist(), strict=True)) for one in edits)
    return Made("ratio", False, was, now, (edits[0] == 0, edits[1] == 0), None, columns, features)


def equal_groups(seed: int, samples: int = 2000) -> Made:
    """Make a model that changes whole patients of 10 samples, for the worse as often as for the better."""
    draws = np.random.default_rng(seed)
    columns, features = _drawn(draws, samples, each=10)
    features = {name: np.repeat(values[::10], 10) for name, values in features.items()}
    patient = draws.choice([1, -1, 0], samples // 10, p=[0.15, 0.15, 0.7])
    right = _flipped(draws, np.repeat(patient, 10) * (draws.random(samples) < 0.6))
    groups = [f"patient-{i // 10}" for i in range(samples)]
    return Made("ratio", True, *map(_accuracy, right), right, groups, columns, features)


EQUAL: dict[str, Callable[[int], Made]] = {"accuracy": equal_accuracy, "text": equal_text, "groups": equal_groups}
