"""Segmentation: how far two areas are the same."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from calib.errors import ConfigError, DataError
from calib.metrics import reading
from calib.metrics.base import Outputs, SampleScore

Array = npt.NDArray[np.generic]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segmentation:
    """A class for each pixel, class 0 being the background: dice and iou, the means of the samples' own.

    With areas P (predicted) and T (true) of a class, Dice is 2 |P and T| / (|P| + |T|) (L. Dice, "Measures of the Amount of
    Ecologic Association Between Species", 1945), and IoU |P and T| / |P or T|. A sample's are the means over the classes of the
    foreground that are in either; 1 where none is. Every sample counts as much, however large its areas are.

    The output is floats [n, classes, H, W], the largest wins and of equal ones the first; floats [n, 1, H, W] or [n, H, W], two
    classes; or class numbers of an integer type [n, 1, H, W] or [n, H, W]. The right answer is JSON: rows of class numbers, or,
    for two classes, a run-length encoding as `rle` makes it.

    The margin is the sample's Dice.

    Attributes:
        output: name; "" for the only one.
        outputs: what one float a pixel is, "logits" or "probabilities"; None is an error there.
        threshold: probability above which such a pixel is of class 1.
        iou_right: a sample is right when its IoU is at least this; None where there is no right.
    """

    output: str = ""
    outputs: Literal["logits", "probabilities"] | None = None
    threshold: float = 0.5
    iou_right: float | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        reading.check_kind(self.outputs)
        if not isinstance(self.threshold, int | float) or not 0 < self.threshold < 1:
            raise ConfigError(f"threshold must be a number between 0 and 1, not {self.threshold!r}")
        if self.iou_right is not None and not (isinstance(self.iou_right, int | float) and 0 < self.iou_right <= 1):
            raise ConfigError(f"iou_right must be a number above 0 and up to 1, not {self.iou_right!r}")

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        return {"dice": True, "iou": True}

    def score(self, outputs: Outputs, targets: Sequence[str]) -> list[SampleScore]:
        """Compare the areas of a batch with the right ones.

        Raises:
            DataError: the output does not fit, or a right answer is no mask of its size and classes.
        """
        wanted = "metric segmentation needs floats [n, classes, H, W], or floats or integers [n, H, W] or [n, 1, H, W]"
        array = reading.read(outputs, self.output, targets, wanted)
        if array.ndim not in (3, 4) or array.dtype.kind not in "fiu" or 0 in array.shape[1:]:
            raise DataError(f"{wanted} and the model gave {reading.shapes(outputs)}")
        channels = array.shape[1] if array.ndim == 4 else 1
        if channels == 1:
            array = array.reshape(len(array), *array.shape[-2:])
        integers = array.dtype.kind in "iu"
        if integers and channels > 1:
            raise DataError(f"{wanted} and the model gave {reading.shapes(outputs)}")
        if integers and array.size and int(array.min()) < 0:
            raise DataError(f"metric segmentation: the model gave class {array.min()}; classes are numbers from 0")
        classes = None if integers else max(2, channels)
        return [
            self._sample(self._areas(one), _mask(target, one.shape[-2:], classes))
            for one, target in zip(array, targets, strict=True)
        ]

    def _areas(self, one: Array) -> Ints:
        """Return the classes (H, W) of one sample's output."""
        if one.ndim == 3:
            return np.asarray(one.argmax(axis=0))
        if one.dtype.kind in "iu":
            return one.astype(np.int64)
        if self.outputs is None:
            raise reading.ask_kind("metric segmentation: the output's one number a pixel may be of either kind")
        numbers = one.astype(np.float64)
        if self.outputs == "logits":
            return np.asarray(numbers > math.log(self.threshold / (1 - self.threshold))).astype(np.int64)
        if numbers.min() < 0 or numbers.max() > 1:
            raise DataError(
                f"metric segmentation: the output holds {numbers.min():.4g} to {numbers.max():.4g}, and probabilities are from 0 "
                'to 1; set the option outputs to "logits"'
            )
        return np.asarray(numbers > self.threshold).astype(np.int64)

    def _sample(self, found: Ints, right: Ints) -> SampleScore:
        present, pairs = np.unique(np.stack([found.ravel(), right.ravel()]), return_inverse=True)
        predicted, true = pairs.reshape(2, -1)
        areas, wanted = (np.bincount(part, minlength=len(present)) for part in (predicted, true))
        shared = np.bincount(true[predicted == true], minlength=len(present))
        inside = present > 0
        total, common = (areas + wanted)[inside], shared[inside]
        dice = float((2 * common / total).mean()) if total.size else 1.0
        iou = float((common / (total - common)).mean()) if total.size else 1.0
        digest = hashlib.sha256(found.tobytes()).hexdigest()[:16]
        return SampleScore(
            prediction=f"{(found > 0).mean():.2%} of the pixels ({digest})",  # the digest tells areas of one size apart
            values={"dice": (dice, 1.0), "iou": (iou, 1.0)},
            right=None if self.iou_right is None else iou >= self.iou_right,
            margin=dice,
        )


def segmentation(
    metadata: Mapping[str, str],
    output: str = "",
    outputs: Literal["logits", "probabilities"] | None = None,
    threshold: float = 0.5,
    iou_right: float | None = None,
) -> Segmentation:
    """Make the metric; the options are the attributes of Segmentation."""
    del metadata  # classes are numbers here
    return Segmentation(output, outputs, threshold, iou_right)


def rle(mask: npt.ArrayLike) -> str:
    """Return a mask as a right answer: COCO's uncompressed run-length encoding, JSON.

    Args:
        mask: [H, W] of 0 and 1, or bool.

    Returns:
        {"size": [H, W], "counts": [...]}: lengths of the runs down the columns, the first one background, maybe 0.

    Raises:
        DataError: it is no such mask.
    """
    array = np.asarray(mask)
    if array.ndim != 2 or not array.size or not np.isin(array, (0, 1)).all():
        raise DataError(f"a run-length encoding needs a mask [H, W] of 0 and 1, not {array.dtype}{list(array.shape)}")
    pixels = array.ravel(order="F").astype(np.int8)
    changes = np.flatnonzero(np.diff(pixels, prepend=np.int8(0)))
    counts = np.diff(np.concatenate([[0], changes, [pixels.size]]))
    return json.dumps({"size": list(array.shape), "counts": counts.tolist()})


def _mask(target: str, shape: tuple[int, ...], classes: int | None) -> Ints:
    """Return the classes (H, W) of a right answer."""
    try:
        content = json.loads(target)
        mask = _runs(content, shape) if isinstance(content, dict) else np.asarray(content)
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(target, f"{type(error).__name__}: {error}") from error
    if mask.shape != shape or mask.dtype.kind not in "iu":
        raise _unreadable(
            target, f"the output is {' x '.join(map(str, shape))}, this is {mask.dtype}{list(mask.shape)}"
        )
    low, high = int(mask.min()), int(mask.max())
    if low < 0 or (classes is not None and high >= classes):
        known = "from 0" if classes is None else f"from 0 to {classes - 1}"
        raise DataError(
            f"metric segmentation: the right answer has class {low if low < 0 else high}; the model's are {known}"
        )
    return mask.astype(np.int64)


def _runs(content: Mapping[str, Any], shape: tuple[int, ...]) -> Ints:
    if isinstance(content["counts"], str):
        raise ValueError("counts are compressed; give the list of lengths, as calib.metrics.segmentation.rle does")
    size, counts = tuple(content["size"]), np.asarray(content["counts"])
    if size != shape:  # before anything of that size is made
        raise ValueError(f"size is {list(size)} and the output is {list(shape)}")
    if (
        counts.ndim != 1
        or counts.dtype.kind not in "iu"
        or counts.min() < 0
        or sum(counts.tolist()) != math.prod(shape)
    ):
        raise ValueError(f"counts must be lengths that add up to {math.prod(shape)} pixels")
    return np.repeat(np.arange(len(counts)) % 2, counts).reshape(shape, order="F")


def _unreadable(target: str, why: str) -> DataError:
    return DataError(
        f"metric segmentation: the right answer {target[:60]!r} is no mask ({why}); it must be JSON, rows of class numbers or "
        '{"size": [H, W], "counts": [...]}'
    )
