"""What commands share: options, the log on stderr and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

log = Console(stderr=True)

Out = Annotated[Path, typer.Option("-o", "--out", help="File or folder to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print a machine's answer on stdout.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples a batch; changes memory and speed, not the scales.")]


def console() -> Console:
    """Return stdout, 120 columns wide where it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


class RichProgress:
    """Progress bars on stderr, one a stage; they stay, so that a log shows what was done."""

    def __init__(self) -> None:
        """Make the bars; they show when the context is entered."""
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._bars = Progress(*columns, console=log)

    def __enter__(self) -> RichProgress:
        """Show the bars."""
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave them as they are."""
        self._bars.stop()

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """Show one stage; yield what is called with the number of steps done."""
        task = self._bars.add_task(escape(title), total=total)
        yield lambda steps: self._bars.advance(task, steps)
        self._bars.update(task, completed=total)
