"""Flips: their order, and the table of them that other tools read."""

from __future__ import annotations

import builtins
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from calib.data import sets
from calib.errors import DataError, MissingDependencyError
from calib.evaluate import Evaluation
from calib.evidence.flips import rank
from calib.metrics import SampleScore
from calib.study import exporting, load_result
from tests.conftest import Answer, assert_refused, run_calib, temporary_files, write_study

Command = Callable[..., Answer]
Row = tuple[bool | None, float | None, tuple[float, ...]]


def evaluation(rows: list[Row], aggregate: str = "ratio", *, higher_is_better: bool = False) -> Evaluation:
    names = tuple(f"s{i}" for i in range(len(rows)))
    samples = tuple(SampleScore("", {"score": terms}, right, margin) for right, margin, terms in rows)
    return Evaluation("", "", "", {"score": higher_is_better}, {"score": aggregate}, names, names, samples)


def order(was: list[Row], now: list[Row], **options: Any) -> list[tuple[str, str]]:
    return [(row.kind, row.sample) for row in rank(evaluation(was, **options), evaluation(now, **options), "score")]


class TestRank:
    def test_by_margin_lost_broken_ones_first(self) -> None:
        same = (1.0, 1.0)
        was: list[Row] = [
            (False, -3.0, same),
            (True, 0.5, same),
            (True, 4.0, same),
            (True, 1.0, same),
            (False, -1, same),
        ]
        now: list[Row] = [
            (True, 0.1, same),
            (False, -0.1, same),
            (False, -2.0, same),
            (True, 0.9, same),
            (True, 5, same),
        ]
        assert order(was, now) == [("broken", "s2"), ("broken", "s1"), ("fixed", "s4"), ("fixed", "s0")]
        first = rank(evaluation(was), evaluation(now), "score")[0]
        assert (first.margin_was, first.margin_now, first.lost, first.position) == (4.0, -2.0, 6.0, 2)

    def test_by_the_change_of_the_score_without_a_margin(self) -> None:
        was: list[Row] = [
            (True, None, (0.0, 9.0)),
            (True, None, (0.0, 9.0)),
            (False, None, (5.0, 9.0)),
            (True, None, (0.0, 9.0)),
        ]
        now: list[Row] = [
            (False, None, (1.0, 9.0)),
            (False, None, (7.0, 9.0)),
            (True, None, (0.0, 9.0)),
            (False, None, (7.0, 9.0)),
        ]
        assert order(was, now) == [("broken", "s1"), ("broken", "s3"), ("broken", "s0"), ("fixed", "s2")]
        assert [row.lost for row in rank(evaluation(was), evaluation(now), "score")] == [None] * 4

    def test_by_how_far_the_terms_moved_for_other_scores(self) -> None:
        was: list[Row] = [(True, None, (1.0, 0.9)), (True, None, (1.0, 0.9))]
        now: list[Row] = [(False, None, (1.0, 0.4)), (False, None, (1.0, 0.1))]
        assert order(was, now, aggregate="auroc", higher_is_better=True) == [("broken", "s1"), ("broken", "s0")]
        boxes: list[Row] = [(False, None, (0.0, 1.0, -1.0)), (False, None, (0.0, 1.0, -1.0, 0.0, 0.5, 0.0))]
        assert order(was, boxes, aggregate="ap") == [("broken", "s1"), ("broken", "s0")]

    def test_samples_without_a_margin_come_after_those_with_one(self) -> None:
        was: list[Row] = [(True, None, (0.0, 1.0)), (True, 1.0, (0.0, 1.0))]
        now: list[Row] = [(False, None, (9.0, 1.0)), (False, -1.0, (1.0, 1.0))]
        assert order(was, now) == [("broken", "s1"), ("broken", "s0")]

    def test_none_where_right_and_wrong_are_not_known(self) -> None:
        known: list[Row] = [(True, None, (0.0, 1.0))]
        unknown: list[Row] = [(None, None, (1.0, 1.0))]
        assert order(known, unknown) == order(unknown, known) == order(known, known) == []

    @given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 3), st.integers(0, 3)), max_size=40))
    def test_is_complete_and_stable(self, drawn: list[tuple[bool, bool, int, int]]) -> None:
        was: list[Row] = [(a, float(m), (1.0, 1.0)) for a, _, m, _ in drawn]
        now: list[Row] = [(b, float(m), (1.0, 1.0)) for _, b, _, m in drawn]
        found = rank(evaluation(was), evaluation(now), "score")
        assert sorted(row.position for row in found) == [i for i, (a, b, *_) in enumerate(drawn) if a != b]
        assert [row.kind for row in found] == sorted(row.kind for row in found)
        for kind, sign in (("broken", -1), ("fixed", 1)):
            keys = [(sign * (row.lost or 0.0), row.position) for row in found if row.kind == kind]
            assert keys == sorted(keys)


