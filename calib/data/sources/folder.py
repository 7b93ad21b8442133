"""Files below a folder, in one order on every machine; what is no file inside it is named with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calib.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Found:
    """One entry of a folder that is not a folder.

    Attributes:
        path: where it is.
        relative: its path below the folder, with "/".
        problem: why it may not be read, without any name in it; "" for a file.
    """

    path: Path
    relative: str
    problem: str

    @property
    def hidden(self) -> bool:
        """Whether its name, or that of a folder above it, begins with a dot."""
        return any(part.startswith(".") for part in self.relative.split("/"))


def root(base: Path, folder: object) -> Path:
    """Return the folder that a source's option names, relative to `base`.

    Raises:
        ConfigError: it is not a folder.
    """
    if not isinstance(folder, str) or not folder:
        raise ConfigError(f"folder must be a path, relative to the recipe, not {folder!r}")
    path = (base / folder).resolve()
    if not path.is_dir():
        raise ConfigError(f"folder: {path} is not a folder; the path is relative to {base}")
    return path


def walk(folder: Path) -> Iterator[Found]:
    """Yield every entry at any depth, sorted as `find FOLDER ! -type d | LC_ALL=C sort` does.

    Links to folders are not followed, so that nothing comes twice; a link out of the folder is refused. Memory holds the
    names of one folder a level.
    """
    yield from _walk(folder, "", folder.resolve())


def refuse(path: Path, inside: Path) -> str:
    """Return why a path may not be read as a file below the resolved folder `inside`, or ""."""
    try:
        target = path.resolve(strict=True)
    except FileNotFoundError:
        return "is a link that leads nowhere; remove it" if path.is_symlink() else "does not exist"
    except (OSError, RuntimeError):  # a loop of links is a RuntimeError
        return "cannot be opened (no permission, or links in a loop); repair or remove it"
    if not target.is_relative_to(inside):
        return "leaves the folder; copy what it names into the folder"
    if target.is_dir():
        return "is a link to a folder; links to folders are not followed: remove it, or copy the folder"
    return "" if target.is_file() else "is not a regular file; remove it"


def _walk(folder: Path, prefix: str, inside: Path) -> Iterator[Found]:
    try:
        with os.scandir(folder) as entries:
            found = [
                (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
                for entry in entries
            ]
    except OSError as error:
        yield Found(folder, prefix, f"cannot be listed ({error.strerror}); repair its permissions")
        return
    for name, is_folder, is_file in sorted(found, key=lambda entry: os.fsencode(entry[0] + "/" * entry[1])):
        path = folder / name
        if is_folder:
            yield from _walk(path, f"{prefix}{name}/", inside)
        else:
            # No folder above is a link, so a plain file is inside; resolving every path would take most of the time.
            yield Found(path, prefix + name, "" if is_file else refuse(path, inside))
