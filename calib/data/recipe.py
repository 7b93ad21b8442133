"""Recipes: a calibration and an evaluation set, declared in TOML and built the same each time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calib import config
from calib.data import select, sets, sources
from calib.data.sets import SampleSet
from calib.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class Part:
    """One of the two sets; `samples` is its size."""

    samples: int

    def __post_init__(self) -> None:
        """Check the size."""
        if self.samples < 1:
            raise ConfigError(f"samples must be at least 1, not {self.samples}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe file.

    Attributes:
        name: of the data.
        source: "path/file.py:factory" or "package.module:factory"; a path is relative to the recipe.
        calibration: what the scales come from.
        evaluation: what the metric is measured on; shares no group with calibration.
        options: the factory's arguments.
        target: metadata column with the right answer.
        stratify: metadata column whose shares both sets keep.
        group: metadata column of what belongs together (document, patient, site).
        seed: another seed chooses other samples.
    """

    name: str
    source: str
    calibration: Part
    evaluation: Part
    options: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    stratify: str = ""
    group: str = ""
    seed: int = 0


def load(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        ConfigError: it cannot be read or has a wrong key or value.
    """
    return config.load(path, Recipe)


def identity(path: Path) -> str:
    """Return the sha256 of a recipe and, when its source is a file, of that file: what decides which samples come."""
    recipe = load(path)
    return hashlib.sha256(path.read_bytes() + config.code(recipe.source, path.parent)).hexdigest()


def build(path: Path, folder: Path, progress: Callable[[int], None] | None = None) -> tuple[SampleSet, SampleSet]:
    """Write folder/calibration and folder/evaluation; building twice gives the same bytes.

    Raises:
        ConfigError: the recipe is wrong.
        DataError: a sample cannot be read, or too few exist.
    """
    recipe = load(path)
    source = sources.open_source(recipe.source, recipe.options, path.parent)
    records = sources.records(source)
    if recipe.target and any(recipe.target not in record for record in records):
        raise DataError(f"{path}: target '{recipe.target}' is a column that not every sample of the source has")
    chosen = select.select(
        records,
        recipe.calibration.samples,
        recipe.evaluation.samples,
        seed=recipe.seed,
        stratify=recipe.stratify,
        group=recipe.group,
    )

    def samples(positions: tuple[int, ...]) -> Iterator[tuple[str, sets.Inputs, sets.Metadata]]:
        for position in positions:
            record = records[position]
            yield str(record["id"]), sources.inputs(source, position, str(record["id"])), record
            if progress:
                progress(1)

    header = {"recipe": recipe.name, "target": recipe.target, "stratify": recipe.stratify, "group": recipe.group}
    calibration = sets.write(folder / "calibration", samples(chosen.calibration), {**header, "part": "calibration"})
    evaluation = sets.write(folder / "evaluation", samples(chosen.evaluation), {**header, "part": "evaluation"})
    return calibration, evaluation
