"""Metrics by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from calib import config
from calib.errors import CalibError, ConfigError
from calib.metrics.agreement import agreement
from calib.metrics.base import Agreement, Metric
from calib.metrics.classification import classification
from calib.metrics.detection import detection
from calib.metrics.regression import regression
from calib.metrics.segmentation import segmentation
from calib.metrics.text import ctc_text, text

Made = Metric | Agreement

_BY_NAME: dict[str, Callable[..., Made]] = {
    "classification": classification,
    "regression": regression,
    "segmentation": segmentation,
    "ctc-text": ctc_text,
    "text": text,
    "detection": detection,
    "agreement": agreement,
}
"""What makes a built-in metric: of the model's metadata and the study's options."""


def make(name: str, options: Mapping[str, Any], model_metadata: Mapping[str, str], base: Path | None = None) -> Made:
    """Return a metric: a built-in by name, or what the factory "module:attribute" makes of the options.

    Raises:
        ConfigError: no such metric, options that it does not take, or an object that is neither a Metric nor an Agreement.
    """
    try:
        if ":" in name:
            metric = config.resolve(name, base)(**options)
        elif name in _BY_NAME:
            return _BY_NAME[name](model_metadata, **options)
        else:
            raise ConfigError(f"no metric is called '{name}'; known are {', '.join(_BY_NAME)} and module:attribute")
    except CalibError:
        raise
    except TypeError as error:
        raise ConfigError(f"metric {name} does not take these options: {error}") from error
    except Exception as error:  # the user's factory may raise anything
        raise ConfigError(f"metric {name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(metric, Metric | Agreement):
        raise ConfigError(
            f"{name} gave a {type(metric).__name__}, which has no higher_is_better with score(outputs, targets) or "
            "compare(outputs, reference)"
        )
    return metric
