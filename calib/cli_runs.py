"""The commands that read finished runs: report, flips, gate, compare, sample-size."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from calib.cli_common import Json, Out, console

app = typer.Typer()

Run = Annotated[Path, typer.Argument(help="Run folder, or a study's folder of runs, whose newest is meant.")]


@app.command()
def report(
    run: Run,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder; the run's report/ by default.")] = None,
) -> None:
    """Write the report of a finished run again."""
    from calib import cli_evidence, study
    from calib import report as reports

    found = cli_evidence.run_folder(run)
    folder = out or found / "report"
    reports.render(study.load_result(found / "study.json"), folder, images=found)
    print(folder / "index.html")


@app.command()
def flips(
    run: Run,
    out: Out,
    candidate: Annotated[str | None, typer.Option(help="Model to compare with FP32; the verdict's by default.")] = None,
) -> None:
    """Write the samples that broke or were fixed, those that lost most first, as .csv or .parquet."""
    from calib import cli_evidence
    from calib.study import exporting

    print(f"{out}  {exporting.export(cli_evidence.run_folder(run), candidate, out)} flips")


@app.command()
def gate(
    run: Run,
    markdown: Annotated[Path | None, typer.Option(help="Summary for a pull request to write.")] = None,
    junit: Annotated[Path | None, typer.Option(help="JUnit XML to write.")] = None,
    int8_ms: Annotated[float | None, typer.Option(help="Measured latency of the INT8 engine, in milliseconds.")] = None,
    fp16_ms: Annotated[float | None, typer.Option(help="And of the FP16 engine, measured alike.")] = None,
    as_json: Json = False,
) -> None:
    """Exit with 0 where a study's verdict is to deploy INT8, else with 3; say why, also for a pull request and for CI."""
    from calib import cli_evidence, files, gating
    from calib import study as studies

    latencies = cli_evidence.latencies(int8_ms, fp16_ms)
    result = studies.load_result(cli_evidence.run_folder(run) / "study.json")
    found = gating.gate(result, latencies)
    for path, write in ((markdown, gating.markdown), (junit, gating.junit)):
        if path:
            files.write_text(path, write(found, result))
    if as_json:
        print(json.dumps({"study": result.name, "run": result.run, **asdict(found)}, indent=1))
    else:
        cli_evidence.print_gate(found, result, console())
    if not found.passed:
        raise typer.Exit(3)


@app.command()
def compare(
    before: Run,
    after: Annotated[Path, typer.Argument(help="The later run.")],
    as_json: Json = False,
) -> None:
    """Show what changed between two runs, and whether their best candidates differ on the samples of both."""
    from calib import cli_evidence, comparing

    found = comparing.compare(*map(cli_evidence.run_folder, (before, after)))
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        cli_evidence.print_comparison(found, console())


@app.command()
def sample_size(
    margin: Annotated[float | None, typer.Option(help="How much worse INT8 may be; the run's by default.")] = None,
    broken: Annotated[float | None, typer.Option(help="Share of samples that are expected to break, as 0.02.")] = None,
    fixed: Annotated[float | None, typer.Option(help="Share of samples that are expected to be fixed; 0.")] = None,
    run: Annotated[Path | None, typer.Option(help="Run whose best candidate is to be expected, instead.")] = None,
    power: Annotated[float, typer.Option(help="How often the margin is to be shown.")] = 0.8,
    level: Annotated[float | None, typer.Option(help="Of the interval; 0.95, or the run's.")] = None,
    as_json: Json = False,
) -> None:
    """Say how many samples a margin needs."""
    from calib import cli_evidence

    found = cli_evidence.sizing(run, margin, broken, fixed, level=level, power=power)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        cli_evidence.print_sizing(found, console())
