"""The samples that changed between right and wrong, grouped for reading."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from calib.report import text
from calib.report.images import read_png
from calib.study.result import Flip, StudyResult

_OPEN = 12  # cards that are visible at once
_GLIMPSE = 4  # at least, of each kind of the best candidate
_LISTED = 150
_EMBEDDED_BYTES = 1_200_000  # base64 makes 1.6 MB of it: the page stays easy to mail


@dataclass(frozen=True, slots=True)
class FlipView:
    """A flip, ready to be shown."""

    candidate: str
    kind: str
    sample: str
    lost: str  # or gained; "" where the metric gives no margin
    metadata: tuple[tuple[str, str], ...]
    target: str | None
    baseline: tuple[text.Segment, ...] | None
    prediction: tuple[text.Segment, ...] | None
    source: str | None  # a data URI; Markup, since base64 needs no escaping
    file: str | None  # name under images/
    left_out: str  # why there is no image, if there is one to show


@dataclass(frozen=True, slots=True)
class FlipGroup:
    """Flips of one candidate and kind."""

    candidate: str
    kind: str
    total: int
    first: tuple[FlipView, ...]
    rest: tuple[FlipView, ...]


def flip_groups(result: StudyResult, images: Path) -> tuple[tuple[FlipGroup, ...], dict[str, bytes]]:
    """Group a study's flips, the verdict's candidate and broken samples first, those that lost or gained most first.

    Args:
        result: the study; unless it includes samples, no text or image of one is read or returned.
        images: the folder that Flip.image is relative to.

    Returns:
        The groups, and the images to save: file name -> PNG bytes.

    Raises:
        DataError: if an image lies outside the folder or is not a PNG.
    """
    order = [result.verdict.candidate, *(c.name for c in result.candidates)]
    ranked = sorted(
        result.flips, key=lambda flip: (_rank(order, flip.candidate), flip.kind != "broken", -_change(flip))
    )[:_LISTED]
    files: dict[str, bytes] = {}
    sources: dict[str, str] = {}
    if result.include_samples:
        for path in dict.fromkeys(flip.image for flip in ranked if flip.image is not None):
            sources[path] = f"flip-{len(sources) + 1:03d}.png"
            files[sources[path]] = read_png(images, path)
    columns = {column for candidate in result.candidates for column in candidate.slices}
    embedded = _embedded(files)
    views = [_flip_view(flip, result.include_samples, columns, sources, embedded) for flip in ranked]
    totals = {(c.name, kind): getattr(c, kind) for c in result.candidates for kind in ("broken", "fixed")}
    groups, room = [], _OPEN
    for (candidate, kind), members in groupby(views, key=lambda flip: (flip.candidate, flip.kind)):
        cards = tuple(members)
        total = max(totals.get((candidate, kind)) or 0, len(cards))
        shown = max(room, _GLIMPSE if candidate == result.verdict.candidate else 0)
        groups.append(FlipGroup(candidate, kind, total, cards[:shown], cards[shown:]))
        room = max(0, room - len(cards))
    return tuple(groups), files


def _rank(order: list[str], candidate: str) -> int:
    return order.index(candidate) if candidate in order else len(order)


def _change(flip: Flip) -> float:
    """How much margin a broken sample lost, or a fixed one gained; those without one come last."""
    if flip.lost is None:
        return -math.inf
    return flip.lost if flip.kind == "broken" else -flip.lost


def _margin(lost: float | None) -> str:
    if lost is None:
        return ""
    return f"margin lost: {text.compact(lost)}" if lost >= 0 else f"margin gained: {text.compact(-lost)}"


def _embedded(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return data URIs of as many images as the page may hold."""
    found: dict[str, str] = {}
    room = _EMBEDDED_BYTES
    for name, content in files.items():
        if len(content) <= room:
            room -= len(content)
            found[name] = Markup("data:image/png;base64," + base64.b64encode(content).decode("ascii"))  # noqa: S704  base64 only
    return found


def _flip_view(
    flip: Flip, samples: bool, columns: set[str], names: Mapping[str, str], embedded: Mapping[str, str]
) -> FlipView:
    # Metadata may identify a person; what the slices publish anyway does not add to it.
    metadata = tuple((k, v) for k, v in flip.metadata.items() if samples or k in columns)
    file = names.get(flip.image or "")
    shown = samples and flip.baseline_prediction is not None and flip.prediction is not None
    return FlipView(
        candidate=flip.candidate,
        kind=flip.kind,
        sample=flip.sample,
        lost=_margin(flip.lost),
        metadata=metadata,
        target=text.clean(flip.target) if samples and flip.target is not None else None,
        # What the metric calls right may still differ from the target (spaces, say): that is not what broke.
        baseline=text.compare(flip.target if flip.kind == "fixed" else None, flip.baseline_prediction or "")
        if shown
        else None,
        prediction=text.compare(flip.target if flip.kind == "broken" else None, flip.prediction or "")
        if shown
        else None,
        source=embedded.get(file or ""),
        file=file,
        left_out=f"image not embedded, to keep this page small: {flip.image}" if file and file not in embedded else "",
    )
