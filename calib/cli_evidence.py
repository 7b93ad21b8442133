"""What `calib gate`, `calib compare` and `calib sample-size` find and print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calib.comparing import Comparison, Scales
from calib.data import sets
from calib.errors import ConfigError, DataError
from calib.evidence import planning
from calib.evidence.planning import SampleSize
from calib.gating import Gate, Latencies
from calib.report import text
from calib.study import load_result
from calib.study.result import StudyResult
from calib.study.verdict import title

_RUN = re.compile(r"\d{8}T\d{6}Z-")  # how the folder of a run begins
_COLOURS = {"passed": "green", "failed": "red", "skipped": "dim"}
_ROWS = 8
_LEVEL = 0.95


def run_folder(path: Path) -> Path:
    """Return a run's folder: `path` itself, or of a study's folder the newest run.

    Raises:
        DataError: it is neither, or the newest run is not finished: an older one must not be taken for it.
    """
    if (path / "study.json").is_file():
        return path
    runs = sorted(run for run in path.iterdir() if _RUN.match(run.name)) if path.is_dir() else []
    if not runs:
        raise DataError(f"{path} is no run: give a folder with a study.json, or a study's folder of runs")
    if not (runs[-1] / "study.json").is_file():
        raise DataError(
            f"{runs[-1]}, the newest run in {path}, is not finished: run the study again, or name another run"
        )
    return runs[-1]


def latencies(int8_ms: float | None, fp16_ms: float | None) -> Latencies | None:
    """Return both latencies, or None where none is given.

    Raises:
        ConfigError: only one is given, or one is no time.
    """
    if int8_ms is None and fp16_ms is None:
        return None
    if int8_ms is None or fp16_ms is None:
        raise ConfigError("--int8-ms and --fp16-ms must be given both: the gate compares them")
    return Latencies(int8_ms, fp16_ms)


def print_gate(found: Gate, result: StudyResult, console: Console) -> None:
    """Print the decision, its reasons and the checks."""
    console.print(_plain(f"{result.name}  run {result.run}"))
    table = _table("check", "samples", "drop", "interval of the drop", "verdict", left=(0, 3, 4))
    for row in found.rows:
        cells = (row.name, row.samples, row.drop, row.interval, row.verdict)
        table.add_row(*map(_plain, cells), style=_COLOURS[row.status] if row.status != "passed" else "")
    console.print(table)
    colour = _COLOURS["passed" if found.passed else "failed"]
    console.print(f"[bold {colour}]{_plain(found.decision)}[/]: [bold]{_plain(found.headline)}[/]")
    for reason in found.reasons:
        console.print(f"  {_plain(reason)}")


def print_comparison(found: Comparison, console: Console) -> None:
    """Print what differs, then what is equal in a line, then what the scores say."""
    table = _table("what", "before", "after", left=(0, 1, 2))
    rows = [("run", found.before, found.after)]
    rows += [(change.what, change.before, change.after) for change in found.changes if change.differs]
    rows += [
        (f"layer {one.layer}", one.before or text.DASH, one.after or text.DASH) for one in found.layers.changed[:_ROWS]
    ]
    rows += [
        (f"scale of {one.tensor}", f"{one.before:.4g}", f"{one.after:.4g} ({one.ratio:.3g} times)")
        for one in found.scales.changed[:_ROWS]
    ]
    for row in rows:
        table.add_row(*map(_plain, row))
    console.print(table)
    left = len(found.layers.changed) - _ROWS
    if left > 0:
        console.print(f"{text.plural(left, 'more layer')} in another precision")
    console.print(_plain(_scales(found.scales)))
    equal = [change.what for change in found.changes if not change.differs]
    if not found.layers.changed:
        equal.append(f"precision of {text.plural(found.layers.compared, 'layer')}")
    if equal:
        console.print(_plain(f"Equal: {', '.join(equal)}"), style="dim")
    console.print()
    colour = {"better": "green", "worse": "red"}.get(found.scores.outcome, "yellow")
    first, *others = found.scores.sentences
    console.print(f"[bold {colour}]{_plain(first[:1].upper() + first[1:])}[/]")
    for sentence in others:
        console.print(f"  {_plain(sentence)}")


def _scales(found: Scales) -> str:
    which = found.before if found.before == found.after else f"{found.before} and {found.after}"
    changed = f"{len(found.changed)} of {text.plural(found.compared, 'scale')} ({which}) changed by more than {found.limit:.0%}"
    alone = [
        f"{text.plural(len(names), 'tensor')} {where} alone ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"
        for names, where in ((found.only_before, "before"), (found.only_after, "after"))
        if names
    ]
    return "; ".join([changed, *alone])


@dataclass(frozen=True, slots=True)
class Sizing:
    """A number of samples with what it counts."""

    size: SampleSize
    unit: str  # "sample", or "page" where samples are grouped by that column
    metric: str  # "" where no run was given
    assumed: str  # in words


def sizing(
    run: Path | None,
    margin: float | None,
    broken: float | None,
    fixed: float | None,
    *,
    level: float | None,
    power: float,
) -> Sizing:
    """Return what a margin needs, from expected flips or, with a run, from what its best candidate lost.

    Raises:
        ConfigError: an argument is missing, out of range, or given beside a run.
        DataError: the run cannot be read.
    """
    if run is None:
        return _flips(margin, broken, fixed, level=_LEVEL if level is None else level, power=power)
    if broken is not None or fixed is not None:
        raise ConfigError("--run measures what changes: leave out --broken and --fixed")
    return _measured(run_folder(run), margin, level=level, power=power)


def _flips(margin: float | None, broken: float | None, fixed: float | None, *, level: float, power: float) -> Sizing:
    if margin is None or broken is None:
        raise ConfigError("give --margin and --broken, the share of samples that are expected to break, or --run RUN")
    fixed = fixed or 0.0
    assumed = f"of the samples a share of {broken:g} breaks and {fixed:g} is fixed, independently of each other"
    return Sizing(planning.of_flips(margin, broken, fixed, level=level, power=power), "sample", "", assumed)


def _measured(run: Path, margin: float | None, *, level: float | None, power: float) -> Sizing:
    """Return what a margin needs; the study's margin and the level of the interval that decided, unless others are given."""
    result = load_result(run / "study.json")
    found, bound = result.evidence, result.evidence.bound
    samples = sets.read(run / "evaluation")
    size = planning.of_run(
        found.overall,
        result.max_drop if margin is None else margin,
        higher_is_better=found.higher_is_better,
        level=level if level is not None else bound.level if bound else _LEVEL,
        power=power,
    )
    assumed = (
        f"samples are like those of run {result.run}, and FP32 and INT8 ({found.candidate}) differ as much on them"
    )
    return Sizing(size, samples.group or "sample", title(found.metric), assumed)


