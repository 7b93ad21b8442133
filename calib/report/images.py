"""The images of flips: read from the run folder and from nowhere else."""

from __future__ import annotations

from pathlib import Path

from calib.errors import DataError

_PNG = b"\x89PNG\r\n\x1a\n"


def read_png(root: Path, relative: str) -> bytes:
    """Read an image that a study names.

    Args:
        root: the run folder.
        relative: path of a PNG file inside it.

    Returns:
        The file's bytes.

    Raises:
        DataError: if the path leaves the folder (also through a symbolic link), or is not a readable PNG file.
    """
    base = root.resolve()
    try:
        path = (base / relative).resolve()
        inside = path.is_relative_to(base) and not Path(relative).is_absolute()
        content = path.read_bytes() if inside else b""
    except (OSError, ValueError) as error:
        raise DataError(f"Cannot read the flip image {relative!r} in {base}: {error}. Run the study again.") from error
    if not inside:
        raise DataError(f"The flip image {relative!r} must be a path inside the run folder {base}.")
    if not content.startswith(_PNG):
        raise DataError(f"The flip image {relative!r} in {base} must be a PNG file.")
    return content
