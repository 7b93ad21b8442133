"""A finished study, printed."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calib.report import evidence_words as words
from calib.report.text import DASH
from calib.study import Finished
from calib.study.result import Candidate, StudyResult

_SCORES = 3  # columns of them; the report has all
_TONES = {"good": "green", "open": "yellow", "bad": "red"}


def print_result(finished: Finished, console: Console) -> None:
    """Print the candidates, the verdict with its reasons and evidence, and where the report and the tracked runs are."""
    result, folder = finished.result, finished.folder
    console.print(_table(result))
    verdict, tone = result.verdict, _TONES[words.DECISION_TONES[result.verdict.decision]]
    console.print(f"[bold {tone}]{escape(verdict.decision)}[/]: [bold]{escape(verdict.headline)}[/]", highlight=False)
    for reason in verdict.reasons:
        console.print(f"  {escape(reason)}", highlight=False)
    console.print(escape("\n".join(["", *_evidence(result)])), highlight=False)
    where = f"\nReport  {folder / 'report' / 'index.html'}\nMLflow  {result.tracking_uri or 'not tracked'}"
    console.print(escape(where), highlight=False)


def _evidence(result: StudyResult) -> list[str]:
    """What the evidence adds to the reasons, which have the difference with the interval that decides."""
    found, most = result.evidence, words.loses_most(result.evidence)
    said = most is not None and any(most.name in reason for reason in result.verdict.reasons)
    sentences = (
        words.needed(found),
        "" if said else words.worst(found),
        words.also_worse(found),
        words.corrected(found),
    )
    return [sentence for sentence in sentences if sentence]


def _table(result: StudyResult) -> Table:
    best = next((c for c in result.candidates if c.name == result.verdict.candidate), result.candidates[0])
    others = [score for score in best.metrics if score != result.budget_metric]
    scores = [result.budget_metric, *others][:_SCORES]
    levels = [c.interval.level for c in result.candidates if c.interval]
    interval = f"{words.level(levels[0])} interval" if levels else "interval"
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", no_wrap=True)
    for title in (*scores, f"{result.budget_metric} - FP32", interval, "equal", "broken", "fixed", "MB"):
        table.add_column(escape(title), justify="right", no_wrap=True)
    for row in result.candidates:
        table.add_row(*_cells(row, scores), style=_style(row, best))
    return table


def _cells(row: Candidate, scores: list[str]) -> tuple[str, ...]:
    label = f" ({row.kind})" if row.kind in ("reference", "control") else ""
    baseline = row.kind == "baseline"
    interval = f"{row.interval.low:+.4f} to {row.interval.high:+.4f}" if row.interval else DASH
    return (
        escape(f"{row.name}{label}"),
        *(f"{row.metrics[score]:.4f}" if score in row.metrics else DASH for score in scores),
        "" if baseline else f"{row.delta:+.4f}",
        "" if baseline else interval,
        "" if baseline else f"{row.agreement:.1%}",
        *("" if baseline else DASH if count is None else str(count) for count in (row.broken, row.fixed)),
        f"{row.size_bytes / 1e6:.1f}",
    )


def _style(row: Candidate, best: Candidate) -> str:
    return "bold" if row is best else "dim" if row.kind in ("reference", "control") else ""
