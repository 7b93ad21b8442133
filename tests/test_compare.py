"""Two runs compared: what changed is named, samples are paired by what they hold, and an answer claims no more than is shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calib import evaluate, scales
from calib.comparing import Comparison, compare
from calib.comparing.words import outcome
from calib.errors import DataError
from calib.evidence.difference import difference
from calib.evidence.result import Difference, Interval
from calib.study.codec import load, save
from tests.conftest import assert_refused, run_calib, write_study

SMALL = (
    ('["max", "mse", "entropy"]', '["max", "mse"]'),
    ("noise_control", "# noise_control"),
    ('recipe = "recipe.toml"', 'recipe = "recipe.toml"\njudge = false'),
)


def run(folder: Path, *changes: tuple[str, str]) -> Path:
    study = write_study(folder, *SMALL, *changes)
    study.write_text(
        study.read_text() + "\n[quantize]\nverify = false\n" + ('[plan.layers]\nclassify = "fp16"\n' if changes else "")
    )
    answer = run_calib("run", study, "--runs", folder / "runs", "--no-track")
    assert answer.status == 0, answer.err
    (made,) = (folder / "runs/small").iterdir()
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs: the later has more samples, a layer in FP16 and another budget."""
    root = tmp_path_factory.mktemp("runs")
    first = run(root / "one")
    second = run(
        root / "two",
        ("[evaluation]\nsamples = 16", "[evaluation]\nsamples = 24"),
        ("[calibration]\nsamples = 12", "[calibration]\nsamples = 14"),
        ("max_drop = 0.05", "max_drop = 0.04"),
    )
    return first, second


