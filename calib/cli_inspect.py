"""What `calib inspect` prints: the model, its operators, its layers, and what TensorRT does not take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calib.errors import ConfigError
from calib.graph.finding import Finding
from calib.inspection import Inspection, Layer

_SHOWN = 3  # nodes of one finding


def parse_shapes(options: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of --shape x=1x3x48x320, by input; "x=" is a number of rank 0.

    Raises:
        ConfigError: not of that form.
    """
    result = {}
    for option in options:
        name, separator, sizes = option.rpartition("=")
        parts = sizes.split("x") if sizes else []
        if not separator or not name or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise ConfigError(f"--shape {option} must be an input and its sizes, like x=1x3x48x320")
        result[name] = tuple(int(part) for part in parts)
    return result


def print_inspection(found: Inspection, console: Console) -> None:
    """Print an inspection."""
    _print_model(found, console)
    _print_operators(found, console)
    _print_layers(found.layers, console)
    _print_findings(found.findings, console)


def _print_model(found: Inspection, console: Console) -> None:
    rows = [*(("input", name, shape) for name, shape in found.inputs.items())]
    rows += [("output", name, shape) for name, shape in found.outputs.items()]
    for title, name, shape in rows:
        console.print(escape(f"{title:12} {name}  {shape}"))
    console.print(f"{'opset':12} {found.opset}")
    console.print(f"{'parameters':12} {found.parameters:,}")
    at = ", ".join(f"{name} {'x'.join(map(str, sizes))}" for name, sizes in found.shapes.items())
    console.print(escape(f"{'MACs':12} {_short(found.macs)}{f' at {at}' if at else ''}"))
    if found.macs is None:
        console.print(escape(f"{'':12} {_hint(found.inputs, found.shapes)}"))
    if found.uncounted:
        console.print(escape(f"{'':12} without those of {', '.join(found.uncounted)}"))
    for number, step in enumerate(found.normalization):
        console.print(escape(f"{'' if number else 'normalized':12} {step}"))


def _short(count: int | None) -> str:
    """Return 702485760 as "702.5 M"."""
    if count is None:
        return "?"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return str(count)


def _hint(inputs: Mapping[str, str], given: Mapping[str, Sequence[int]]) -> str:
    """Say which sizes are missing: "x=?x3x48x?" for "float32[N, 3, 48, W]"."""
    wanted = []
    for name, described in inputs.items():
        sizes = described.partition("[")[2].rstrip("]").split(", ")
        open_sizes = [size if size.isdecimal() else "?" for size in sizes]
        if name not in given and "?" in open_sizes:
            wanted.append(f"--shape {name}={'x'.join(open_sizes)}")
    if wanted:
        return f"the model leaves sizes open: give {' '.join(wanted)} with numbers for the ?"
    return "sizes depend on the data"


def _print_operators(found: Inspection, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("operator", "nodes", "INT8", "parameters", "MACs", "share"):
        table.add_column(title, justify="left" if title == "operator" else "right")
    rest = []
    for row in found.operators:
        if row.macs == 0 and not row.parameters:
            rest.append(f"{row.nodes} {row.name}")
            continue
        share = f"{row.macs / found.macs:.1%}" if row.macs and found.macs else ""
        numbers = f"{row.parameters:,}" if row.parameters else "", _short(row.macs) if row.macs != 0 else "", share
        table.add_row(escape(row.name), str(row.nodes), str(row.int8 or ""), *numbers)
    console.print(table)
    if rest:
        console.print(escape(f"and {', '.join(rest)}\n"))


def _print_layers(layers: Sequence[Layer], console: Console) -> None:
    reasons = list(dict.fromkeys(layer.reason for layer in layers if layer.reason))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("layer", "operator", "type", "parameters", "MACs", "activations", "weights"):
        table.add_column(title, overflow="fold", justify="right" if title in ("parameters", "MACs") else "left")
    for layer in layers:
        note = f" ({reasons.index(layer.reason) + 1})" if layer.reason else ""
        table.add_row(
            escape(layer.name),
            layer.operator,
            f"{layer.precision.upper()}{note}",
            f"{layer.parameters:,}",
            _short(layer.macs),
            escape("\n".join(layer.activations)),
            escape("\n".join(layer.weights)),
            style="" if layer.precision == "int8" else "yellow",
        )
    if not layers:
        console.print("The model has no layer that could run in INT8")
        return
    console.print(table)
    for number, reason in enumerate(reasons, 1):
        console.print(escape(f"({number}) {reason}"))
    if any(layer.precision == "fp16" and layer.reason for layer in layers):
        console.print("FP16 becomes FP32 where the values seen in calibration do not fit it")
    count = sum(layer.precision == "int8" for layer in layers)
    known = [layer.macs for layer in layers if layer.macs is not None]
    share = sum(layer.macs for layer in layers if layer.macs is not None and layer.precision == "int8") / max(
        sum(known), 1
    )
    ending = f", with {share:.1%} of their MACs" if len(known) == len(layers) else ""
    console.print(f"[bold]{count} of {len(layers)} layers in INT8{ending}[/]")


def _print_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print what is the same at several places once."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for one in findings:
        groups.setdefault((one.rule, one.severity, one.message, one.fix, one.reports), []).append(one.where)
    for (rule, severity, message, fix, reports), places in groups.items():
        more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
        where = f"{', '.join(places[:_SHOWN])}{more}"
        color = "red" if severity == "error" else "yellow"
        console.print(f"[bold {color}]{rule} {severity}[/]  {escape(f'{where}: {message}')}")
        console.print(escape(f"  {fix}{f'  ({reports})' if reports else ''}"))
