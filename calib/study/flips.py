"""The flips that the report shows, with what people need to see why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from calib import files
from calib.data.sets import SampleSet
from calib.errors import ConfigError
from calib.evaluate import Evaluation
from calib.evidence import flips
from calib.study.config import ImageConfig, ReportConfig
from calib.study.evaluated import Evaluated
from calib.study.folder import RunFolder
from calib.study.result import Flip

_SHOWN = 24


def find(
    place: RunFolder, shown: ReportConfig, metric: str, samples: SampleSet, baseline: Evaluation, other: Evaluated
) -> tuple[Flip, ...]:
    """Return the flips of a candidate as `calib.evidence.flips` ranks them, at most 24 of a kind.

    Pictures are written to the run's flips/ folder where the study shows samples. `calib.study.exporting` has all flips.
    """
    ranked = flips.rank(baseline, other.evaluation, metric)
    broken = [row for row in ranked if row.kind == "broken"]
    fixed = [row for row in ranked if row.kind == "fixed"]
    result = []
    for row in (*broken[:_SHOWN], *fixed[:_SHOWN]):
        entry = samples.entries[row.position]
        visible = shown.include_samples
        hidden = {"id", samples.target} if visible else {*entry.metadata} - {*samples.stratify, *shown.slices}
        result.append(
            Flip(
                candidate=other.name,
                kind=row.kind,
                sample=entry.id,
                lost=row.lost,
                metadata={key: str(value) for key, value in entry.metadata.items() if key not in hidden},
                target=str(entry.metadata.get(samples.target, "")) if visible else None,
                baseline_prediction=baseline.samples[row.position].prediction if visible else None,
                prediction=other.evaluation.samples[row.position].prediction if visible else None,
                image=_picture(place, shown.image, samples, row.position) if visible and shown.image else None,
            )
        )
    return tuple(result)


def _picture(place: RunFolder, image: ImageConfig, samples: SampleSet, position: int) -> str:
    name = f"flips/{position:06d}.png"
    path = place.path / name
    if not path.exists():
        array = samples.one(position)
        if image.input not in array:
            raise ConfigError(f"report.image: the samples have no input '{image.input}' (they have {', '.join(array)})")
        with files.replacing(path) as temporary:
            _render(array[image.input], image).save(temporary, format="PNG")
    return Path(name).as_posix()


def _render(values: npt.NDArray[np.generic], image: ImageConfig) -> Image.Image:
    if values.ndim != 3 or values.shape[0] not in (1, 3):
        raise ConfigError(f"report.image: input '{image.input}' is {list(values.shape)}, not [1 or 3, H, W]")
    scaled = (values.astype(np.float64) - image.low) / (image.high - image.low)
    pixels = (np.clip(scaled, 0, 1) * 255 + 0.5).astype(np.uint8).transpose(1, 2, 0)
    if pixels.shape[2] == 1:
        return Image.fromarray(pixels[:, :, 0])
    return Image.fromarray(np.ascontiguousarray(pixels[:, :, ::-1] if image.channels == "bgr" else pixels))
