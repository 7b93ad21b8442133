"""The metric of detection: its AP is that of pycocotools, and what right, margin and the messages are."""

import contextlib
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from calib import aggregates, metrics
from calib.errors import ConfigError, DataError
from calib.metrics import contract
from calib.metrics.detection import Detection

SIZE = 200  # of an image


def corners(draws: np.random.Generator, count: int) -> np.ndarray:
    start = draws.uniform(0, SIZE - 60, (count, 2))
    return np.concatenate([start, start + draws.uniform(5, 60, (count, 2))], axis=1)


def scene(seed: int, images: int, boxes: int) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return what a model may find: objects, moved by more or less, with doubles and false ones; and the right answers."""
    draws = np.random.default_rng(seed)
    outputs = {"boxes": np.zeros((images, boxes, 4)), "scores": np.zeros((images, boxes))}
    outputs["labels"] = np.full((images, boxes), -1)
    targets = []
    scores = draws.permutation(images * boxes).reshape(images, boxes) / (images * boxes) + 1e-3  # without ties
    for image in range(images):
        count = int(draws.integers(0, 6))
        objects, classes = corners(draws, count), draws.integers(0, 3, count)
        false = corners(draws, int(draws.integers(0, 4)))
        pick = draws.integers(0, count, int(draws.integers(0, 9))) if count else np.zeros(0, int)
        moved = objects[pick] + draws.normal(0, draws.choice([1.0, 6.0]), (len(pick), 4))
        found = np.concatenate([moved, false])[:boxes]
        found[:, 2:] = np.maximum(found[:, 2:], found[:, :2] + 1)
        labels = np.concatenate([classes[pick], draws.integers(0, 4, len(false))])[:boxes]
        labels = np.where(draws.random(len(labels)) < 0.1, draws.integers(0, 4, len(labels)), labels)
        outputs["boxes"][image, : len(found)] = found
        outputs["labels"][image, : len(found)] = labels
        outputs["scores"][image, : len(found)] = scores[image, : len(found)]
        rows = [[*map(float, box), int(label)] for box, label in zip(objects, classes, strict=True)]
        targets.append(json.dumps(rows))
    return outputs, targets


def cocos(outputs: dict[str, np.ndarray], targets: Sequence[str], most: int) -> list[float]:
    """Return COCOeval's AP at IoU .5 and .75 over all areas."""
    objects: list[dict[str, Any]] = []
    for image, target in enumerate(targets):
        for x1, y1, x2, y2, label in json.loads(target):
            size = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1), "iscrowd": 0}
            objects.append({"id": len(objects) + 1, "image_id": image, "category_id": label, **size})
    found = []
    for image, label, score, (x1, y1, x2, y2) in zip(
        np.repeat(np.arange(len(targets)), outputs["scores"].shape[1]),
        outputs["labels"].ravel(),
        outputs["scores"].ravel(),
        outputs["boxes"].reshape(-1, 4),
        strict=True,
    ):
        if label >= 0:
            box = [x1, y1, x2 - x1, y2 - y1]
            found.append({"image_id": int(image), "category_id": int(label), "bbox": box, "score": score})
    truth = COCO()
    truth.dataset = {
        "info": {},
        "images": [{"id": image} for image in range(len(targets))],
        "categories": [{"id": label} for label in range(4)],
        "annotations": objects,
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        judge = COCOeval(truth, truth.loadRes(found), "bbox")
        judge.params.maxDets = [most]
        judge.evaluate()
        judge.accumulate()
    precision = judge.eval["precision"][..., 0, -1]  # IoU, recall, class, area, most
    thresholds = [list(judge.params.iouThrs.round(2)).index(iou) for iou in (0.5, 0.75)]
    # As COCO summarizes: classes without an object are -1 and do not count.
    return [float(np.mean(precision[at][precision[at] > -1])) for at in thresholds]


@settings(max_examples=40)
@given(st.integers(0, 100_000), st.integers(1, 12), st.sampled_from([2, 100]))
def test_ap_is_cocos(seed: int, images: int, most: int) -> None:
    outputs, targets = scene(seed, images, 12)
    if not any(map(json.loads, targets)) or not (outputs["labels"] >= 0).any():
        return  # pycocotools fails without any
    scores = Detection(labels="labels", iou=(0.5, 0.75), most=most).score(outputs, targets)
    ours = [aggregates.value("ap", [score.values[name] for score in scores]) for name in ("ap50", "ap75")]
    assert ours == pytest.approx(cocos(outputs, targets, most), abs=1e-12)


class TestInputs:
    outputs, targets = scene(3, 4, 8)
    expected = tuple(score.values for score in Detection(labels="labels").score(outputs, targets))

    @pytest.mark.parametrize("form", ["xywh", "cxcywh"])
    def test_formats_of_boxes(self, form: str) -> None:
        start, size = (
            self.outputs["boxes"][..., :2],
            np.diff(self.outputs["boxes"].reshape(4, 8, 2, 2), axis=2)[:, :, 0],
        )
        moved = start if form == "xywh" else start + size / 2
        boxes = np.concatenate([moved, size], axis=2)
        metric = metrics.make("detection", {"labels": "labels", "boxes_format": form}, {})
        assert isinstance(metric, Detection)
        found = metric.score({**self.outputs, "boxes": boxes}, self.targets)
        assert [[*score.values["ap50"]] for score in found] == [[*values["ap50"]] for values in self.expected]

    def test_scores_of_each_class_instead_of_labels(self) -> None:
        each = np.where(np.arange(4) == self.outputs["labels"][..., None], self.outputs["scores"][..., None], 0)
        found = Detection().score({"boxes": self.outputs["boxes"], "scores": each}, self.targets)
        assert [score.values for score in found] == list(self.expected)

    def test_padding_is_no_box(self) -> None:
        for name, value in (("scores", 0.0), ("labels", -1)):
            padded = {key: np.concatenate([array, array], axis=1) for key, array in self.outputs.items()}
            padded[name][:, 8:] = value
            found = Detection(labels="labels").score(padded, self.targets)
            assert [score.values for score in found] == list(self.expected)

    def test_one_class_needs_no_labels(self) -> None:
        outputs = {"boxes": np.array([[[0, 0, 2, 2]]]), "scores": np.array([[0.75]])}
        (score,) = Detection().score(outputs, ["[[0, 0, 2, 2, 0]]"])
        assert score.values == {"ap50": (0, 0.75, 1, 0, 0, -1)}


def judged(
    found: list[list[float]], target: list[list[float]], **options: Any
) -> tuple[bool | None, float | None, str]:
    """Return right, margin and prediction of boxes [x1, y1, x2, y2, class, score]."""
    rows = np.asarray(found, np.float64).reshape(1, -1, 6)
    outputs = {"boxes": rows[..., :4], "labels": rows[..., 4], "scores": rows[..., 5]}
    (score,) = Detection(labels="labels", **options).score(outputs, [json.dumps(target)])
    return score.right, score.margin, score.prediction


class TestDecision:
    one, two = [0, 0, 10, 10, 1], [20, 20, 30, 30, 2]

    def test_all_found_and_nothing_else(self) -> None:
        assert judged([[*self.one, 0.75], [*self.two, 0.625]], [self.two, self.one])[:2] == (True, 0.625)
        assert judged([[*self.one, 0.75], [*self.two, 0.25]], [self.one]) == (True, 0.5, "[[0.0, 0.0, 10.0, 10.0, 1]]")
        assert judged([], [])[:2] == (True, 1.0)

    def test_one_is_missed_or_false_or_doubled_or_of_another_class(self) -> None:
        assert judged([[*self.one, 0.75]], [self.one, self.two])[:2] == (False, 0.0)
        assert judged([[*self.one, 0.75], [*self.two, 0.25]], [self.one, self.two])[:2] == (False, 0.25)
        assert judged([[*self.one, 0.75], [*self.two, 0.625]], [self.one])[:2] == (False, 0.125)
        assert judged([[*self.one, 0.75], [*self.one, 0.625]], [self.one])[:2] == (False, 0.125)
        assert judged([[*self.one[:4], 2, 0.75]], [self.one])[:2] == (False, -0.75)
        assert judged([[*self.one, 0.75]], [])[:2] == (False, 0.25)

    def test_at_the_first_iou_and_the_score_that_is_used(self) -> None:
        near = [[0, 0, 10, 6, 1, 0.75]]  # IoU .6
        assert judged(near, [self.one])[0] is True
        assert judged(near, [self.one], iou=(0.75, 0.5))[0] is False
        assert judged(near, [self.one], right_threshold=0.8)[0] is False
        assert judged(near, [self.one], right_threshold=0.8)[2] == "[]"


def test_keeps_the_contract() -> None:
    outputs, targets = scene(5, 12, 10)
    contract.check(Detection(labels="labels", iou=(0.5, 0.75)), outputs, targets)
    each = np.where(np.arange(4) == outputs["labels"][..., None], outputs["scores"][..., None], 0)
    contract.check(Detection(boxes_format="xywh"), {"boxes": outputs["boxes"], "scores": each}, targets)


def test_what_is_refused() -> None:
    for options, says in (
        ({"boxes_format": "yxyx"}, "boxes_format must be xyxy, xywh or cxcywh"),
        ({"iou": []}, "iou must list numbers"),
        ({"iou": [0.5, 50]}, "iou must list numbers"),
        ({"iou": "0.5"}, "iou must list numbers"),
        ({"iou": [0.5, 0.501]}, "differ in percent"),
        ({"most": 0}, "most must be 1 or more"),
        ({"nms": 0.5}, "does not take these options"),
    ):
        with pytest.raises(ConfigError, match=says):
            metrics.make("detection", options, {})
    boxes, scores = np.zeros((1, 2, 4)), np.zeros((1, 2))
    metric = Detection(labels="labels")
    for outputs, says in (
        ({"boxes": boxes}, r"reads the outputs boxes, scores, labels and the model gave boxes float64\[1, 2, 4\]"),
        ({"boxes": boxes[:, :1], "scores": scores, "labels": scores}, r"needs boxes \[n, k, 4\]"),
        ({"boxes": boxes, "scores": scores[..., None], "labels": scores}, r"needs boxes \[n, k, 4\]"),
        ({"boxes": boxes[..., :3], "scores": scores, "labels": scores}, r"needs boxes \[n, k, 4\]"),
        ({"boxes": boxes, "scores": scores, "labels": scores + 0.5}, "needs class numbers"),
    ):
        with pytest.raises(DataError, match=says):
            metric.score(outputs, ["[]"])
    for target, says in (
        ("", r"right answers \[\[x1, y1, x2, y2, class\], ...\] in JSON, not ''"),
        ("cat", "in JSON, not 'cat'"),
        ("null", "in JSON"),
        ("0", "in JSON"),
        ("[[1, 2, 3, 4]]", "in JSON"),
        ("[[1, 2, 3, 4, 0], [1]]", "in JSON"),
        ('[[1, 2, 3, 4, "cat"]]', "in JSON"),
        ("[[1, 2, 3, 4, 0.5]]", "classes from 0"),
        ("[[1, 2, 3, 4, -1]]", "classes from 0"),
        ("[[1, 2, NaN, 4, 1]]", "needs numbers"),
        ("[[50, 60, 20, 10, 1]]", "two corners and not a size"),
    ):
        with pytest.raises(DataError, match=says):
            metric.score({"boxes": boxes, "scores": scores, "labels": scores}, [target])
