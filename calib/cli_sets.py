"""The commands `calib data ...`: sample sets built, judged and compared."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from calib.cli_common import BatchSize, Json, Out, RichProgress, console

app = typer.Typer(no_args_is_help=True, help="Sample sets: built from a recipe, judged, compared.")

Method = Annotated[str, typer.Option("-m", "--method", help="max, percentile-P, mse, entropy, module:attribute.")]
Model = Annotated[Path | None, typer.Option("--model", help="Float ONNX model.")]


@app.command()
def build(
    recipe: Annotated[Path, typer.Argument(help="Recipe file (TOML).")],
    out: Out,
    model: Annotated[
        Path | None, typer.Option("--model", help="Float ONNX model, where the recipe chooses by its features.")
    ] = None,
    extend: Annotated[
        Path | None, typer.Option(help="Folder of an earlier build: all that it holds stays, what is missing is added.")
    ] = None,
) -> None:
    """Write the calibration and the evaluation set of a recipe; twice gives the same bytes."""
    from calib import judging

    with RichProgress() as progress:
        both = judging.build(recipe, out, progress, model=model, extend=extend)
    for samples in both:
        print(f"{samples.where}  {len(samples)} samples  sha256 {samples.sha256}")
    for note in dict.fromkeys(note for samples in both for note in samples.notes):
        print(f"  {note}")


@app.command()
def check(
    data: Annotated[Path, typer.Argument(help="Folder of `calib data build`, a sample set, or a recipe (TOML).")],
    model: Model = None,
    method: Method = "mse",
    scales: Annotated[
        Path | None, typer.Option(help="scales.json whose clipping is counted, instead of the method's.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="A later sample: a capture log (JSONL), a recipe whose source is read, or a sample set."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Samples drawn of a log or a source.")] = 512,
    skip: Annotated[int, typer.Option(min=0, help="Unreadable samples of a log that may be left out.")] = 0,
    seed: Annotated[int, typer.Option(help="Another one draws others.")] = 0,
    column: Annotated[
        list[str] | None, typer.Option("--slice", help="Metadata column whose values are slices.")
    ] = None,
    limit: Annotated[
        float, typer.Option(min=0, max=1, help="Effect (Cliff's delta) from which a difference is drift.")
    ] = 0.33,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="quality.json to write.")] = None,
    batch_size: BatchSize = 4,
    as_json: Json = False,
) -> None:
    """Judge a calibration set: enough samples? what do its scales clip? has the data drifted? are samples on both sides?

    With --against the exit status is 3 where the later sample has drifted beyond the limit.
    """
    from calib import calibrators, judging, quality
    from calib.cli_data import print_quality

    tools = judging.With(model, calibrators.parse(method), scales, batch_size)
    later = judging.Later(against, samples, skip, seed) if against else None
    with RichProgress() as progress:
        found = judging.check(data, tools, progress, later=later, columns=tuple(column or ()), limit=limit)
    if out:
        quality.save(found, out)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        print_quality(found, console())
    if against and any(drift.beyond for drift in found.drift):
        raise typer.Exit(3)


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="Calibration set, or a folder of `calib data build`.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    model: Annotated[Path, typer.Option("--model", help="Float ONNX model.")],
    evaluation: Annotated[Path, typer.Option("--on", help="Evaluation set on which clipping is counted.")],
    method: Method = "mse",
    batch_size: BatchSize = 4,
    as_json: Json = False,
) -> None:
    """Compare two calibration sets: which scales differ, by how much, and which of the two clips less."""
    from calib import calibrators, judging
    from calib.cli_data import print_comparison

    tools = judging.With(model, calibrators.parse(method), None, batch_size)
    with RichProgress() as progress:
        found = judging.compare(first, second, evaluation, model, tools, progress)
    if as_json:
        print(json.dumps(asdict(found), indent=1))
    else:
        print_comparison(found, console())
