"""The command `calib evaluate`: scores, a paired comparison, options of the metric, and what is wrong with them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from calib import evaluate
from calib.cli_common import parse_options
from calib.data import building
from calib.errors import ConfigError

from .conftest import Answer, assert_refused, text_model, write_study

Command = Callable[..., Answer]

METRICS = """
import numpy as np

from calib.metrics import SampleScore


class Scores:
    higher_is_better = {"auroc": True}
    aggregates = {"auroc": "auroc"}

    def __init__(self, kind):
        self.kind = kind
        if kind == "ratio":
            self.aggregates = {"auroc": "ratio"}

    def score(self, outputs, targets):
        (y,) = outputs.values()
        terms = {"one class": (1.0, 0.5), "ratio": (np.nan, 1.0)}[self.kind]
        return [SampleScore("", {"auroc": terms if row[0, 0] > -9 else (0.0, 0.5)}) for row in y]


def scores(kind):
    return Scores(kind)
"""


def changed_model(path: Path) -> Path:
    """Write the recognizer with a bias that makes faint characters blanks."""
    model = onnx.load(text_model(path))
    for tensor in model.graph.initializer:
        if tensor.name == "bias":
            tensor.CopyFrom(numpy_helper.from_array(np.array([0.9, 0, 0, 0, 0, 0], np.float32), "bias"))
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a worse one, and the evaluation set with and without right answers."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_study(folder)
    changed_model(folder / "worse.onnx")
    (folder / "own.py").write_text(METRICS)
    text = (folder / "recipe.toml").read_text().replace("samples = 16", "samples = 40")
    for name, change in (("labelled", ""), ("plain", 'target = "text"\n')):
        (folder / "recipe.toml").write_text(text.replace(change, ""))
        building.build(folder / "recipe.toml", folder / name)
    return folder


class TestComparison:
    def test_has_an_interval_of_each_score_and_the_decisions(self, folder: Path, calib: Command) -> None:
        data = folder / "labelled" / "evaluation"
        arguments = (
            "evaluate",
            folder / "worse.onnx",
            data,
            "--metric",
            "ctc-text",
            "--against",
            folder / "model.onnx",
        )
        found = json.loads(calib(*arguments, "--json", "-o", folder / "evaluation.json").out)
        assert list(found["scores"]) == ["cer", "exact"]
        for row in found["scores"].values():
            assert set(row) == {"value", "against", "delta", "interval", "changed", "why"}
            assert row["delta"] == row["value"] - row["against"] and row["changed"] > 0 and row["why"] == ""
            assert row["interval"][0] <= row["delta"] <= row["interval"][1]
        assert found["scores"]["cer"]["delta"] > 0 > found["scores"]["exact"]["delta"]

        kept = evaluate.load(folder / "evaluation.json")
        right = kept.right()
        assert right is not None and kept.value("cer") == found["scores"]["cer"]["value"]
        decisions = found["decisions"]
        assert decisions["both_right"] + decisions["fixed"] == right.sum()
        assert decisions["broken"] - decisions["fixed"] == round(-40 * found["scores"]["exact"]["delta"])
        assert (
            sum(decisions[name] for name in ("both_right", "broken", "fixed", "both_wrong")) == found["samples"] == 40
        )
        assert decisions["p_value"] == pytest.approx(2 * 0.5 ** decisions["broken"]) and decisions["fixed"] == 0

        shown = calib(*arguments).out
        assert f"{decisions['broken']} broken, 0 fixed" in shown and "McNemar" in shown and "changed" in shown

    def test_of_a_model_with_itself(self, folder: Path, calib: Command) -> None:
        data, model = folder / "labelled" / "evaluation", folder / "model.onnx"
        answer = calib("evaluate", model, data, "--metric", "ctc-text", "--against", model, "--json")
        found = json.loads(answer.out)
        assert [row["changed"] for row in found["scores"].values()] == [0, 0]
        assert found["decisions"]["p_value"] == 1

    def test_alone_it_is_only_scored(self, folder: Path, calib: Command) -> None:
        data = folder / "labelled" / "evaluation"
        found = json.loads(calib("evaluate", folder / "model.onnx", data, "--metric", "ctc-text", "--json").out)
        assert set(found) == {"model", "samples", "runtime", "scores"}
        assert all(set(row) == {"value"} for row in found["scores"].values())


class TestAgreement:
    def test_needs_no_right_answers(self, folder: Path, calib: Command) -> None:
        data = folder / "plain" / "evaluation"
        arguments = (
            "evaluate",
            folder / "worse.onnx",
            data,
            "--metric",
            "agreement",
            "--against",
            folder / "model.onnx",
        )
        found = json.loads(calib(*arguments, "--json").out)["scores"]
        assert list(found) == ["token", "top1", "cosine", "kl"]
        assert [found[name]["against"] for name in found] == pytest.approx([1, 1, 1, 0], abs=1e-9)  # FP32 with itself
        assert found["token"]["value"] < 1 and found["kl"]["value"] > 0
        same = ("evaluate", folder / "model.onnx", data, "--metric", "agreement", "--against", folder / "model.onnx")
        assert json.loads(calib(*same, "--json").out)["decisions"]["both_right"] == 40

    def test_needs_the_model_to_agree_with(self, folder: Path, calib: Command) -> None:
        answer = calib("evaluate", folder / "model.onnx", folder / "plain" / "evaluation", "--metric", "agreement")
        assert_refused(answer, "compares with the FP32 model's outputs", "--against")

    def test_takes_options(self, folder: Path, calib: Command) -> None:
        arguments = ("evaluate", folder / "worse.onnx", folder / "plain" / "evaluation", "--metric", "agreement")
        against = ("--against", folder / "model.onnx", "--set", "outputs=values", "--set", "output=y", "--json")
        assert list(json.loads(calib(*arguments, *against).out)["scores"]) == ["cosine", "relative"]


class TestOptions:
    def test_values_are_toml_and_bare_words_are_strings(self) -> None:
        entries = [
            "top=[1,5]",
            'classes=["a","b"]',
            "ignore=",
            "space=false",
            "p = 0.5",
            "kind=one class",
            "day=2026-01-02",
        ]
        assert parse_options(entries) == {
            "top": [1, 5],
            "classes": ["a", "b"],
            "ignore": "",
            "space": False,
            "p": 0.5,
            "kind": "one class",
            "day": "2026-01-02",
        }
        assert parse_options(["a=1\nb = 2"]) == {"a": "1\nb = 2"}

    @pytest.mark.parametrize(
        ("entries", "says"),
        [
            (["top"], "'top' must be KEY=VALUE"),
            (["=1"], "must be KEY=VALUE"),
            (["a=1", "a=2"], "gives a twice"),
            (["classes=[a,b]"], "not valid TOML"),
        ],
    )
    def test_that_are_none(self, entries: list[str], says: str) -> None:
        with pytest.raises(ConfigError, match=says):
            parse_options(entries)

    def test_reach_the_metric(self, folder: Path, calib: Command) -> None:
        arguments = ("evaluate", folder / "model.onnx", folder / "labelled" / "evaluation", "--metric", "ctc-text")
        assert list(json.loads(calib(*arguments, "--set", "ignore=", "--json").out)["scores"]) == [
            "cer",
            "exact",
            "wer",
        ]
        assert_refused(calib(*arguments, "--set", "spaces=1"), "ctc-text does not take these options", "'spaces'")
        assert_refused(calib(*arguments, "--set", "classes=[a,b]"), "--set classes=[a,b]", "quotes")
        assert_refused(calib(*arguments, "--set", "charset=letters"), "metadata has no 'letters'", "character")


class TestScores:
    def test_an_auroc_of_one_class(self, folder: Path, calib: Command) -> None:
        arguments = ("evaluate", folder / "model.onnx", folder / "labelled" / "evaluation")
        metric = ("--metric", f"{folder}/own.py:scores", "--set", "kind=one class")
        assert_refused(calib(*arguments, *metric), "score 'auroc' has no value", "only one class", "target")

    def test_nan_of_ones_own_metric_names_the_sample(self, folder: Path, calib: Command) -> None:
        data = folder / "labelled" / "evaluation"
        metric = ("--metric", f"{folder}/own.py:scores", "--set", "kind=ratio")
        first = json.loads((data / "manifest.json").read_text())["samples"][0]["id"]
        answer = calib("evaluate", folder / "model.onnx", data, *metric)
        assert_refused(answer, "score 'auroc' of sample", f"'{first}'", "nan", "finite")

    def test_nothing_is_written_where_it_fails(self, folder: Path, calib: Command) -> None:
        arguments = ("evaluate", folder / "model.onnx", folder / "labelled" / "evaluation")
        out = folder / "failed" / "evaluation.json"
        metric = ("--metric", f"{folder}/own.py:scores", "--set", "kind=ratio")
        assert_refused(calib(*arguments, *metric, "-o", out), "auroc")
        assert not out.parent.exists()
