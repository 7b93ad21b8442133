"""Detection: average precision of boxes, as COCO has it (T.-Y. Lin and others, "Microsoft COCO", 2014)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from calib.errors import ConfigError, DataError
from calib.metrics.base import Outputs, SampleScore
from calib.metrics.reading import shapes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Detection:
    """AP at one or more overlaps: "ap50" for an IoU of 0.5.

    The right answer is JSON, [[x1, y1, x2, y2, class], ...] in the unit of the model's boxes, and [] where there is no object.
    A box is matched in its image and among its class, by descending score, with the object that it overlaps most; each object
    is found once. There is no suppression of overlapping boxes here: the model, or what is behind it, has done it.

    A sample is right when, at the first IoU, the boxes that score at least `right_threshold` find every object and nothing
    else. The margin is the lowest score among what found an object (0 for one that was missed) less the highest among what
    found none. The prediction shows the boxes from `right_threshold` on, in the form of the right answer.

    Attributes:
        boxes: name of the output [n, k, 4].
        scores: name of the output [n, k], or [n, k, classes], of which the best class counts; from 0 to 1.
        labels: name of the output [n, k] with each box's class; below 0 is no box. "" where scores has the classes, or there
            is but one, number 0.
        boxes_format: "xyxy" two corners, "xywh" the upper left corner and the size, "cxcywh" the centre and the size.
        threshold: a box that scores no more than this is none.
        most: boxes that count in an image and class, the best ones; 100 is COCO's.
        iou: overlaps, intersection over union, from which on an object is found.
        right_threshold: the score from which on a box would be used.
    """

    boxes: str = "boxes"
    scores: str = "scores"
    labels: str = ""
    boxes_format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    threshold: float = 0.0
    most: int = 100
    iou: tuple[float, ...] = (0.5,)
    right_threshold: float = 0.5

    def __post_init__(self) -> None:
        """Check the options."""
        if self.boxes_format not in ("xyxy", "xywh", "cxcywh"):
            raise ConfigError(f"boxes_format must be xyxy, xywh or cxcywh, not {self.boxes_format!r}")
        if not self.iou or not all(isinstance(iou, int | float) and 0 < iou <= 1 for iou in self.iou):
            raise ConfigError(f"iou must list numbers above 0 and up to 1, not {list(self.iou)}")
        if len(set(map(_name, self.iou))) < len(self.iou):
            raise ConfigError(f"iou must list numbers that differ in percent, not {list(self.iou)}")
        if self.most < 1:
            raise ConfigError(f"most must be 1 or more, not {self.most}")

    @property
    def higher_is_better(self) -> Mapping[str, bool]:
        """Direction of each score."""
        return {_name(iou): True for iou in self.iou}

    @property
    def aggregates(self) -> Mapping[str, str]:
        """Aggregate of each score."""
        return {_name(iou): "ap" for iou in self.iou}

    def score(self, outputs: Outputs, targets: Sequence[str]) -> list[SampleScore]:
        """Match the boxes of a batch.

        Raises:
            DataError: an output is missing or has another shape, or a right answer is no such list.
        """
        boxes, scores, labels = self._read(outputs)
        result = []
        for corners, own, classes, target in zip(boxes, scores, labels, targets, strict=True):
            order = np.argsort(-own, kind="stable")
            order = order[(own[order] > self.threshold) & (classes[order] >= 0)]
            order = order[_rank_in_class(classes[order]) < self.most]
            result.append(self._sample(corners[order], own[order], classes[order], *_objects(target)))
        return result

    def _sample(self, boxes: Floats, scores: Floats, labels: Ints, objects: Floats, classes: Ints) -> SampleScore:
        overlap = np.where(labels[:, None] == classes, _overlap(boxes, objects), 0)
        matches = {iou: _match(overlap, iou) for iou in self.iou}
        missing = [term for label in classes for term in (float(label), 0.0, -1.0)]
        values = {}
        for iou, found in matches.items():
            rows = np.stack([labels, scores, found >= 0], axis=1)
            values[_name(iou)] = (*map(float, rows.ravel()), *missing)
        first, used = matches[self.iou[0]], scores >= self.right_threshold
        hits = np.zeros(len(objects))
        hits[first[first >= 0]] = scores[first >= 0]
        shown = [[*(float(f"{x:.4g}") for x in box), int(label)] for box, label in zip(boxes, labels, strict=True)]
        return SampleScore(
            prediction=json.dumps([row for row, use in zip(shown, used, strict=True) if use]),
            values=values,
            right=bool((hits >= self.right_threshold).all() and not used[first < 0].any()),
            margin=float(hits.min(initial=1.0) - scores[first < 0].max(initial=0.0)),
        )

    def _read(self, outputs: Outputs) -> tuple[Floats, Floats, Ints]:
        """Return corners (n, k, 4), scores (n, k) and classes (n, k)."""
        names = [name for name in (self.boxes, self.scores, self.labels) if name]
        if not all(name in outputs for name in names):
            raise DataError(
                f"metric detection reads the outputs {', '.join(names)} and the model gave {shapes(outputs)}: name "
                "them by the options boxes, scores and labels"
            )
        boxes, scores = np.asarray(outputs[self.boxes], np.float64), np.asarray(outputs[self.scores], np.float64)
        if scores.ndim == 3 and scores.shape[2] and not self.labels:
            labels, scores = scores.argmax(axis=2), scores.max(axis=2)
        else:
            labels = np.asarray(outputs[self.labels], np.float64) if self.labels else np.zeros(scores.shape)
        if boxes.ndim != 3 or boxes.shape[2] != 4 or not boxes.shape[:2] == scores.shape == labels.shape:
            raise DataError(
                "metric detection needs boxes [n, k, 4] with scores [n, k] and labels [n, k], or scores [n, k, classes] and no "
                f"labels, and the model gave {shapes(outputs)}"
            )
        if not (labels == np.floor(labels)).all():
            raise DataError(f"metric detection needs class numbers, and output '{self.labels}' holds {labels.max()}")
        if self.boxes_format != "xyxy":
            start, size = boxes[..., :2], boxes[..., 2:]
            start = start - size / 2 if self.boxes_format == "cxcywh" else start
            boxes = np.concatenate([start, start + size], axis=2)
        return boxes, scores, labels.astype(np.int64)


def detection(metadata: Mapping[str, str], iou: float | Sequence[float] = (0.5,), **options: Any) -> Detection:
    """Make the metric; the options are the attributes of Detection."""
    del metadata  # it names no classes that boxes would need
    return Detection(iou=(iou,) if isinstance(iou, int | float) else tuple(iou), **options)


def _name(iou: float) -> str:
    return f"ap{100 * iou:.0f}"


def _objects(target: str) -> tuple[Floats, Ints]:
    """Return corners (m, 4) and classes (m,) of a right answer."""
    try:
        listed = json.loads(target)
        rows = np.zeros((0, 5)) if listed == [] else np.asarray(listed, np.float64)
        if rows.ndim != 2 or rows.shape[1] != 5:
            raise ValueError
    except (ValueError, TypeError) as error:
        raise DataError(
            f"metric detection needs right answers [[x1, y1, x2, y2, class], ...] in JSON, not {target[:80]!r}"
        ) from error
    labels = rows[:, 4]
    if not np.isfinite(rows).all() or (labels < 0).any() or not (labels == np.floor(labels)).all():
        raise DataError(f"metric detection needs numbers, and classes from 0, in right answers, not {target[:80]!r}")
    if (rows[:, 2:4] < rows[:, :2]).any():
        raise DataError(
            f"metric detection needs x1 <= x2 and y1 <= y2 in right answers, two corners and not a size, not {target[:80]!r}"
        )
    return rows[:, :4], labels.astype(np.int64)


def _rank_in_class(labels: Ints) -> Ints:
    """Return how many of the same class stand before each."""
    ranks = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        ranks[own] = np.arange(len(own))
    return ranks


def _overlap(boxes: Floats, objects: Floats) -> Floats:
    """Return intersection over union, (k, m); 0 where both are empty."""
    low = np.maximum(boxes[:, None, :2], objects[:, :2])
    high = np.minimum(boxes[:, None, 2:], objects[:, 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=2)
    areas = [np.prod(np.maximum(part[:, 2:] - part[:, :2], 0), axis=1) for part in (boxes, objects)]
    union = areas[0][:, None] + areas[1] - shared
    return np.asarray(np.divide(shared, union, out=np.zeros_like(shared), where=union > 0))


def _match(overlap: Floats, iou: float) -> Ints:
    """Return the object that each box finds, or -1; the boxes come by descending score."""
    found = np.full(len(overlap), -1)
    free = np.ones(overlap.shape[1], np.bool_)
    for box in np.flatnonzero((overlap >= iou).any(axis=1)):
        best = int(np.argmax(np.where(free, overlap[box], -1)))
        if free[best] and overlap[box, best] >= iou:
            found[box], free[best] = best, False
    return found
