"""The study file: one declaration of a model, its data, a metric, a budget and what to try."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from calib import calibrators, config
from calib.data import recipe
from calib.errors import ConfigError
from calib.graph import load as graph_load
from calib.plan import Plan


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`path` is relative to the study file, or "package:distribution/path" for a file of an installed package."""

    path: str


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data.

    Attributes:
        recipe: path of the recipe, relative to the study file.
        judge: whether the calibration set is judged: its size, what the scales clip of the evaluation set, how the two
            sets differ, and whether they share samples. It costs a float pass over each set.
    """

    recipe: str
    judge: bool = True


@dataclass(frozen=True, slots=True)
class MetricConfig:
    """`name` is a built-in metric or "module:attribute"; `options` are its arguments."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """How much worse than FP32 the score `metric` may be, in its own unit (.005 is half a point of CER)."""

    metric: str
    max_drop: float

    def __post_init__(self) -> None:
        """Check the size of the drop."""
        if not 0 <= self.max_drop < math.inf:
            raise ConfigError(f"max_drop must be 0 or more, not {self.max_drop}")


@dataclass(frozen=True, slots=True)
class CalibrateConfig:
    """What is tried.

    Attributes:
        calibrators: max, percentile-P, mse, entropy, module:attribute.
        batch_size: samples a batch; it changes memory and speed, not the scales.
        noise_control: calibrators that are also tried on uniform random inputs, as a control.
    """

    calibrators: tuple[str, ...] = ("max", "percentile-99.99", "percentile-99.999", "mse", "entropy")
    batch_size: int = 4
    noise_control: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that every calibrator exists."""
        if not self.calibrators:
            raise ConfigError("calibrators must name at least one calibrator")
        if self.batch_size < 1:
            raise ConfigError(f"batch_size must be 1 or more, not {self.batch_size}")
        for names in (self.calibrators, self.noise_control):
            known = [name if ":" in name else calibrators.parse(name).name for name in names]
            for name, count in Counter(known).items():
                if count > 1:
                    raise ConfigError(f"calibrator '{name}' is listed {count} times")


@dataclass(frozen=True, slots=True)
class QuantizeConfig:
    """How candidates are written.

    Attributes:
        rest: type of what is not INT8: "fp16", where it is safe, or "fp32".
        weights: "int8", or "qdq" for TensorRT 8.
        verify: whether the best candidate is built with TensorRT, and what was built compared with what was asked.
    """

    rest: Literal["fp16", "fp32"] = "fp16"
    weights: Literal["int8", "qdq"] = "int8"
    verify: bool = True


@dataclass(frozen=True, slots=True)
class ImageConfig:
    """How to show a sample: input `input`, [C, H, W], with values from low (black) to high (white)."""

    input: str
    channels: str = "rgb"
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        """Check the channel order and the range."""
        if self.channels not in ("rgb", "bgr", "gray"):
            raise ConfigError(f"channels must be rgb, bgr or gray, not '{self.channels}'")
        if self.low >= self.high:
            raise ConfigError(f"low ({self.low}) must be below high ({self.high})")


@dataclass(frozen=True, slots=True)
class EvidenceConfig:
    """How sure the verdict must be, and where it is looked for harm.

    Attributes:
        level: of the intervals; 1 - level is the chance that any slice is accused falsely.
        smallest_slice: number of samples below which a slice gets no verdict.
        pairs: whether pairs of the slice columns are slices too.
        regions: whether regions of the inputs are searched where the model got worse.
    """

    level: float = 0.95
    smallest_slice: int = 30
    pairs: bool = True
    regions: bool = True

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 0.5 <= self.level < 1:
            raise ConfigError(f"level must be from 0.5 to below 1, as 0.95, not {self.level}")
        if self.smallest_slice < 2:
            raise ConfigError(f"smallest_slice must be 2 or more, not {self.smallest_slice}")


@dataclass(frozen=True, slots=True)
class ReportConfig:
    """What the report may show.

    Attributes:
        include_samples: whether texts and images of samples, and predictions, may appear in the run and its report.
        slices: metadata columns whose values are scored apart; the recipe's stratify column by default.
        image: how to show a sample as a picture.
    """

    include_samples: bool = False
    slices: tuple[str, ...] = ()
    image: ImageConfig | None = None


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """A study file."""

    name: str
    model: ModelConfig
    data: DataConfig
    metric: MetricConfig
    budget: BudgetConfig
    description: str = ""
    calibrate: CalibrateConfig = field(default_factory=CalibrateConfig)
    plan: Plan = field(default_factory=Plan)
    quantize: QuantizeConfig = field(default_factory=QuantizeConfig)
    evidence: EvidenceConfig = field(default_factory=EvidenceConfig)
    report: ReportConfig = field(default_factory=ReportConfig)

    def __post_init__(self) -> None:
        """The name is a folder's name."""
        if not self.name or not all(c.isalnum() or c in "-_." for c in self.name) or self.name.startswith("."):
            raise ConfigError(f"name must be letters, digits, '-', '_' and '.', not '{self.name}'")


@dataclass(frozen=True, slots=True)
class Study:
    """A study file with what it refers to found."""

    path: Path
    config: StudyConfig
    model: Path
    recipe: Path

    def identity(self, versions: Mapping[str, str]) -> str:
        """Return the hash that names the run: of everything that decides its numbers and whether it holds texts.

        How they are judged and reported otherwise is not in it.
        """
        declared = self.config
        named = (declared.metric.name, *declared.calibrate.calibrators, *declared.calibrate.noise_control)
        code = [config.code(name, self.path.parent) for name in named]
        decides = {
            "study": asdict(self.config)
            | {"report": declared.report.include_samples, "description": None, "evidence": None},
            "model": graph_load.sha256(self.model),
            "recipe": recipe.identity(self.recipe),
            "code": hashlib.sha256(b"\0".join(code)).hexdigest(),
            "versions": dict(versions),
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()


def load(path: Path) -> Study:
    """Read a study file and find its model and recipe.

    Raises:
        ConfigError: it cannot be read, or has a wrong key or value.
        ModelError: the model does not exist.
    """
    found = config.load(path, StudyConfig)
    recipe_path = (path.parent / found.data.recipe).resolve()
    if not recipe_path.is_file():
        raise ConfigError(f"{path}: data: recipe {recipe_path} does not exist")
    recipe.load(recipe_path)
    return Study(path, found, graph_load.locate(found.model.path, path.parent), recipe_path)
