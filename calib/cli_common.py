"""What commands share: options, the log on stderr and progress bars."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from calib.errors import ConfigError

log = Console(stderr=True)

Out = Annotated[Path, typer.Option("-o", "--out", help="File or folder to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print a machine's answer on stdout.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Samples a batch; changes memory and speed, not the scales.")]

Options = Annotated[
    list[str] | None,
    typer.Option("--set", help='Option of the metric, KEY=VALUE in TOML: --set "top=[1,5]". Repeat for more.'),
]


def parse_options(entries: Sequence[str]) -> dict[str, Any]:
    """Return what KEY=VALUE entries say; a value is TOML, and a bare word is a string.

    Raises:
        ConfigError: an entry has no key, has one that was there before, or begins like a list, a table or a string and is none.
    """
    result: dict[str, Any] = {}
    for entry in entries:
        key, separator, text = entry.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--set {entry!r} must be KEY=VALUE")
        if key.strip() in result:
            raise ConfigError(f"--set gives {key.strip()} twice")
        result[key.strip()] = _value(key.strip(), text.strip())
    return result


def _value(key: str, text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError as error:
        if text[:1] and text[0] in "[{\"'":
            raise ConfigError(
                f"--set {key}={text} is not valid TOML ({error}); a shell drops quotes that are not quoted themselves: "
                f'--set \'{key}=["a", "b"]\''
            ) from error
        return text
    value = parsed["value"]
    simple = len(parsed) == 1 and isinstance(value, bool | int | float | str | list | dict)
    return value if simple else text  # a date is what it says


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
