"""What `calib verify` prints: a summary, then the layers that differ, or all."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calib.verify import Build, Layer, Verification

_ORDER = ("int8", "fp8", "fp16", "bf16", "fp32", "float", "removed", "unknown")


def print_verification(verification: Verification, console: Console, *, every: bool) -> None:
    """Print a verification; with `every` each layer and each fused kernel, not only what differs."""
    _print_build(verification, console)
    console.print(_counts(verification))
    shown = verification.layers if every else [layer for layer in verification.layers if layer.reason]
    if shown:
        console.print(_layers(shown, every=every))
    if every:
        console.print(_fusions(verification.build))
    asked, failed = verification.count(asked="int8"), len(verification.failed)
    if failed:
        console.print(f"[bold red]{failed} of {asked} layers asked in INT8 are not shown to be built in INT8[/]")
    elif asked:
        console.print(f"[bold green]All {asked} layers asked in INT8 were built in INT8[/]")
    else:
        console.print("No layer is asked in INT8")


def _print_build(verification: Verification, console: Console) -> None:
    build, other = verification.build, verification.against
    shapes = "".join(f", {name} {shape}" for name, shape in build.profiles.items())
    console.print(
        escape(
            f"{build.model}  {verification.builder} {verification.builder_version}, built in {build.seconds:.1f} s{shapes}"
        )
    )
    for one, what in ((build, "kernels"), (other, "kernels of the float model")):
        if one is not None:
            types = ", ".join(f"{count} {name}" for name, count in one.types().items())
            console.print(escape(f"{len(one.kernels):7} {what}: {types}"))
    for finding in verification.findings:
        console.print(f"[yellow]lint[/]    {escape(finding)}")
    if verification.residuals:
        read = sum(add.built == "int8" for add in verification.residuals)
        console.print(f"{read:7} of {len(verification.residuals)} residual Adds with Q/DQ read INT8")


def _counts(verification: Verification) -> Table:
    built = [kind for kind in _ORDER if any(layer.built == kind for layer in verification.layers)]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("asked")
    for title in ("layers", *(f"built {kind.upper()}" for kind in built)):
        table.add_column(title, justify="right")
    for asked in _ORDER:
        total = verification.count(asked=asked)
        if total:
            counts = [verification.count(asked=asked, built=kind) for kind in built]
            table.add_row(asked.upper(), str(total), *(str(count or "") for count in counts))
    return table


def _layers(layers: Iterable[Layer], *, every: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("layer", "operator", "asked", "built", *(["kernels"] if every else []), "why"):
        table.add_column(title, overflow="fold")
    for layer in layers:
        kernels = ["\n".join(layer.kernels)] if every else []
        row = layer.name, layer.op_type, layer.asked.upper(), layer.built.upper(), *kernels, layer.reason
        table.add_row(*map(escape, row), style="red" if layer.failed else "")
    return table


def _fusions(build: Build) -> Table:
    table = Table(title="kernels made of several nodes", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("kernel", "type", "reads", "writes", "nodes"):
        table.add_column(title, overflow="fold")
    for kernel in build.kernels:
        if len(kernel.nodes) > 1:
            row = kernel.name, kernel.type, " ".join(kernel.inputs), " ".join(kernel.outputs), ", ".join(kernel.nodes)
            table.add_row(*map(escape, row))
    return table