CHANGES = (
    ('["max", "mse", "entropy"]', '["max"]'),
    ("count = 60", 'count = 60\nfault = "outlier"'),
    ("seed = 3", "seed = 4"),
    ("samples = 16", "samples = 30"),
    ('recipe = "recipe.toml"', 'recipe = "recipe.toml"\njudge = false'),
    ("[report]", "[quantize]\nverify = false\n\n[report]"),
)


@pytest.fixture(scope="module", params=["false", "true"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with flips; the parameter says whether it includes samples."""
    folder = tmp_path_factory.mktemp("flips")
    study = write_study(folder, *CHANGES, ("include_samples = false", f"include_samples = {request.param}"))
    answer = run_calib("run", study, "--runs", folder / "runs", "--no-track")
    assert answer.status == 0, answer.err
    return next((folder / "runs" / "small").iterdir())


def read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.DictReader(stream)
        rows = list(reader)
        return list(reader.fieldnames or ()), rows


class TestExport:
    @pytest.mark.parametrize("candidate", ["max", "noise-max", "fp16"])
    def test_every_flip_and_only_what_may_be_shown(
        self, candidate: str, run: Path, tmp_path: Path, calib: Command
    ) -> None:
        out = tmp_path / "flips.csv"
        answer = calib("flips", run, "-o", out, "--candidate", candidate)
        assert answer.status == 0, answer.err
        columns, rows = read(out)
        result = load_result(run / "study.json")
        model = next(one for one in result.candidates if one.name == candidate)
        kinds = [row["kind"] for row in rows]
        assert (kinds.count("broken"), kinds.count("fixed")) == (model.broken, model.fixed)
        assert model.broken or candidate != "noise-max", "the test needs flips to be worth anything"
        assert answer.out == f"{out}  {len(rows)} flips\n"
        if candidate == result.verdict.candidate:
            assert [(one.kind, one.sample) for one in result.flips] == [(row["kind"], row["sample"]) for row in rows][
                :24
            ]
        name = "fp16" if candidate == "fp16" else "int8"
        always = ["kind", "sample", "sha256", "margin_fp32", f"margin_{name}", "lost"]
        always += ["score.cer_fp32", f"score.cer_{name}", "score.exact_fp32", f"score.exact_{name}"]
        if result.include_samples:
            shown = ["target", "prediction_fp32", f"prediction_{name}"]
            shown += ["metadata.patient", "metadata.page", "metadata.device"]
            texts = {entry.id: entry.metadata["text"] for entry in sets.read(run / "evaluation").entries}
            assert all(row["target"] == texts[row["sample"]] for row in rows)
            assert all((row[f"prediction_{name}"] == row["target"]) == (row["kind"] == "fixed") for row in rows)
        else:
            shown = ["metadata.device"]
            assert "MARKED-" not in out.read_text()
        assert columns[: len(always)] == always
        assert sorted(columns[len(always) :]) == sorted(shown)
        for row in rows:
            assert float(row["score.exact_fp32"]) == (row["kind"] == "broken")
            assert float(row[f"score.exact_{name}"]) == (row["kind"] == "fixed")

    def test_parquet_holds_the_same_with_types(self, run: Path, tmp_path: Path) -> None:
        written = [exporting.export(run, "noise-max", tmp_path / name) for name in ("f.csv", "f.parquet")]
        assert written[0] == written[1] > 0
        columns, rows = read(tmp_path / "f.csv")
        table = parquet.read_table(tmp_path / "f.parquet")
        assert table.column_names == columns
        assert table.column("sample").to_pylist() == [row["sample"] for row in rows]
        assert table.column("score.cer_int8").to_pylist() == [float(row["score.cer_int8"]) for row in rows]
        assert str(table.schema.field("lost").type) == "double"
        assert str(table.schema.field("metadata.device").type) == "string"

    @pytest.mark.parametrize("name", ["fp32", "nothing", "../candidates/max"])
    def test_of_no_candidate(self, name: str, run: Path, tmp_path: Path, calib: Command) -> None:
        assert_refused(
            calib("flips", run, "-o", tmp_path / "f.csv", "--candidate", name), f"no candidate '{name}'", "max"
        )

    def test_another_ending(self, run: Path, tmp_path: Path, calib: Command) -> None:
        assert_refused(calib("flips", run, "-o", tmp_path / "f.xlsx"), ".csv or .parquet")
        assert not list(tmp_path.iterdir())

    def test_a_place_that_cannot_be_written(self, run: Path, tmp_path: Path, calib: Command) -> None:
        (tmp_path / "file").write_text("")
        assert_refused(calib("flips", run, "-o", tmp_path / "file" / "f.csv"), "cannot be made")

    def test_an_evaluation_of_other_samples(self, run: Path, tmp_path: Path) -> None:
        path = run / "candidates" / "max" / "evaluation.json"
        before = path.read_text()
        document = json.loads(before)
        document["samples"][0]["sha256"] = "0" * 64
        path.write_text(json.dumps(document))
        try:
            with pytest.raises(DataError, match="hold other samples"):
                exporting.export(run, "max", tmp_path / "f.csv")
        finally:
            path.write_text(before)
        assert not list(tmp_path.iterdir())

    def test_a_run_without_a_result(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"study\.json does not exist"):
            exporting.export(tmp_path, None, tmp_path / "f.csv")

    def test_parquet_without_pyarrow_names_the_extra(
        self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        imported = builtins.__import__

        def no_arrow(name: str, *rest: Any, **more: Any) -> Any:
            if name.partition(".")[0] == "pyarrow":
                raise ImportError(name)
            return imported(name, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", no_arrow)
        with pytest.raises(MissingDependencyError, match=r"calib\[data\]"):
            exporting.export(run, None, tmp_path / "f.parquet")
        exporting.export(run, None, tmp_path / "f.csv")

    def test_is_whole_or_absent(self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        out = tmp_path / "f.csv"
        out.write_text("before")
        monkeypatch.setattr(exporting, "_safe", full)
        with pytest.raises(DataError, match="No space left"):
            exporting.export(run, None, out)
        assert out.read_text() == "before"
        assert not temporary_files(tmp_path)


class TestCells:
    @pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
    def test_that_a_spreadsheet_would_compute_are_texts(self, cell: str, tmp_path: Path) -> None:
        exporting._write_csv({f"metadata.{cell}": [cell], cell: ["x"], "lost": [-1.5]}, tmp_path / "f.csv")
        columns, (row,) = read(tmp_path / "f.csv")
        assert columns == [f"metadata.{cell}", f"'{cell}", "lost"]
        assert list(row.values()) == [f"'{cell}", "x", "-1.5"]

    def test_that_hold_quotes_and_line_breaks_come_back(self, tmp_path: Path) -> None:
        texts: list[str] = ['a "b", c', "two\nlines", "ß 漢", ""]
        exporting._write_csv({"metadata.text": texts, "lost": [None] * 4}, tmp_path / "f.csv")
        _, rows = read(tmp_path / "f.csv")
        assert [row["metadata.text"] for row in rows] == texts
        assert {row["lost"] for row in rows} == {""}


def test_a_score_with_nothing_to_divide_by_is_empty() -> None:
    one = evaluation([(True, None, (0.0, 0.0)), (True, None, (3.0, 4.0))])
    assert exporting._score(one, "score", 0) is None
    assert exporting._score(one, "score", 1) == 0.75
    assert np.isclose(exporting._score(evaluation([(True, None, (9.0, 1.0))], "root"), "score", 0) or 0, 3)
