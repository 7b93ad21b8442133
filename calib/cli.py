"""The command line. Each command calls one function of the library; errors are one message and exit status 1."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from calib import cli_runs, cli_sets
from calib.cli_common import BatchSize, Json, Options, Out, RichProgress, console, log, parse_options
from calib.errors import CalibError


class Rest(StrEnum):
    """Choices of --rest."""

    FP16 = "fp16"
    FP32 = "fp32"


class Weights(StrEnum):
    """Choices of --weights."""

    INT8 = "int8"
    QDQ = "qdq"


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="INT8 calibration studio for TensorRT.",
)
cache_app = typer.Typer(no_args_is_help=True, help="TensorRT calibration caches (TensorRT <= 10).")
app.add_typer(cli_runs.app)
app.add_typer(cli_sets.app, name="data")
app.add_typer(cache_app, name="cache")


def main() -> None:
    """Entry point: CalibError becomes a message and exit status 1."""
    try:
        app()
    except CalibError as error:
        log.print(f"[bold red]Error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        log.print("Stopped; run the same command to go on.")
        sys.exit(130)


@app.command()
def run(
    study: Annotated[Path, typer.Argument(help="Study file (TOML).")],
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    track: Annotated[bool, typer.Option(help="Record the study in MLflow.")] = True,
    as_json: Json = False,
) -> None:
    """Run a study, or what is left of it: sample, calibrate, quantize, evaluate, report, track."""
    from calib import report
    from calib import study as studies
    from calib.cli_study import print_result
    from calib.tracking.mlflow_tracker import MlflowTracker

    declared = studies.load(study)
    tracker = MlflowTracker(runs) if track else None
    uri, command = tracker.uri if tracker else "", shlex.join(["calib", "run", str(study)])
    with RichProgress() as progress:
        finished = studies.run(declared, runs, progress, tracking_uri=uri, command=command)
        with progress.stage("Writing the report", 1):
            report.render(finished.result, finished.folder / "report", images=finished.folder)
        if tracker:
            with progress.stage("Recording in MLflow", 1):
                studies.record(declared, finished, tracker)
    if as_json:
        print((finished.folder / "study.json").read_text(encoding="utf-8"), end="")
    else:
        print_result(finished, Console(soft_wrap=True, width=None if sys.stdout.isatty() else 120))


@app.command()
def inspect(
    model: Annotated[Path, typer.Argument(help="ONNX model, float or Q/DQ.")],
    shape: Annotated[
        list[str] | None, typer.Option(help="Input and its sizes, x=1x3x48x320, where the model leaves them open.")
    ] = None,
    plan: Annotated[
        Path | None, typer.Option(help="Plan (TOML): which layers stay in float. All INT8 by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a model is, which layers will be in INT8, why others not, and what TensorRT does not take."""
    from calib import cli_inspect, inspection

    found = inspection.inspect(model, cli_inspect.parse_shapes(shape or []), plan)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        width = None if sys.stdout.isatty() else 120
        cli_inspect.print_inspection(found, Console(width=width, highlight=False))


@app.command()
def calibrate(
    model: Annotated[Path, typer.Argument(help="Float ONNX model.")],
    data: Annotated[Path, typer.Argument(help="Sample set (folder), or an .npz with one array [N, ...] an input.")],
    out: Out,
    method: Annotated[
        str, typer.Option("-m", "--method", help="max, percentile-P, mse, entropy, module:attribute.")
    ] = "mse",
    plan: Annotated[
        Path | None, typer.Option(help="Plan (TOML); layers that it keeps in float need no scales.")
    ] = None,
    batch_size: BatchSize = 4,
) -> None:
    """Compute scales: one pass over the data, two for entropy."""
    from calib import calibrators, pipeline, scales

    calibrator = calibrators.parse(method)
    with RichProgress() as progress:
        found = pipeline.calibrate(model, data, calibrator, plan, batch_size=batch_size, progress=progress)
    scales.save(found, out)
    print(f"{out}  {len(found.activations)} activations, {len(found.weights)} weights, {calibrator.name}")