def print_sizing(found: Sizing, console: Console) -> None:
    """Print how many samples are needed, what that assumes, and a table by power."""
    size = found.size
    console.print(f"[bold]{_plain(_needed(found))}[/]")
    console.print(_plain(f"Assumed: {found.assumed}."))
    if found.unit != "sample":
        console.print(
            _plain(f"Samples of one '{found.unit}' are not independent, so what counts is how many of these there are.")
        )
    if size.few:
        console.print(
            f"So few samples are expected to change (fewer than {planning.FEW}) that more are needed than the formula says: "
            "take half as many again.",
            style="yellow",
        )
    if size.samples is not None and size.detectable is not None:
        console.print(
            _plain(
                f"The {_count(size.samples, found.unit)} of the run would have shown a drop of {text.number(size.detectable)} "
                f"or more, {_often(size.power)}."
            )
        )
    table = _table("shown so often", "as good as FP32", f"a drop of {text.number(size.drop)}")
    for need in size.needs:
        cells = ("none" if number is None else f"{number:,}" for number in (need.if_equal, need.as_expected))
        table.add_row(f"{need.power:.0%}", *cells, style="bold" if need.power == size.power else "")
    console.print(table)


def _needed(found: Sizing) -> str:
    size, number, metric = found.size, found.size.asked.as_expected, found.metric or "accuracy"
    if number is None:
        drop = f"{size.drop:.4g}, the drop to expect of {metric},"
        return f"No number of samples would do: {drop} reaches the margin of {size.margin:g}"
    shown = f"show that {metric} drops by no more than {size.margin:g}"
    return f"{_count(number, found.unit)} {shown}, {_often(size.power)} ({100 * size.level:.3g} % interval)"


def _often(power: float) -> str:
    return f"in {10 * power:.3g} of 10 studies"


def _count(number: int, unit: str) -> str:
    return text.plural(number, unit) if unit == "sample" else f"{number:,} groups of samples by '{unit}'"


def _plain(value: str) -> str:
    return escape(text.plain(value))


def _table(*titles: str, left: tuple[int, ...] = (0,)) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, name in enumerate(titles):
        table.add_column(escape(name), justify="left" if position in left else "right", overflow="fold")
    return table