@pytest.fixture
def twin(runs: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the later run, to be changed."""
    return shutil.copytree(runs[1], tmp_path / "twin")


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def evaluations(folder: Path) -> list[Path]:
    return [
        folder / "candidates" / name / "evaluation.json"
        for name in ("fp32", load(folder / "study.json").evidence.candidate)
    ]


def changed(found: Comparison) -> dict[str, tuple[str, str]]:
    return {one.what: (one.before, one.after) for one in found.changes if one.differs}


def test_what_changed_is_named_and_nothing_else(runs: tuple[Path, Path]) -> None:
    found = compare(*runs)
    rows = changed(found)
    assert set(rows) == {
        "layers in INT8", "layers kept in float by the plan", "size of the best candidate", "budget", "calibration set",
        "evaluation set", "verdict",
    }  # fmt: skip
    assert rows["budget"] == ("cer may drop by 0.05", "cer may drop by 0.04")
    assert rows["layers in INT8"] == ("2 of 2", "1 of 2")
    one, two = (json.loads((folder / "evaluation/manifest.json").read_text())["samples"] for folder in runs)
    alone = {entry["sha256"] for entry in two} - {entry["sha256"] for entry in one}
    assert (
        f"24 samples, sha256 {load(runs[1] / 'study.json').evaluation.sha256[:12]}, {len(alone)} in this run alone"
        == rows["evaluation set"][1]
    )
    assert [(row.layer, row.before, row.after) for row in found.layers.changed] == [("classify", "int8", "fp16")]
    assert found.layers.compared == 2
    assert found.scores.compared == 24 - len(alone)


def test_a_run_is_equal_to_itself(runs: tuple[Path, Path], calib) -> None:
    found = compare(runs[1], runs[1])
    assert changed(found) == {} and found.layers.changed == () and found.scales.changed == ()
    assert found.scales.compared > 0 and not found.scales.only_before and not found.scales.only_after
    assert found.scores.best is not None and found.scores.best.delta == 0
    assert found.scores.outcome == "no difference shown"
    assert "no sample of 24 scores otherwise" in found.scores.sentences[0]
    assert any("FP32 scores the same on every sample" in sentence for sentence in found.scores.sentences)
    answer = calib("compare", runs[1], runs[1])
    assert answer.status == 0 and "Equal: study, model file, model" in answer.out


def test_samples_are_paired_by_what_they_hold_not_by_position(runs: tuple[Path, Path], twin: Path) -> None:
    for path in (twin / "evaluation/manifest.json", *evaluations(twin)):
        edit(path, lambda document: document["samples"].reverse())
    straight, turned = compare(runs[0], runs[1]), compare(runs[0], twin)
    assert straight.scores == turned.scores


def worse(path: Path, positions: list[int], edits: int = 3) -> None:
    def change(document: dict[str, Any]) -> None:
        for position in positions:
            sample = document["samples"][position]
            sample["scores"]["cer"][0] += edits
            sample["right"] = False

    edit(path, change)


def test_a_planted_loss_is_measured_and_called_worse(runs: tuple[Path, Path], twin: Path, calib) -> None:
    was = evaluate.load(evaluations(twin)[1])
    right = was.right()
    assert right is not None
    worse(evaluations(twin)[1], list(range(0, 24, 2)))
    found = compare(runs[1], twin).scores
    terms = was.terms("cer")
    lost = [(part + 3 * (i % 2 == 0), whole) for i, (part, whole) in enumerate(terms)]
    manifest = json.loads((twin / "evaluation/manifest.json").read_text())["samples"]
    assert found.best == difference("ratio", terms, lost, [str(entry["metadata"]["page"]) for entry in manifest])
    assert (
        found.outcome == "worse"
        and found.sentences[0].startswith("worse, ")
        and "the budget of 0.04" in found.sentences[0]
    )
    assert (
        found.decisions is not None and found.decisions.broken == int(right[::2].sum()) and found.decisions.fixed == 0
    )
    assert found.fp32 is not None and found.fp32.changed == 0
    turned = compare(twin, runs[1]).scores
    assert turned.outcome == "better" and turned.sentences[0].startswith("better: CER changes by -0.")
    answer = calib("compare", runs[1], twin)
    assert answer.status == 0 and "Worse, " in answer.out


def test_a_changed_fp32_is_told_apart(runs: tuple[Path, Path], twin: Path) -> None:
    worse(evaluations(twin)[0], list(range(0, 24, 2)))
    found = compare(runs[1], twin).scores
    assert found.outcome == "no difference shown"
    assert any(sentence.startswith("FP32 itself, worse: CER ") for sentence in found.sentences)


def test_other_right_answers_are_left_out(runs: tuple[Path, Path], twin: Path) -> None:
    def relabel(document: dict[str, Any]) -> None:
        for sample in document["samples"][:3]:
            sample["metadata"]["text"] = "QQQQQQ"

    edit(twin / "evaluation/manifest.json", relabel)
    found = compare(runs[1], twin).scores
    assert (found.compared, found.relabelled) == (21, 3)
    assert found.sentences[-1] == (
        "Left out, as they have no counterpart: samples that are 3 in both with another right answer."
    )


def test_a_sample_held_twice_is_paired_once(runs: tuple[Path, Path], twin: Path) -> None:
    for path in (twin / "evaluation/manifest.json", *evaluations(twin)):
        edit(path, lambda document: document["samples"].append(dict(document["samples"][0], id="again")))
    found = compare(runs[1], twin).scores
    assert (found.before, found.after, found.compared) == (24, 25, 24)
    assert compare(twin, twin).scores.compared == 25


def test_no_common_sample_is_a_sentence(runs: tuple[Path, Path], twin: Path, calib) -> None:
    for path in (twin / "evaluation/manifest.json", *evaluations(twin)):

        def other(document: dict[str, Any]) -> None:
            for sample in document["samples"]:
                sample["sha256"] = sample["sha256"][::-1]

        edit(path, other)
    found = compare(runs[1], twin).scores
    assert (found.outcome, found.best, found.compared, found.metric) == ("not compared", None, 0, "")
    answer = calib("compare", runs[1], twin)
    assert answer.status == 0 and "evaluated no sample in common" in answer.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["higher_is_better"].update(cer=True), "better when higher in one run and when lower in the other"),
        (lambda d: d["aggregates"].update(cer="root"), "a ratio before and a root after"),
        (lambda d: _rename(d), "the run after has no score cer, only "),
    ],
)
def test_another_score_is_a_sentence(runs: tuple[Path, Path], twin: Path, change, says: str) -> None:
    for path in evaluations(twin):
        edit(path, change)
    found = compare(runs[1], twin).scores
    assert found.outcome == "not compared" and says in found.sentences[0]


def _rename(document: dict[str, Any]) -> None:
    for part in (document["higher_is_better"], document["aggregates"], *(s["scores"] for s in document["samples"])):
        part["wer"] = part.pop("cer")


def test_scales_that_moved_are_listed_the_most_first(runs: tuple[Path, Path], twin: Path, calib) -> None:
    best = load(twin / "study.json").evidence.candidate
    path = twin / "candidates" / best / "scales.json"
    found = scales.load(path)
    weight, values = next((name, scale) for name, scale in found.weights.items() if scale.values.size > 1)
    tensor, scale = next(iter(found.activations.items()))
    moved = values.values.copy()
    moved[1] *= 3
    changed_scales = replace(
        found,
        activations={**found.activations, tensor: np.float32(scale * 1.05), "[red]new[/] \x1b|": np.float32(1)},
        weights={**found.weights, weight: replace(values, values=moved)},
    )
    scales.save(changed_scales, path)
    result = compare(runs[1], twin).scales
    assert [row.tensor for row in result.changed] == [weight, tensor]
    assert [row.ratio for row in result.changed] == pytest.approx([3, 1.05], rel=1e-5)
    assert result.only_after == ("[red]new[/] \x1b|",) and result.only_before == ()
    answer = calib("compare", runs[1], twin)
    assert f"scale of {weight}" in answer.out and "(3 times)" in answer.out and "[red]new[/] \ufffd|" in answer.out
    scales.save(replace(found, activations={**found.activations, tensor: np.float32(scale * 1.009)}), path)
    assert compare(runs[1], twin).scales.changed == ()


@pytest.mark.parametrize(
    "name",
    ["study.json", "calibration/manifest.json", "evaluation/manifest.json", "candidates/fp32/evaluation.json",
     "candidates/max/scales.json", "candidates/max/quantization.json"],
)  # fmt: skip
def test_a_damaged_run_is_an_error_that_names_the_file(runs: tuple[Path, Path], twin: Path, name: str, calib) -> None:
    name = name.replace("max", load(twin / "study.json").evidence.candidate)
    whole = (twin / name).read_bytes()
    (twin / name).write_bytes(whole[:-40])
    assert_refused(calib("compare", runs[0], twin), str(twin / name))
    (twin / name).unlink()
    with pytest.raises(DataError, match=r"does not exist"):
        compare(twin, runs[0])


def test_files_that_do_not_belong_together_are_refused(runs: tuple[Path, Path], twin: Path) -> None:
    path = evaluations(twin)[1]
    edit(path, lambda document: document["samples"].pop())
    with pytest.raises(DataError, match="scores other samples"):
        compare(runs[0], twin)
    result = load(twin / "study.json")
    save(replace(result, evidence=replace(result.evidence, candidate="../../outside")), twin / "study.json")
    with pytest.raises(DataError, match=r"study\.json"):
        compare(runs[0], twin)


def test_json(runs: tuple[Path, Path], calib) -> None:
    document = json.loads(calib("compare", *runs, "--json").out)
    assert document["layers"]["changed"] == [{"layer": "classify", "before": "int8", "after": "fp16"}]
    assert document["scores"]["outcome"] == "no difference shown" and document["scores"]["best"]["interval"]


@pytest.mark.parametrize(
    ("low", "high", "up", "expected"),
    [(0.001, 0.02, False, "worse"), (0.001, 0.02, True, "better"), (-0.02, -0.001, False, "better"),
     (-0.02, -0.001, True, "worse"), (-0.01, 0.01, True, "no difference shown"), (0.0, 0.01, False, "no difference shown")],
)  # fmt: skip
def test_only_an_interval_beside_zero_shows_a_difference(low: float, high: float, up: bool, expected: str) -> None:
    found = Difference(100, 100, 9, 0.1, 0.1 + (low + high) / 2, (low + high) / 2, Interval(low, high, 0.95), 0.01, "")
    assert outcome(found, higher_is_better=up) == expected
    assert outcome(replace(found, interval=None, why="one class"), higher_is_better=up) == "no difference shown"
