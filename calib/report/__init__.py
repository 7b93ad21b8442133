"""A study's report: one self-contained HTML page, and Markdown with figures for a commit."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import escape

from calib.report import text
from calib.report.flips import flip_groups
from calib.report.view import view
from calib.study.result import StudyResult

__all__ = ["render"]

_FIGURES = (
    "candidates.svg", "sample-size.svg", "slices.svg", "slice-values.svg", "quality-*.svg", "tensor-*.svg",
)  # fmt: skip


def render(result: StudyResult, folder: Path, *, images: Path) -> None:
    """Write a study's report.

    `folder` gets index.html (self-contained), report.md, figures/*.svg and, if the study includes samples,
    images/flip-*.png. Each file is written whole or not at all, the two pages last; what an earlier report left in
    figures/ and images/ and this one does not show is removed. The same result gives the same bytes.

    Args:
        result: what the study found.
        folder: where to write; made if missing.
        images: the run folder, which Flip.image is relative to.

    Raises:
        DataError: if a flip's image is not a PNG inside `images`.
    """
    groups, pictures = flip_groups(result, images)
    shown = view(result)
    context = {
        "r": result,
        "v": shown,
        "groups": groups,
        "t": text,
        "fence": text.fence,
        "hashes": [(candidate.name, candidate.sha256) for candidate in result.candidates],
        "times": [(stage, text.seconds(value)) for stage, value in result.seconds.items()],
    }
    html = _environment("html").get_template("template.html").render(context)
    markdown = _environment("md").get_template("template.md").render(context)
    drawings = {f"{drawing.name}.svg": drawing.file.encode() for drawing in shown.drawings}
    for name, content in drawings.items():
        _write(folder / "figures" / name, content)
    for name, content in pictures.items():
        _write(folder / "images" / name, content)
    _write(folder / "report.md", markdown.encode())
    _write(folder / "index.html", html.encode())
    _remove(folder / "figures", _FIGURES, drawings)
    _remove(folder / "images", ("flip-*.png",), pictures)


@cache
def _environment(kind: str) -> Environment:
    environment = Environment(
        loader=PackageLoader("calib.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text.markdown if kind == "md" else text.tidy,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["spaces"] = escape  # Markup passes `finalize`, which would fold the spaces of a sample's text
    return environment


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove(folder: Path, patterns: tuple[str, ...], kept: dict[str, bytes]) -> None:
    """Remove an earlier report's files: a sample that may no longer be shown must not stay behind."""
    for pattern in patterns:
        for path in folder.glob(pattern):
            if path.name not in kept:
                path.unlink()
