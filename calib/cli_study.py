"""A finished study, printed."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calib.study import Finished


def print_result(finished: Finished, console: Console) -> None:
    """Print the table of candidates, the verdict with its reasons, and where the report and the tracked runs are."""
    result, folder = finished.result, finished.folder
    scores = list(result.candidates[0].metrics)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", no_wrap=True)
    for title in (*scores, f"{result.budget_metric} - FP32", "95 % interval", "equal", "broken", "fixed", "MB"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in result.candidates:
        name = f"{row.name} (control)" if row.kind == "control" else row.name
        table.add_row(
            escape(name),
            *(f"{row.metrics[score]:.4f}" for score in scores),
            f"{row.delta:+.4f}" if row.interval else "",
            f"{row.interval.low:+.4f} to {row.interval.high:+.4f}" if row.interval else "",
            f"{row.agreement:.1%}",
            str(row.broken),
            str(row.fixed),
            f"{row.size_bytes / 1e6:.1f}",
            style="bold" if row.name == result.verdict.candidate else "dim" if row.kind == "control" else "",
        )
    console.print(table)
    console.print(f"[bold {'green' if result.verdict.passed else 'yellow'}]{escape(result.verdict.headline)}[/]")
    for reason in result.verdict.reasons:
        console.print(f"  {escape(reason)}")
    where = f"\nReport  {folder / 'report' / 'index.html'}\nMLflow  {result.tracking_uri or 'not tracked'}"
    console.print(escape(where), highlight=False)
