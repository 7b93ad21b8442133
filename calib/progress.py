"""How long work tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol


class Progress(Protocol):
    """Shows how far a stage is."""

    def stage(self, title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
        """Return a context that yields a function to call with the number of steps done."""
        ...
