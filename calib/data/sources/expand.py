"""Packed data is expanded into temporary files, up to a limit: a small file must not fill the disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Protocol

from calib.errors import ConfigError, DataError

LIMIT_MB = 1024
"""What compressed data may expand to, whatever its ratio, if nobody says otherwise."""

RATIO = 100
"""What real data hardly reaches: zeros shrink to a thousandth, numbers and text to a tenth."""


def check(size: int, packed: int, limit_mb: int, where: str) -> None:
    """Check a size against the limit and against the packed size.

    Raises:
        DataError: it is above the limit and above RATIO times the packed size.
    """
    if size > limit_mb << 20 and size > RATIO * packed:
        raise DataError(
            f"{where} expands to more than {limit_mb} MiB and more than {RATIO} times its packed size, as a zip bomb does; "
            "if the data is what you want, raise expand_mb in the recipe's [options]"
        )


def check_limit(limit_mb: int) -> None:
    """Check the option `expand_mb`."""
    if limit_mb < 1:
        raise ConfigError(f"expand_mb must be at least 1, not {limit_mb}")


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, `size` at most; none at the end."""
        ...


@contextmanager
def temporary(where: str) -> Iterator[IO[bytes]]:
    """Yield a file without a name: its space is freed when nothing holds or maps it any more.

    Raises:
        DataError: it cannot be written.
    """
    try:
        with tempfile.TemporaryFile(prefix="calib-") as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{where} cannot be read or expanded into {tempfile.gettempdir()} ({error}); TMPDIR names another place"
        ) from error


def copy(source: Readable, target: IO[bytes], allowed: Callable[[int], None]) -> int:
    """Copy a stream; `allowed` is asked before each further piece with the size so far, and raises to stop."""
    size = 0
    while piece := source.read(1 << 20):
        size += len(piece)
        allowed(size)
        target.write(piece)
    target.flush()
    target.seek(0, os.SEEK_SET)
    return size
