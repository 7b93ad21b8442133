"""A run's flips as a table for other tools: CSV or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

from calib import aggregates, evaluate, files
from calib.data import sets
from calib.data.sets import SampleSet
from calib.data.sources.cells import arrow
from calib.errors import ConfigError, DataError
from calib.evaluate import Evaluation
from calib.evidence import flips
from calib.evidence.flips import FlipRow
from calib.study import codec
from calib.study.folder import RunFolder
from calib.study.result import Candidate, StudyResult

_FORMULA = (
    "=",
    "+",
    "-",
    "@",
    "\t",
    "\r",
    "\n",
)  # what makes a spreadsheet take a cell for a formula: OWASP, "CSV Injection"
_Column = list[str] | list[float | None]


def export(run: Path, candidate: str | None, out: Path) -> int:
    """Write every flip of a candidate, ranked as the report ranks them; return how many there are.

    Columns: kind, sample, sha256, margin_fp32, margin_int8 (margin_fp16 of the FP16 reference), lost; "score.NAME_fp32" and
    "score.NAME_int8" of each score that a single sample has; "metadata.NAME". Target, predictions and all metadata are there
    only where the study includes samples; else only the metadata that it slices by. What is not known is empty.

    In CSV a text that a spreadsheet would take for a formula gets a leading '. Parquet holds texts as they are.

    Args:
        run: folder of a finished run.
        candidate: its name; the verdict's by default.
        out: file to write, .csv or .parquet.

    Raises:
        ConfigError: no such candidate, or another ending.
        DataError: the run is not finished, its files do not belong together, or `out` cannot be written.
        MissingDependencyError: Parquet needs pyarrow, which is not installed.
    """
    writers = {".csv": _write_csv, ".parquet": _write_parquet}
    if out.suffix.lower() not in writers:
        raise ConfigError(f"{out} must end in .csv or .parquet, which says the format")
    result = codec.load(run / "study.json")
    chosen = _chosen(result, candidate)
    was, now = (
        evaluate.load(RunFolder(run).candidate(name) / "evaluation.json")
        for name in (result.candidates[0].name, chosen.name)
    )
    samples = sets.read(run / "evaluation")
    if not was.digests == now.digests == tuple(entry.sha256 for entry in samples.entries):
        raise DataError(
            f"{run}: the evaluations of {chosen.name} and FP32 and the evaluation set hold other samples; run it again"
        )
    if was.right() is None or now.right() is None:
        raise DataError(f"{run}: the study's metric knows no right and wrong, so no sample is broken or fixed")
    rows = flips.rank(was, now, result.budget_metric)
    writers[out.suffix.lower()](_columns(rows, was, now, samples, result, chosen), out)
    return len(rows)


def _chosen(result: StudyResult, candidate: str | None) -> Candidate:
    name = candidate or result.verdict.candidate
    known = {one.name: one for one in result.candidates if one.kind != "baseline"}
    if name not in known:
        raise ConfigError(f"the run has no candidate '{name}'; it has {', '.join(known) or 'none'}")
    return known[name]


def _columns(
    rows: list[FlipRow], was: Evaluation, now: Evaluation, samples: SampleSet, result: StudyResult, chosen: Candidate
) -> dict[str, _Column]:
    model = "fp16" if chosen.kind == "reference" else "int8"
    found: dict[str, _Column] = {
        "kind": [str(row.kind) for row in rows],
        "sample": [row.sample for row in rows],
        "sha256": [row.sha256 for row in rows],
        "margin_fp32": [row.margin_was for row in rows],
        f"margin_{model}": [row.margin_now for row in rows],
        "lost": [row.lost for row in rows],
    }
    for score, aggregate in was.aggregates.items():
        if aggregate in ("ratio", "root"):
            for name, evaluation in (("fp32", was), (model, now)):
                found[f"score.{score}_{name}"] = [_score(evaluation, score, row.position) for row in rows]
    entries = [samples.entries[row.position] for row in rows]
    if result.include_samples:
        found["target"] = [str(entry.metadata.get(samples.target, "")) for entry in entries]
        for name, evaluation in (("fp32", was), (model, now)):
            found[f"prediction_{name}"] = [evaluation.samples[row.position].prediction for row in rows]
    for column in _shown(samples, result):
        found[f"metadata.{column}"] = [str(entry.metadata.get(column, "")) for entry in entries]
    return found


def _score(evaluation: Evaluation, score: str, position: int) -> float | None:
    value = aggregates.value(evaluation.aggregates[score], [evaluation.samples[position].values[score]])
    return value if value == value else None  # a sample with nothing to divide by


def _shown(samples: SampleSet, result: StudyResult) -> list[str]:
    present = dict.fromkeys(key for entry in samples.entries for key in entry.metadata)
    if result.include_samples:
        return [key for key in present if key not in ("id", samples.target)]
    sliced = {*samples.stratify, *(column for one in result.candidates for column in one.slices)}
    return [key for key in present if key in sliced]


def _write_csv(columns: Mapping[str, _Column], out: Path) -> None:
    with files.replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(_safe(columns))
        writer.writerows(_safe(row) for row in zip(*columns.values(), strict=True))


def _safe(cells: Iterable[str | float | None]) -> list[str | float | None]:
    return [f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in cells]


def _write_parquet(columns: Mapping[str, _Column], out: Path) -> None:
    pa = arrow()
    from pyarrow import parquet

    text = {"kind", "sample", "sha256", "target"}
    types = {
        name: pa.string() if name in text or name.startswith(("prediction_", "metadata.")) else pa.float64()
        for name in columns
    }
    table = pa.table({name: pa.array(column, types[name]) for name, column in columns.items()})
    with files.replacing(out) as temporary:
        parquet.write_table(table, temporary)
