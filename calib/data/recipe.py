"""Recipes: a calibration and an evaluation set, declared in TOML and built the same each time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calib import config
from calib.data import sources
from calib.data.prepare import Preparation, Preparer
from calib.data.select import Part, Rules
from calib.errors import ConfigError

MODEL = "model"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe file.

    Attributes:
        name: of the data.
        source: a built-in one (`calib.data.sources`), "path/file.py:factory" or "package.module:factory"; a path is
            relative to the recipe.
        calibration: what the scales come from.
        evaluation: what the metric is measured on; shares no group with calibration.
        options: the source's arguments.
        target: metadata column with the right answer.
        stratify: metadata columns whose values, crossed, are the strata.
        group: metadata column of what belongs together (document, patient, site).
        time: metadata column that `since` and `until` speak of.
        seed: another seed chooses other samples.
        limit: records that are read at most; an endless stream needs it. 0: all.
        skip: samples that may be left out because they cannot be read. 0: the first one is an error.
        features: what diverse selection looks at: "model", or "module:attribute" of a function from inputs to a vector.
        prepare: how each model input is made of the source's fields.
        prepare_function: or the user's function that makes them.
    """

    name: str
    source: str
    calibration: Part
    evaluation: Part
    options: dict[str, Any] = field(default_factory=dict)
    target: str = ""
    stratify: tuple[str, ...] = ()
    group: str = ""
    time: str = ""
    seed: int = 0
    limit: int = 0
    skip: int = 0
    features: str = ""
    prepare: dict[str, Preparation] = field(default_factory=dict)
    prepare_function: str = ""

    def __post_init__(self) -> None:
        """Check what no single key shows."""
        for key, value in (("limit", self.limit), ("skip", self.skip)):
            if value < 0:
                raise ConfigError(f"{key} must be 0 or more, not {value}")
        diverse = [part.method for part in (self.calibration, self.evaluation) if part.method != "random"]
        if diverse and not self.features:
            raise ConfigError(f"method '{diverse[0]}' needs features: 'model', or 'module:attribute' of a function")
        if self.features not in ("", MODEL) and ":" not in self.features:
            raise ConfigError(f"features must be 'model' or 'module:attribute', not '{self.features}'")

    @property
    def needs_model(self) -> bool:
        """Whether samples are chosen by what the model makes of them."""
        return self.features == MODEL and any(p.method != "random" for p in (self.calibration, self.evaluation))

    @property
    def rules(self) -> Rules:
        """What selection needs to know."""
        return Rules(self.stratify, self.group, self.time, self.seed)


def load(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
        ConfigError: it cannot be read or has a wrong key or value.
    """
    return config.load(path, Recipe)


def preparer(recipe: Recipe, base: Path) -> Preparer:
    """Return what makes model inputs of a sample's fields; `base` is the recipe's folder.

    Raises:
        ConfigError: the declaration is wrong, or the user's function does not exist.
    """
    return Preparer.of(recipe.prepare, recipe.prepare_function, base)


def identity(path: Path) -> str:
    """Return a sha256 of what decides which samples come.

    That is the recipe, the user's code that it names, and for built-in sources the names, sizes and times of their files.
    """
    recipe, digest = load(path), hashlib.sha256(path.read_bytes())
    for reference in (recipe.source, recipe.prepare_function, recipe.features):
        digest.update(config.code(reference, path.parent))
    if ":" not in recipe.source:
        for file in sources.open_source(recipe.source, recipe.options, path.parent).files():
            status = file.stat()
            digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
