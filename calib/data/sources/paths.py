"""Which files a source reads: a file, a folder or a pattern; nothing outside the place that the user named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from calib.errors import ConfigError, DataError


def locate(base: Path, path: str) -> Path:
    """Return what the option `path` of a recipe names, relative to `base`.

    A recipe is its user's own: it may name any place. What that place holds may not lead out of it.

    Raises:
        ConfigError: it is empty or does not exist.
    """
    if not path:
        raise ConfigError("the option 'path' is empty: give a file or a folder, relative to the recipe")
    found = base / path
    if not found.exists():
        raise ConfigError(f"{found} does not exist; a path is relative to the recipe")
    return found


def find(base: Path, path: str, suffixes: Sequence[str]) -> tuple[Path, list[Path]]:
    """Return a root folder, and the files that `path` names in a fixed order, each inside the root.

    Args:
        base: folder of the recipe.
        path: a file, a folder (every file below it with one of the suffixes), or a pattern relative to `base`.
        suffixes: as (".parquet",); hidden files and folders are passed over.

    Raises:
        ConfigError: the path is wrong.
        DataError: there is no such file, or a link leads out of the root.
    """
    if not Path(path).is_absolute() and any(sign in path for sign in "*?[") and not (base / path).exists():
        found = sorted(matched for matched in base.glob(path) if matched.is_file())
        for matched in found:
            _refuse_outside(matched, base)
        if not found:
            raise DataError(f"no file in {base} matches '{path}'")
        return base, found
    place = locate(base, path)
    if not place.is_dir():
        if not place.is_file():
            raise DataError(f"{place} is neither a file nor a folder")
        return place.parent, [place]
    found = [file for file in walk(place) if file.name.endswith(tuple(suffixes))]
    if not found:
        raise DataError(f"{place} holds no {' or '.join(suffixes)} file")
    return place, found


def walk(root: Path) -> Iterator[Path]:
    """Yield every regular file below `root` in a fixed order, except hidden ones.

    Raises:
        DataError: a link leads out of `root`.
    """
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            _refuse_outside(Path(folder, name), root)
        for name in sorted(names):
            file = Path(folder, name)
            if not name.startswith("."):
                _refuse_outside(file, root)
                if file.is_file():
                    yield file


def _refuse_outside(path: Path, root: Path) -> None:
    # What is no link cannot lead out, and resolving each of 100,000 files would be slow.
    if path.is_symlink() and not _resolved(path).is_relative_to(root.resolve()):
        raise DataError(f"{path} is a link that leads out of {root}; put the file itself there")


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise DataError(f"{path} cannot be followed ({error}); remove it") from error
