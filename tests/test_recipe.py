"""Recipes, from the files of every source to sets that a study takes: `calib data build`, through the command line."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from calib.data import sets
from calib.data.sets import SampleSet

from . import set_sources
from .conftest import Answer, assert_refused, make_model, matmul_model, temporary_files

Command = Callable[..., Answer]

OWN = """
import numpy as np
from calib.metrics import SampleScore

class Top:
    higher_is_better = {"right": True}
    def score(self, outputs, targets):
        found = [str(row.argmax()) for row in outputs["y"]]
        return [SampleScore(f, {"right": (float(f == t), 1.0)}) for f, t in zip(found, targets)]

def looks(inputs):
    return np.array([inputs["x"].mean(), inputs["x"].std()])

def doubled(fields):
    return {"x": 2 * fields["x"]}
"""

VECTORS = '[prepare.x]\nfield = "x"\nscale = 2\n'
PICTURES = """[prepare.x]
resize = {height = 8, width = 8}
scale = 255
mean = [0.5, 0.4, 0.3]
std = [0.2]
layout = "CHW"
"""
SCANS = '[prepare.x]\ncrop = {height = 8, width = 8}\nmean = [0.5]\nlayout = "CHW"\n'


def write_recipe(
    folder: Path,
    data: str,
    *,
    prepare: str = VECTORS,
    top: str = "",
    calibration: str = "samples = 12",
    evaluation: str = "samples = 8",
    name: str = "recipe.toml",
) -> Path:
    parts = f"[calibration]\n{calibration}\n[evaluation]\n{evaluation}\n"
    (folder / name).write_text(f'name = "r"\n{data}{top}\n{parts}{prepare}', encoding="utf-8")
    return folder / name


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def both(folder: Path) -> tuple[SampleSet, SampleSet]:
    return sets.read(folder / "calibration"), sets.read(folder / "evaluation")


def ids(samples: SampleSet) -> set[str]:
    return {entry.id for entry in samples.entries}


def digests(samples: SampleSet) -> dict[str, str]:
    return {entry.id: entry.sha256 for entry in samples.entries}


def manifest(folder: Path, part: str = "calibration") -> dict[str, Any]:
    return json.loads((folder / part / "manifest.json").read_text())


def conv_model(path: Path, channels: int) -> Path:
    kernel = np.random.default_rng(0).normal(0, 0.3, (2, channels, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["features"], "conv"),
        helper.make_node("ReduceMean", ["features"], ["y"], "mean", axes=[2, 3], keepdims=0),
    ]
    return make_model(path, nodes, {"x": ["N", channels, "H", "W"]}, ["N", 2], {"kernel": kernel})


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN)
    return str(tmp_path / "own.py")


@pytest.mark.parametrize("source", [*set_sources.VECTORS, "images", "dicom"])
def test_from_every_source_to_a_set_that_a_model_takes(source: str, tmp_path: Path, calib: Command) -> None:
    data = set_sources.write(source, tmp_path, 40)
    prepare = {"images": PICTURES, "dicom": SCANS}.get(source, VECTORS)
    top = 'group = "patient"' if source == "dicom" else 'group = "document"\nstratify = ["device"]\ntarget = "label"'
    built = calib("data", "build", write_recipe(tmp_path, data, prepare=prepare, top=top), "-o", tmp_path / "sets")
    assert built.status == 0, built.err
    calibration, evaluation = both(tmp_path / "sets")
    assert (len(calibration), len(evaluation)) == (12, 8)
    assert f"12 samples  sha256 {calibration.sha256}" in built.out

    group = calibration.group
    assert not set(calibration.column(group)) & set(evaluation.column(group))
    if source != "dicom":
        assert Counter(calibration.column("device")) == {"fax": 3, "phone": 9}
        assert set(evaluation.column(evaluation.target)) == {"0", "1"}
    stored = manifest(tmp_path / "sets")
    assert stored["records"] == 40 and stored["skipped"] == 0
    declared = stored["preparation"]["inputs"]["x"]
    assert declared == manifest(tmp_path / "sets", "evaluation")["preparation"]["inputs"]["x"]
    if source in set_sources.VECTORS:
        assert declared["scale"] == 2
        number = int(calibration.entries[0].id.removeprefix("s"))
        np.testing.assert_array_equal(calibration.one(0)["x"], set_sources.vector(number) / 2)
        model = matmul_model(tmp_path / "model.onnx")
    else:
        assert declared["layout"] == "CHW"
        channels = 3 if source == "images" else 1
        assert calibration.one(0)["x"].shape == (channels, 8, 8) and calibration.one(0)["x"].dtype == np.float32
        model = conv_model(tmp_path / "model.onnx", channels)
    answer = calib("calibrate", model, tmp_path / "sets" / "calibration", "-m", "max", "-o", tmp_path / "scales.json")
    assert answer.status == 0, answer.err

    first = contents(tmp_path / "sets")
    assert calib("data", "build", tmp_path / "recipe.toml", "-o", tmp_path / "again").status == 0
    assert contents(tmp_path / "again") == first


class TestPreparation:
    def test_a_set_prepared_otherwise_is_not_evaluated(self, tmp_path: Path, own: str, calib: Command) -> None:
        data = set_sources.write("arrays", tmp_path, 40)
        model, int8 = matmul_model(tmp_path / "model.onnx"), tmp_path / "model.int8.onnx"
        for name, scale in (("sets", 2), ("other", 4)):
            recipe = write_recipe(
                tmp_path, data, top='target = "label"', prepare=VECTORS.replace("scale = 2", f"scale = {scale}")
            )
            assert calib("data", "build", recipe, "-o", tmp_path / name).status == 0
        scales = tmp_path / "scales.json"
        assert calib("calibrate", model, tmp_path / "sets" / "calibration", "-o", scales).status == 0
        assert calib("quantize", model, scales, "-o", int8).status == 0

        metric = ("--metric", f"{own}:Top")
        assert calib("evaluate", int8, tmp_path / "sets" / "evaluation", *metric).status == 0
        assert calib("evaluate", model, tmp_path / "other" / "evaluation", *metric).status == 0, (
            "a float model has none"
        )
        answer = calib("evaluate", int8, tmp_path / "other" / "evaluation", *metric)
        assert_refused(answer, "prepared otherwise", "model.int8.onnx", "inputs differ", "same recipe")

    def test_a_users_function_is_recorded_and_watched(self, tmp_path: Path, own: str, calib: Command) -> None:
        data = set_sources.write("jsonl", tmp_path, 40)
        recipe = write_recipe(tmp_path, data, top='prepare_function = "own.py:doubled"', prepare="")
        assert calib("data", "build", recipe, "-o", tmp_path / "sets").status == 0
        calibration, _ = both(tmp_path / "sets")
        number = int(calibration.entries[0].id.removeprefix("s"))
        np.testing.assert_array_equal(calibration.one(0)["x"], 2 * set_sources.vector(number))
        Path(own).write_text(OWN.replace("2 *", "3 *"))
        answer = calib("data", "build", recipe, "-o", tmp_path / "more", "--extend", tmp_path / "sets")
        assert_refused(answer, "prepared otherwise")
        assert not (tmp_path / "more").exists() or contents(tmp_path / "more") == {}


def break_image(folder: Path, identity: str) -> None:
    path = folder / "pages" / identity
    path.write_bytes(path.read_bytes()[:120])


def break_value(folder: Path, identity: str) -> None:
    arrays = dict(np.load(folder / "x.npz"))
    arrays["x"][list(arrays["name"]).index(identity), 1] = np.nan
    np.savez(folder / "x.npz", **arrays)


def break_line(folder: Path, identity: str) -> None:
    lines = (folder / "x.jsonl").read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if f'"id": "{identity}"' in line)
    lines[number] = lines[number][:50]
    (folder / "x.jsonl").write_text("\n".join(lines) + "\n")


BROKEN = {
    "images": (break_image, PICTURES, "image '{id}'"),
    "arrays": (break_value, VECTORS, "sample '{id}': input 'x' holds NaN"),
    "jsonl": (break_line, VECTORS, "x.jsonl, line"),
}


class TestSkip:
    @pytest.mark.parametrize("source", BROKEN)
    def test_bad_samples_are_an_error_or_left_out_and_told(self, source: str, tmp_path: Path, calib: Command) -> None:
        breaks, prepare, says = BROKEN[source]
        data = set_sources.write(source, tmp_path, 40)

        def build(out: str, skip: int) -> Answer:
            recipe = write_recipe(tmp_path, data, prepare=prepare, top=f"skip = {skip}\n")
            return calib("data", "build", recipe, "-o", tmp_path / out)

        assert build("good", 0).status == 0
        calibration, evaluation = both(tmp_path / "good")
        bad = [calibration.entries[-1].id, evaluation.entries[-1].id]
        for identity in bad:
            breaks(tmp_path, identity)

        where = says.format(id=bad[0]) if source != "jsonl" else says
        assert_refused(build("none", 0), where, "repair", "skip = N")
        assert contents(tmp_path / "none") == {} and temporary_files(tmp_path) == []

        answer = build("skipped", 2)
        assert answer.status == 0, answer.err
        assert "2 samples could not be read and were left out" in answer.out
        after = both(tmp_path / "skipped")
        assert [len(samples) for samples in after] == [12, 8]
        assert not (ids(after[0]) | ids(after[1])) & set(bad)
        for part in ("calibration", "evaluation"):
            stored = manifest(tmp_path / "skipped", part)
            assert stored["skipped"] == 2 and "left out" in stored["notes"][-1]
            listed = [fault["sample"] for fault in stored["first_skipped"]]
            assert len(listed) == 2 and all(fault["reason"] for fault in stored["first_skipped"])
            assert source == "jsonl" or sorted(listed) == sorted(bad)
        assert build("again", 2).status == 0
        assert contents(tmp_path / "again") == contents(tmp_path / "skipped")

        breaks(tmp_path, after[1].entries[0].id)
        before = contents(tmp_path / "skipped")
        assert_refused(build("skipped", 2), "skip = 2 is used up")
        assert contents(tmp_path / "skipped") == before, "what was built before stays, both sets of it"
        assert temporary_files(tmp_path) == []

    def test_what_is_left_is_too_few(self, tmp_path: Path, calib: Command) -> None:
        data = set_sources.write("arrays", tmp_path, 20)
        break_value(tmp_path, "s3")
        answer = calib("data", "build", write_recipe(tmp_path, data, top="skip = 9"), "-o", tmp_path / "sets")
        assert_refused(answer, "too few samples", "1 more", "1 could not be read", "ask for fewer samples")
        assert contents(tmp_path / "sets") == {} and temporary_files(tmp_path) == []

    def test_a_folder_that_is_no_set_is_not_replaced(self, tmp_path: Path, calib: Command) -> None:
        data = set_sources.write("arrays", tmp_path, 40)
        (tmp_path / "sets" / "evaluation").mkdir(parents=True)
        (tmp_path / "sets" / "evaluation" / "thesis.txt").write_text("words")
        answer = calib("data", "build", write_recipe(tmp_path, data), "-o", tmp_path / "sets")
        assert_refused(answer, "evaluation exists and is not a sample set", "another place")
        assert contents(tmp_path / "sets") == {"evaluation/thesis.txt": b"words"}


class TestExtend:
    @pytest.mark.parametrize(
        ("method", "features"), [("random", ""), ("kmeans", "model"), ("kcenter", "model"), ("kmeans", "own.py:looks")]
    )
    def test_all_that_was_held_stays(
        self, method: str, features: str, tmp_path: Path, own: str, calib: Command
    ) -> None:
        data = set_sources.write("parquet", tmp_path, 60)
        model = matmul_model(tmp_path / "model.onnx")
        top = f'features = "{features}"\n' if features else ""
        given = ("--model", model) if features == "model" else ()

        def build(out: str, first: int, second: int, *options: Any) -> None:
            recipe = write_recipe(
                tmp_path,
                data,
                top=f'group = "document"\nstratify = ["device"]\n{top}',
                calibration=f'samples = {first}\nmethod = "{method}"',
                evaluation=f"samples = {second}",
            )
            answer = calib("data", "build", recipe, "-o", tmp_path / out, *given, *options)
            assert answer.status == 0, answer.err

        build("small", 12, 8)
        build("large", 20, 16, "--extend", tmp_path / "small")
        small, large = both(tmp_path / "small"), both(tmp_path / "large")
        for before, after, size in zip(small, large, (20, 16), strict=True):
            assert len(after) == size and digests(before).items() < digests(after).items()
            for batch in after.batches(7):  # every sample is what its digest says
                assert batch.inputs["x"].shape[1:] == (4,)
        assert not set(large[0].column("document")) & set(large[1].column("document"))
        if method != "random":
            random = write_recipe(tmp_path, data, top='group = "document"\nstratify = ["device"]\n')
            assert calib("data", "build", random, "-o", tmp_path / "random").status == 0
            assert ids(both(tmp_path / "random")[0]) != ids(small[0])
        build("small", 20, 16, "--extend", tmp_path / "small")  # in its own place
        assert contents(tmp_path / "small") == contents(tmp_path / "large")

    def test_in_its_own_place_past_a_bad_sample(self, tmp_path: Path, calib: Command) -> None:
        data = set_sources.write("arrays", tmp_path, 60)
        out = tmp_path / "sets"
        assert calib("data", "build", write_recipe(tmp_path, data), "-o", out).status == 0
        small = both(out)
        larger = {"calibration": "samples = 20", "evaluation": "samples = 16", "top": "skip = 1"}
        recipe = write_recipe(tmp_path, data, **larger)
        assert calib("data", "build", recipe, "-o", tmp_path / "peek", "--extend", out).status == 0
        break_value(tmp_path, min(ids(both(tmp_path / "peek")[1]) - ids(small[1])))
        answer = calib("data", "build", recipe, "-o", out, "--extend", out)
        assert answer.status == 0, answer.err
        for before, after, size in zip(small, both(out), (20, 16), strict=True):
            assert len(after) == size and digests(before).items() < digests(after).items()
        assert manifest(out)["skipped"] == 1

    def test_refused(self, tmp_path: Path, calib: Command) -> None:
        data = set_sources.write("arrays", tmp_path, 60)
        small = tmp_path / "small"
        assert calib("data", "build", write_recipe(tmp_path, data), "-o", small).status == 0
        before = contents(small)
        for changes, says in (
            (
                {"prepare": VECTORS.replace("2", "4")},
                ("prepared otherwise", "cannot be extended", "new calibration set"),
            ),
            ({"prepare": ""}, ("prepared otherwise",)),
            ({"calibration": "samples = 6"}, ("holds 12 samples, more than the recipe's 6", "extending only adds")),
        ):
            recipe = write_recipe(tmp_path, data, **changes)
            assert_refused(calib("data", "build", recipe, "-o", small, "--extend", small), *says)
        recipe = write_recipe(tmp_path, data)
        answer = calib("data", "build", recipe, "-o", small, "--extend", tmp_path / "nowhere")
        assert_refused(answer, "nowhere", "does not exist")
        assert contents(small) == before and temporary_files(tmp_path) == []


class TestSelection:
    @pytest.fixture
    def refused(self, tmp_path: Path, calib: Command) -> Callable[..., None]:
        data = set_sources.write("arrays", tmp_path, 40)

        def check(*says: str, **changes: str) -> None:
            answer = calib("data", "build", write_recipe(tmp_path, data, **changes), "-o", tmp_path / "sets")
            assert_refused(answer, *says)
            assert contents(tmp_path / "sets") == {} and temporary_files(tmp_path) == []

        return check

    def test_features_that_nothing_makes(self, refused: Callable[..., None], own: str) -> None:
        diverse = {"calibration": 'samples = 12\nmethod = "kmeans"'}
        refused("recipe.toml chooses samples by the model's features", "--model", top='features = "model"', **diverse)
        refused("method 'kmeans' needs features", **diverse)
        refused("features must be 'model' or", top='features = "modle"', **diverse)
        refused("own.py has no attribute 'nothing'", top='features = "own.py:nothing"', **diverse)
        Path(own).write_text("def looks(inputs):\n    return inputs['z']\n")
        refused("features own.py:looks fails on sample 's", "KeyError", top='features = "own.py:looks"', **diverse)

    def test_columns_and_strata(self, refused: Callable[..., None]) -> None:
        refused("names the column 'devise'", "'device'", top='stratify = ["devise"]')
        refused("names the column 'page'", "'document'", top='group = "page"')
        refused("target 'text'", "does not have", top='target = "text"')
        refused("colour", calibration='samples = 12\nwhere = {colour = ["red"]}')
        refused("telex", calibration='samples = 4\nwhere = {device = ["telex"]}')
        refused(
            "too small for at least 7 of each of 2 strata: it needs 14",
            top='stratify = ["device"]',
            calibration="samples = 12\nminimum = 7",
        )
        refused(
            "too few samples for the",
            "'fax'",
            "a smaller minimum",
            top='stratify = ["device"]',
            calibration="samples = 20\nminimum = 8",
            evaluation="samples = 8\nminimum = 4",
        )

    def test_windows_of_time(self, refused: Callable[..., None], tmp_path: Path, calib: Command) -> None:
        refused("time", calibration='samples = 12\nsince = "2026-03-10"')
        refused("2027", top='time = "day"', calibration='samples = 12\nsince = "2027-01-01"')
        refused("since must be a number or a date", top='time = "day"', calibration='samples = 12\nsince = "March"')
        refused(
            "must be before", top='time = "day"', calibration='samples = 4\nsince = "2026-04-01"\nuntil = "2026-03-01"'
        )
        recipe = write_recipe(
            tmp_path,
            set_sources.write("jsonl", tmp_path, 60),
            top='time = "day"\nstratify = ["device"]',
            calibration='samples = 10\nuntil = "2026-03-15"\nwhere = {device = ["phone"]}',
            evaluation='samples = 8\nsince = "2026-03-15"\nbalance = "balanced"',
        )
        assert calib("data", "build", recipe, "-o", tmp_path / "sets").status == 0
        calibration, evaluation = both(tmp_path / "sets")
        assert max(calibration.column("day")) < "2026-03-15" <= min(evaluation.column("day"))
        assert set(calibration.column("device")) == {"phone"}
        assert Counter(evaluation.column("device")) == {"fax": 4, "phone": 4}