@app.command()
def quantize(
    model: Annotated[Path, typer.Argument(help="Float ONNX model.")],
    scales: Annotated[Path, typer.Argument(help="scales.json.")],
    out: Out,
    plan: Annotated[
        Path | None, typer.Option(help="Plan (TOML): which layers stay in float. All INT8 by default.")
    ] = None,
    rest: Annotated[Rest, typer.Option(help="Type of what is not INT8; FP16 only where it is safe.")] = Rest.FP16,
    weights: Annotated[
        Weights, typer.Option(help="int8: codes, a quarter of the size; qdq: float with Q and DQ, for TensorRT 8.")
    ] = Weights.INT8,
    data: Annotated[
        Path | None, typer.Option(help="Calibration set, to see ranges where the scales hold none (an imported cache).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the mixed-precision model for TensorRT: INT8 by Q/DQ, FP16 elsewhere, FP32 where FP16 would break."""
    from calib import pipeline
    from calib.graph import load as graph_load
    from calib.qdq import Decisions, Form

    form = Form(rest.value, weights.value)
    with RichProgress() as progress:
        decisions = Decisions.of(pipeline.quantize(model, scales, plan, form, data, out, progress))
    if as_json:
        print(json.dumps(asdict(decisions), indent=1))
        return
    size = graph_load.size(out)
    print(f"{out}  {len(decisions.int8)} layers in INT8, {size / 1e6:.1f} MB")
    for names, where in ((decisions.left, "in float"), (decisions.kept, "in FP32")):
        by_reason: dict[str, list[str]] = {}
        for name, reason in names.items():
            by_reason.setdefault(reason, []).append(name)
        for reason, members in by_reason.items():
            others = f" and {len(members) - 1} more" if len(members) > 1 else ""
            print(f"  {where}: {members[0]}{others}: {reason}")


@app.command()
def verify(
    model: Annotated[Path, typer.Argument(help="ONNX model, with Q/DQ or float.")],
    shape: Annotated[
        list[str] | None,
        typer.Option(help="NAME=MIN,OPT,MAX or NAME=SHAPE of an input, as x=1x3x48x32,8x3x48x320,8x3x48x640."),
    ] = None,
    against: Annotated[Path | None, typer.Option(help="Float model to build too, to compare the kernels.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="verification.json to write.")] = None,
    every: Annotated[bool, typer.Option("--all", help="List every layer and every fused kernel.")] = False,
    as_json: Json = False,
) -> None:
    """Build with TensorRT (or TensorRT-RTX, on the CPU): precision asked against precision built, per node."""
    from calib import verify as verifying
    from calib.cli_verify import print_verification

    shapes = verifying.parse(shape or [])
    with RichProgress() as progress, progress.stage("Building with TensorRT", 2 if against else 1):
        found = verifying.verify(model, shapes, against=against)
    if out:
        verifying.save(found, out)
    if as_json:
        print(json.dumps(verifying.document(found), indent=1))
    else:
        print_verification(found, Console(width=None if sys.stdout.isatty() else 120), every=every)
    if found.failed:
        raise typer.Exit(3)


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(help="ONNX model, float or Q/DQ.")],
    data: Annotated[
        Path, typer.Argument(help="Sample set (folder), with a target column unless the metric needs none.")
    ],
    metric: Annotated[str, typer.Option(help="A built-in (docs/metrics.md), or module:factory.")],
    options: Options = None,
    against: Annotated[
        Path | None, typer.Option(help="Model to compare with, sample by sample; for agreement the FP32 model.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="evaluation.json to write: scores and prediction of each sample.")
    ] = None,
    batch_size: BatchSize = 8,
    as_json: Json = False,
) -> None:
    """Score a model, and compare it with another on the same samples."""
    from calib import evaluate as evaluating
    from calib import pipeline

    chosen = parse_options(options or [])
    with RichProgress() as progress:
        found, answer = pipeline.score(model, data, metric, chosen, against, batch_size=batch_size, progress=progress)
    if out:
        evaluating.save(found, out)
    if as_json:
        print(json.dumps(answer, indent=1))
        return
    table = Table("score", "model", *(["against", "difference", "95 % interval", "changed"] if against else []))
    for name, row in answer["scores"].items():
        cells = [name, f"{row['value']:.4f}"]
        if against:
            interval = "{:+.4f} to {:+.4f}".format(*row["interval"]) if row["interval"] else row["why"]
            cells += [f"{row['against']:.4f}", f"{row['delta']:+.4f}", interval, str(row["changed"])]
        table.add_row(*cells)
    console().print(table)
    if answer.get("decisions"):
        print(
            "{both_right} right in both, {broken} broken, {fixed} fixed, {both_wrong} wrong in both; McNemar's exact p "
            "{p_value:.2g}".format(**answer["decisions"])
        )


@cache_app.command("import")
def cache_import(
    cache: Annotated[Path, typer.Argument(help="calibration.cache of TensorRT <= 10.")],
    out: Out,
) -> None:
    """Read a calibration cache into scales.json."""
    from calib import cache as caches
    from calib import scales

    found = caches.read(cache)
    scales.save(found, out)
    print(f"{out}  {len(found.activations)} tensors, {found.origin.calibrator}")


@cache_app.command("export")
def cache_export(
    scales: Annotated[Path, typer.Argument(help="scales.json.")],
    out: Out,
    header: Annotated[str | None, typer.Option(help="First line; by default the imported one.")] = None,
) -> None:
    """Write scales.json as a calibration cache."""
    from calib import cache as caches
    from calib import scales as scales_module

    found = scales_module.load(scales)
    caches.write(found, out, header)
    print(f"{out}  {len(found.activations)} tensors")
