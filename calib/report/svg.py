"""From a matplotlib figure to an SVG that follows the colours and fonts of the page around it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec
from xml.etree import ElementTree

import matplotlib
from matplotlib.figure import Figure

INK, PAPER = "#010203", "#fdfcfb"
BLUE, ORANGE, GREEN, PURPLE, SKY, RED = "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"

# Okabe and Ito's colours are drawn and become variables: some of them are too pale for white, others for black.
_COLOURS = {INK: "currentColor", PAPER: "var(--paper)"} | {
    colour: f"var(--{name})"
    for colour, name in zip(
        (BLUE, ORANGE, GREEN, PURPLE, SKY, RED), ("blue", "orange", "green", "purple", "sky", "red"), strict=True
    )
}
_LIGHT = "--paper:#fff;--blue:#0072b2;--orange:#b26b00;--green:#00805d;--purple:#a8508a;--sky:#2f8fc4;--red:#c24700"
_DARK = "--paper:#15191f;--blue:#58aee6;--orange:#e69f00;--green:#2bbd92;--purple:#dd94bb;--sky:#8fd0f5;--red:#ff8a4a"
_STANDALONE = (
    f"svg{{color:#1d2430;background:var(--paper);{_LIGHT}}}"
    f"@media (prefers-color-scheme:dark){{svg{{color:#dfe4ea;{_DARK}}}}}"
)
_FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
_RC: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "calib",
    "text.parse_math": False,  # a tensor named "$x$" is not a formula
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.unicode_minus": True,
}
_MARGIN = 10
_Arguments = ParamSpec("_Arguments")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure, ready to be put inside HTML or saved on its own."""

    name: str  # letters, digits and "-": a file name and the prefix of its ids
    inline: str  # the <svg> element
    file: str  # a standalone document with its own colours


@dataclass(frozen=True, slots=True)
class Captioned:
    """A drawing and its caption."""

    drawing: Drawing
    caption: str


def drawing(make: Callable[_Arguments, tuple[str, str, Figure]]) -> Callable[_Arguments, Drawing]:
    """Turn a function that returns a name, a description and a figure into one that returns a Drawing."""

    @wraps(make)
    def wrapper(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Drawing:
        buffer = io.BytesIO()
        with matplotlib.rc_context(_RC), warnings.catch_warnings():
            # Text stays text, so the reader's fonts draw the characters that ours lack.
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            name, description, figure = make(*args, **kwargs)
            metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(buffer, format="svg", metadata=metadata)
        return _convert(name, description, buffer.getvalue())

    return wrapper


def _convert(name: str, description: str, source: bytes) -> Drawing:
    tree = ElementTree.fromstring(source)  # noqa: S314  matplotlib wrote it a moment ago
    local = re.compile(r"^\{[^}]*\}")
    for parent in list(tree.iter()):
        for child in list(parent):
            if local.sub("", child.tag) in ("metadata", "style"):
                parent.remove(child)
    used = set(re.findall(rb"(?:url\(|href=\")#([\w-]+)", source))
    for element in tree.iter():
        element.tag = local.sub("", element.tag)
        attributes = {local.sub("", key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        for key, value in attributes.items():
            if key == "id" and value.encode() not in used:
                continue
            element.set(key, _attribute(key, value, name))
    for key in ("version", "width", "height"):
        tree.attrib.pop(key, None)
    tree.set("xmlns", "http://www.w3.org/2000/svg")
    tree.set("role", "img")
    tree.set("aria-label", description)
    tree.set("style", "stroke-linejoin:round;stroke-linecap:butt")
    inline = ElementTree.tostring(tree, encoding="unicode")
    style = ElementTree.Element("style")
    style.text = _STANDALONE
    tree.insert(0, style)
    # On its own the figure has a background, which needs a margin, and a size, which the page gives otherwise.
    width, height = (float(side) + 2 * _MARGIN for side in tree.get("viewBox", "0 0 0 0").split()[2:])
    tree.set("viewBox", f"{-_MARGIN} {-_MARGIN} {width:g} {height:g}")
    tree.set("width", f"{1.3 * width:.0f}")
    tree.set("height", f"{1.3 * height:.0f}")
    return Drawing(name=name, inline=inline, file=ElementTree.tostring(tree, encoding="unicode") + "\n")


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key in ("href", "clip-path"):
        return value.replace("#", f"#{name}-")
    if key in ("style", "fill", "stroke"):
        value = re.sub(r"'DejaVu Sans'[^;]*|\"DejaVu Sans\"[^;]*", _FONT, value)
        return re.sub(r"#[0-9a-f]{6}", lambda match: _COLOURS.get(match.group(), match.group()), value)
    return value
