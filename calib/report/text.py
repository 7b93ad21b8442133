"""How numbers, verdicts and texts are written, the same in HTML, Markdown and figures."""

from __future__ import annotations

import difflib
import html
import math
import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from calib.evidence.result import Interval
from calib.study.verdict import title as title

Status = Literal["baseline", "within", "unshown", "over", "unknown", "worse", "slightly", "few"]

STATUS_WORDS: dict[Status, str] = {
    "baseline": "baseline",
    "within": "within budget",
    "unshown": "not shown",
    "over": "over budget",
    "unknown": "no interval",
    "worse": "worse",
    "slightly": "slightly worse",
    "few": "too few",
}

DASH = "\u2013"
MINUS = "\u2212"


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of characters of a prediction compared with its target."""

    kind: Literal["same", "wrong", "missing"]
    text: str


def judge(delta: float, interval: Interval | None, *, max_drop: float, higher_is_better: bool) -> Status:
    """Say where a difference to FP32 stands against the budget.

    Only an interval that lies wholly on one side of the budget decides; one that crosses it shows nothing.

    Args:
        delta: metric minus FP32's.
        interval: of delta, or None when there is none.
        max_drop: how much worse than FP32 is acceptable.
        higher_is_better: direction of the metric.

    Returns:
        "within", "over", "unshown" (the interval crosses the budget) or "unknown" (there is no usable interval).
    """
    if interval is None or not all(map(math.isfinite, (delta, interval.low, interval.high))):
        return "unknown"
    best, worst = (-interval.high, -interval.low) if higher_is_better else (interval.low, interval.high)
    if worst <= max_drop:
        return "within"
    return "over" if best > max_drop else "unshown"


def clean(value: str) -> str:
    """Replace characters that are invisible or illegal in XML by visible ones, line breaks too.

    Control characters, lone surrogates and direction overrides would break the SVG or disguise a text.
    """
    named = {"\n": "↵", "\t": "⇥", "\r": "␍"}
    return "".join(named.get(c) or ("\ufffd" if _unsafe(c) else c) for c in value)


def plain(value: str) -> str:
    """Put a name or a sentence on one line, otherwise as `clean` does."""
    return clean(re.sub(r"\s+", " ", value))


def tidy(value: object) -> object:
    """Make a value safe to show in HTML; the template's `finalize`, before autoescape."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _unsafe(char: str) -> bool:
    return (
        unicodedata.category(char) in ("Cc", "Cs")
        or char in "\ufffe\uffff"
        or "\u202a" <= char <= "\u202e"
        or "\u2066" <= char <= "\u2069"
    )


def number(value: float) -> str:
    """Format a metric: four decimals."""
    return _fixed(value, 4)


def signed(value: float) -> str:
    """Format a difference: sign and four decimals, and no sign on what rounds to zero."""
    text = _fixed(value, 4)
    return f"+{text}" if (text[:1].isdigit() and text != "0.0000") or text == "∞" else text


def _fixed(value: float, decimals: int) -> str:
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        return text.lstrip("-")
    return text.replace("-", MINUS)


def span(interval: Interval | None) -> str:
    """Format an interval's two ends."""
    return DASH if interval is None else f"{signed(interval.low)} to {signed(interval.high)}"


def percent(value: float) -> str:
    """Format a share of samples."""
    return f"{_fixed(100 * value, 1)} %"


def rare(value: float) -> str:
    """Format a share that may be tiny, as in clipped values."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else _fixed(value, 1)
    shown = 100 * value
    if shown < 0.0001:
        return "< 0.0001 %"
    return f"{_fixed(shown, max(0, min(4, 1 - math.floor(math.log10(shown)))))} %"


def decibel(value: float) -> str:
    """Format a signal-to-noise ratio."""
    return f"{_fixed(value, 1)} dB"


def compact(value: float) -> str:
    """Format a range end, which may have any magnitude, with four significant digits."""
    return f"{value:.4g}".replace("-", MINUS) if math.isfinite(value) else _fixed(value, 0)


def size(value: int) -> str:
    """Format a number of bytes."""
    return f"{value / 2**20:,.1f} MiB" if value >= 2**20 else f"{value / 2**10:,.1f} KiB"


def seconds(value: float) -> str:
    """Format a wall time."""
    return f"{_fixed(value, 1)} s"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def compare(target: str | None, text: str) -> tuple[Segment, ...]:
    """Mark the characters of a prediction that differ from its target.

    When less than half agrees, as with two class names, the whole text is marked: scattered matches mislead.
    """
    if not target:
        return (Segment("same", clean(text)),)
    matcher = difflib.SequenceMatcher(None, target, text, autojunk=False)
    if matcher.ratio() < 0.5:
        return (Segment("wrong", clean(text)),)
    parts: list[Segment] = []
    for operation, i1, i2, j1, j2 in matcher.get_opcodes():
        if operation == "delete":
            parts.append(Segment("missing", clean(target[i1:i2])))
        else:
            parts.append(Segment("same" if operation == "equal" else "wrong", clean(text[j1:j2])))
    return tuple(parts)


def markdown(value: object) -> Markup:
    """Escape a value for running text or a table cell of GitHub's Markdown.

    It is the template's `finalize`, so that nothing reaches Markdown unescaped unless it is Markup already.
    """
    if isinstance(value, Markup):
        return value
    text = html.escape(plain(str(value)), quote=False)
    text = re.sub(r"([\\`*_\[\]|~$])", r"\\\1", text)
    # Entities stop GitHub from making headings, mentions, issue references and links of a user's text.
    for raw, entity in (("#", "&#35;"), ("@", "&#64;"), ("://", ":&#47;/"), ("www.", "www&#46;")):
        text = text.replace(raw, entity)  # "#" comes first, since the entities contain it
    return Markup(re.sub(r"^(\s*\d*)([-+.)=])(?=\s|$)", r"\1\\\2", text))  # noqa: S704  escaped above


def fence(value: str) -> Markup:
    """Return a fenced Markdown code block that the content cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", value)), default=0)
    marks = "`" * max(3, longest + 1)
    return Markup(f"{marks}sh\n{value.strip()}\n{marks}")  # noqa: S704  escaped above
