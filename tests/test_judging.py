"""Judging through the command line: `calib data check`, `calib data compare`, and what a study says of its set."""

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from calib import quality
from calib.study import load_result

from . import set_sources
from .conftest import Answer, assert_refused, make_model, matmul_model, temporary_files, write_study
from .test_recipe import VECTORS, both, manifest, write_recipe

Command = Callable[..., Answer]
ROOT = Path(__file__).parents[1]

TOP = 'group = "document"\nstratify = ["device"]\ntarget = "label"'
SIZES = {"calibration": "samples = 80", "evaluation": "samples = 80"}


def two_layers(path: Path) -> Path:
    """Write a model with two activations: x [N, 4], and `hidden`."""
    draws = np.random.default_rng(7)
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["sums"], "one"),
        helper.make_node("Relu", ["sums"], ["hidden"], "relu"),
        helper.make_node("MatMul", ["hidden", "second"], ["y"], "two"),
    ]
    weights = {
        "first": draws.normal(size=(4, 6)).astype(np.float32),
        "second": draws.normal(size=(6, 2)).astype(np.float32),
    }
    return make_model(path, nodes, {"x": ["N", 4]}, ["N", 2], weights)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return two_layers(tmp_path / "model.onnx")


@pytest.fixture
def sets(tmp_path: Path, calib: Command) -> Path:
    """Calibration and evaluation set of one log."""
    recipe = write_recipe(tmp_path, set_sources.write("jsonl", tmp_path, 240), top=TOP, **SIZES)
    answer = calib("data", "build", recipe, "-o", tmp_path / "sets")
    assert answer.status == 0, answer.err
    return tmp_path / "sets"


def strict(text: str) -> Any:
    """Parse JSON as other languages do: no NaN, no Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


class TestCheck:
    def test_all_four_answers(self, sets: Path, model: Path, tmp_path: Path, calib: Command) -> None:
        out = tmp_path / "quality.json"
        answer = calib("data", "check", sets, "--model", model, "-o", out, "--json")
        assert answer.status == 0, answer.err
        found = quality.load(out)
        document = strict(answer.out)
        assert document == {k: v for k, v in strict(out.read_text()).items() if k not in ("format", "version")}
        assert found.samples == 80 and found.sufficiency is not None
        assert {curve.tensor for curve in found.sufficiency.curves} == {"x", "hidden"}
        assert [(c.scales, c.other) for c in found.coverage] == [("mse", "evaluation")]
        assert {clip.value for clip in found.coverage[0].slices} == {"fax", "phone"}
        assert [drift.beyond for drift in found.drift] == [False]
        assert {shift.tensor for shift in found.drift[0].shifts} == {"x", "hidden"}
        assert [(d.exact, d.near) for d in found.duplicates] == [(0, 0)]
        shown = calib("data", "check", sets, "--model", model, "-o", tmp_path / "again.json").out
        assert (tmp_path / "again.json").read_bytes() == out.read_bytes()

        assert "not judged" not in shown and "No difference" in shown and "No sample is also in" in shown

    def test_without_a_model_inputs_are_compared(self, sets: Path, calib: Command) -> None:
        found = strict(calib("data", "check", sets, "--json").out)
        assert (found["sufficiency"], found["coverage"]) == (None, [])
        assert {shift["kind"] for shift in found["drift"][0]["shifts"]} == {"input"}
        assert len(found["duplicates"]) == 1 and "No model was given" in found["notes"][0]

    def test_a_recipe_is_built_for_it(self, sets: Path, model: Path, tmp_path: Path, calib: Command) -> None:
        before = sorted(tmp_path.rglob("*"))
        built = calib("data", "check", sets, "--model", model, "--json")
        declared = calib("data", "check", tmp_path / "recipe.toml", "--model", model, "--json")
        assert declared.status == 0 and strict(declared.out) == strict(built.out)
        assert sorted(tmp_path.rglob("*")) == before, "and nothing stays"

    def test_a_plain_npz(self, model: Path, tmp_path: Path, calib: Command) -> None:
        for name, first, gain in (("a", 0, 1), ("b", 500, 1), ("c", 500, 2)):
            np.savez(tmp_path / f"{name}.npz", x=np.stack([set_sources.vector(first + i, gain) for i in range(80)]))
        alone = strict(calib("data", "check", tmp_path / "a.npz", "--model", model, "--json").out)
        assert alone["sufficiency"] is not None and not alone["drift"]
        checked = ("data", "check", tmp_path / "a.npz", "--model", model, "--against")
        assert calib(*checked, tmp_path / "b.npz").status == 0
        assert calib(*checked, tmp_path / "c.npz").status == 3
        set_sources.log(tmp_path / "later.jsonl", range(500, 580))
        assert calib(*checked, tmp_path / "later.jsonl").status == 0

    def test_scales_that_clip(self, sets: Path, model: Path, tmp_path: Path, calib: Command) -> None:
        scales = tmp_path / "scales.json"
        assert calib("calibrate", model, sets / "calibration", "-m", "max", "-o", scales).status == 0
        document = json.loads(scales.read_text())
        document["activations"]["x"] /= 4
        scales.write_text(json.dumps(document))
        command = ("data", "check", sets, "--model", model, "--json")
        (clipped,) = strict(calib(*command, "--scales", scales).out)["coverage"]
        (held,) = strict(calib(*command, "-m", "max").out)["coverage"]
        assert clipped["tensors"][0]["tensor"] == "x" and clipped["tensors"][0]["share"] > 0.1
        assert held["overall"] < 0.02
        other = matmul_model(tmp_path / "other.onnx")
        answer = calib("data", "check", sets, "--model", other, "--scales", scales)
        assert_refused(answer, "scales.json was made for another model", "calibrate this one")

    def test_wrong_questions(self, sets: Path, model: Path, tmp_path: Path, calib: Command) -> None:
        assert_refused(calib("data", "check", tmp_path / "nowhere"), "nowhere", "does not exist")
        answer = calib("data", "check", sets, "--model", model, "--slice", "colour")
        assert_refused(answer, "no sample has the metadata column 'colour'", "device")
        assert_refused(calib("data", "check", sets, "--limit", "1"), "limit between 0 and 1")
        assert_refused(calib("data", "check", sets, "--against", tmp_path / "none.jsonl"), "none.jsonl")
        recipe = write_recipe(
            tmp_path, 'source = "jsonl"\noptions = {path = "x.jsonl"}\n', top=TOP, prepare="", **SIZES
        )
        assert calib("data", "build", recipe, "-o", tmp_path / "other").status == 0
        assert_refused(calib("data", "check", sets, "--against", tmp_path / "other"), "prepared otherwise")
        assert temporary_files(tmp_path) == []


class TestAgainst:
    """The nightly job: exit status 0, 3 on drift, 1 where there is no answer."""

    @pytest.fixture
    def night(self, sets: Path, model: Path, calib: Command) -> Callable[..., Answer]:
        def check(log: Path, *options: Any) -> Answer:
            return calib("data", "check", sets, "--model", model, "--against", log, *options)

        return check

    def test_a_log_like_the_set(self, night: Callable[..., Answer], tmp_path: Path) -> None:
        log = set_sources.log(tmp_path / "later.jsonl", range(1000, 1200))
        answer = night(log, "--json", "--samples", 150)
        assert answer.status == 0, answer.out
        (drift,) = strict(answer.out)["drift"]
        assert (drift["other"], drift["samples"], drift["reasons"]) == ("later.jsonl", [80, 150], [])
        assert night(log, "--json", "--samples", 150, "--seed", 1).out != answer.out

    def test_a_log_with_twice_the_gain(self, night: Callable[..., Answer], tmp_path: Path) -> None:
        log = set_sources.log(tmp_path / "later.jsonl", range(1000, 1200), gain=2)
        answer = night(log)
        assert answer.status == 3
        said = " ".join(answer.out.split())
        assert "input x: its largest |x| is typically" in said and "times the calibration set's" in said
        assert (
            "activation hidden: its largest |x|" in said and "drift The calibration set and later.jsonl differ" in said
        )
        as_json = night(log, "--json")
        assert as_json.status == 3 and strict(as_json.out)["drift"][0]["beyond"]
        ratios = {(s["tensor"], s["feature"]): s["ratio"] for s in strict(as_json.out)["drift"][0]["shifts"]}
        assert all(1.6 < ratio < 2.6 for ratio in ratios.values()), ratios

    def test_the_log_that_the_set_comes_from(self, night: Callable[..., Answer], sets: Path, tmp_path: Path) -> None:
        answer = night(tmp_path / "x.jsonl", "--samples", 80, "--json")
        assert answer.status == 0
        shared = strict(answer.out)["duplicates"][0]["exact"]
        assert 0 < shared < 60, "drawn anew: some of the set by chance, and not the set itself"
        recipe = night(tmp_path / "recipe.toml", "--samples", 80, "--json")
        assert recipe.status == 0 and strict(recipe.out)["duplicates"][0]["exact"] == shared

    def test_a_recipe_with_a_limit(self, night: Callable[..., Answer], tmp_path: Path) -> None:
        (tmp_path / "endless.py").write_text(
            "import itertools\nimport numpy as np\ndef forever():\n    for i in itertools.count():\n"
            "        x = np.float32(np.random.default_rng(9000 + i).normal(size=4))\n"
            '        yield {"id": f"e{i}", "device": "fax", "document": i}, {"x": x}\n'
        )
        later = write_recipe(
            tmp_path, 'source = "endless.py:forever"\n', top="limit = 90", name="endless.toml", prepare=VECTORS
        )
        answer = night(later, "--json")
        assert answer.status == 0, answer.err
        assert strict(answer.out)["drift"][0]["samples"] == [80, 90]

    def test_a_log_without_the_sets_columns(self, night: Callable[..., Answer], tmp_path: Path) -> None:
        log = set_sources.log(tmp_path / "later.jsonl", range(1000, 1100))
        log.write_text(log.read_text().replace('"document"', '"page"'))
        assert_refused(night(log), "has no column 'document'", "by which the calibration set is grouped", "log it too")
        log.write_text(log.read_text().replace('"page"', '"document"').replace('"device"', '"machine"'))
        answer = night(log, "--json")
        assert answer.status == 0
        (note,) = (note for note in strict(answer.out)["notes"] if "'device'" in note)
        assert note == "later.jsonl has no column 'device', so its values were not looked at apart."

    def test_too_few_to_ever_say(self, night: Callable[..., Answer], tmp_path: Path) -> None:
        log = set_sources.log(tmp_path / "later.jsonl", range(1000, 1001), gain=9)
        answer = night(log)
        assert_refused(answer, "later.jsonl 1 independent", "too few to tell", "on each side")
        assert answer.out == ""

    def test_bad_lines(self, night: Callable[..., Answer], tmp_path: Path) -> None:
        log = set_sources.log(tmp_path / "later.jsonl", range(1000, 1100))
        lines = log.read_text().splitlines()
        lines[3] = lines[3][:40]
        lines[7] = json.dumps({"id": "nan", "inputs": {"x": {"data": [1.0, float("nan"), 0.0, 0.0]}}})
        lines[9] = json.dumps({"id": "short", "document": "d", "device": "fax", "inputs": {"x": {"data": "AAAA"}}})
        log.write_text("\n".join(lines) + "\n")
        assert_refused(night(log), "later.jsonl, line 4", "not JSON", "--skip N")
        assert_refused(night(log, "--skip", 2), "--skip 2 is used up")
        answer = night(log, "--skip", 3, "--json")
        assert answer.status == 0, answer.err
        found = strict(answer.out)
        assert found["drift"][0]["samples"] == [80, 97]
        assert "later.jsonl: 3 samples could not be read" in found["notes"][-1] and "line 4" in found["notes"][-1]
        assert "3 samples could not be read" in " ".join(night(log, "--skip", 3).out.split())

    def test_a_users_preparation_is_found_again(self, model: Path, tmp_path: Path, calib: Command, monkeypatch) -> None:
        (tmp_path / "own.py").write_text('def f(fields):\n    return {"x": fields["x"] / 2}\n')
        data = set_sources.write("jsonl", tmp_path, 200)
        recipe = write_recipe(tmp_path, data, top='prepare_function = "own.py:f"', prepare="", **SIZES)
        assert calib("data", "build", recipe, "-o", tmp_path / "sets").status == 0
        log = set_sources.log(tmp_path / "later.jsonl", range(1000, 1100))
        answer = calib("data", "check", recipe, "--model", model, "--against", log)
        assert answer.status == 0, answer.err
        monkeypatch.chdir(tmp_path.parent)
        command = ("data", "check", tmp_path / "sets", "--against", log)
        assert_refused(calib(*command), "own.py does not exist")
        monkeypatch.chdir(tmp_path)
        assert calib(*command).status == 0


class TestCompare:
    def test_a_copy_and_one_with_a_gain(self, sets: Path, model: Path, tmp_path: Path, calib: Command) -> None:
        set_sources.log(tmp_path / "loud.jsonl", range(240), gain=2)
        loud = write_recipe(tmp_path, 'source = "jsonl"\noptions = {path = "loud.jsonl"}\n', top=TOP, **SIZES)
        assert calib("data", "build", loud, "-o", tmp_path / "loud").status == 0
        assert calib("data", "build", loud, "-o", tmp_path / "copy").status == 0
        command = ("--model", model, "--on", tmp_path / "loud" / "evaluation", "-m", "max")

        same = strict(calib("data", "compare", tmp_path / "loud", tmp_path / "copy", *command, "--json").out)
        assert (same["beyond_noise"], same["less_clipping"], same["evaluation"]) == (0, "equal", 80)
        assert {row["ratio"] for row in same["differences"]} == {1.0}

        gained = calib("data", "compare", sets, tmp_path / "loud" / "calibration", *command, "--json")
        assert gained.status == 0, gained.err
        found = strict(gained.out)
        assert {row["tensor"]: row["ratio"] for row in found["differences"]} == {"x": 2.0, "hidden": 2.0}
        assert (found["beyond_noise"], found["less_clipping"]) == (2, "second")
        assert found["clipped_first"] > 2 * found["clipped_second"]
        shown = " ".join(calib("data", "compare", sets, tmp_path / "loud", *command).out.split())
        assert "2 of 2 scales (max) differ" in shown and "The second clips less" in shown

    def test_refused(self, sets: Path, model: Path, tmp_path: Path, calib: Command) -> None:
        on = ("--model", model, "--on", sets)
        assert_refused(calib("data", "compare", sets, tmp_path / "nowhere", *on), "nowhere", "does not exist")
        np.savez(tmp_path / "z.npz", z=np.ones((8, 4), np.float32))
        assert_refused(calib("data", "compare", sets, tmp_path / "z.npz", *on), "z.npz", "input 'x' is missing")


SCAN_STUDY = """
name = "scans"

[model]
path = "model.onnx"

[data]
recipe = "recipe.toml"

[metric]
name = "own.py:Side"

[budget]
metric = "right"
max_drop = 0.5

[calibrate]
calibrators = ["max", "mse"]
noise_control = ["max"]

[report]
include_samples = true
slices = ["modality", "patient"]
image = {input = "x", channels = "gray"}
"""

SIDE = """
from calib.metrics import SampleScore

class Side:
    higher_is_better = {"right": True}
    def score(self, outputs, targets):
        return [SampleScore(str(int(row[0] > row[1])), {"right": (float(row[0] > row[1]), 1.0)}) for row in outputs["y"]]
"""


def everything(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield a file's name with its bytes, and those of all that is packed in it."""
    content = path.read_bytes()
    yield str(path), content
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                yield f"{path}/{member}", archive.read(member)


def test_nothing_that_identifies_a_patient_is_in_any_file_of_a_run(tmp_path: Path, calib: Command) -> None:
    """Marked values in the DICOM fields, the files' names and their folder; samples, pictures and slices are shown."""
    pytest.importorskip("pydicom")
    from . import test_dicom as dicom

    study, scans = tmp_path / "study", tmp_path / "study" / "scans" / f"{dicom.MARK}^DOE"
    scans.mkdir(parents=True)
    draws = np.random.default_rng(0)
    for i in range(48):
        pixels = draws.integers(-160, 240, (10, 12)).astype(np.int16)
        scan = dicom.identified(
            PatientID=f"{dicom.MARK}{i // 2}", Rows=10, Columns=12, PixelData=pixels.tobytes(), Modality="CT"
        )
        dicom.save(scans / f"{dicom.MARK}-{i}.dcm", scan)
    cut = dicom.identified(PatientID=f"{dicom.MARK}98", PixelData=b"\0" * 99)
    dicom.save(scans / f"{dicom.MARK}-cut.dcm", cut)
    dicom.break_element(scans / f"{dicom.MARK}-broken.dcm", "Rows", b"US")
    from .test_recipe import conv_model

    conv_model(study / "model.onnx", 1)
    (study / "own.py").write_text(SIDE)
    (study / "study.toml").write_text(SCAN_STUDY)
    write_recipe(
        study,
        'source = "dicom"\noptions = {folder = "scans"}\n',
        top='group = "patient"\nstratify = ["modality"]\ntarget = "body_part"\nskip = 2',
        prepare='[prepare.x]\ncrop = {height = 8, width = 8}\nlayout = "CHW"\n',
        calibration="samples = 24",
        evaluation="samples = 24",
    )
    answer = calib("run", study / "study.toml", "--runs", tmp_path / "runs")
    assert answer.status == 0, answer.err
    (run,) = (path for path in (tmp_path / "runs" / "scans").iterdir() if path.is_dir())
    stored = manifest(run)
    assert stored["skipped"] == 2 and len(both(run)[1]) == 24
    assert load_result(run / "study.json").quality is not None

    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    read = [(name, data) for path in files for name, data in everything(path)]
    suffixes = {path.suffix for path in files}
    assert {".npz", ".json", ".html", ".onnx", ".db"} <= suffixes, suffixes
    assert any(b"HEAD" in data for _, data in read), "what may be told is told"
    for name, data in [*read, ("terminal", (answer.out + answer.err).encode())]:
        text = (name.replace(str(tmp_path), "") + data.decode("latin1")).lower()
        assert not [mark for mark in dicom.MARKS if mark.lower() in text], name


class TestStudy:
    def run(self, study: Path, runs: Path, calib: Command) -> Path:
        answer = calib("run", study, "--runs", runs, "--no-track")
        assert answer.status == 0, answer.err
        (folder,) = (runs / "small").iterdir()
        return folder

    CHANGES = (('["max", "mse", "entropy"]', '["max"]'), ('noise_control = ["max"]', "[quantize]\nverify = false"))

    def test_judged(self, tmp_path: Path, calib: Command) -> None:
        folder = self.run(write_study(tmp_path / "study", *self.CHANGES), tmp_path / "runs", calib)
        found = load_result(folder / "study.json").quality
        assert found is not None and found == quality.load(folder / "quality.json")
        assert found.sufficiency and found.coverage and found.duplicates
        assert found.drift or any("Drift" in note for note in found.notes)
        html, markdown = ((folder / "report" / name).read_text() for name in ("index.html", "report.md"))
        for text in (html, markdown):
            assert "device = fax" in text and "not judged" not in text.split("Is a sample on both sides?")[-1]

    def test_not_judged(self, tmp_path: Path, calib: Command) -> None:
        study = write_study(tmp_path / "study", *self.CHANGES, ('"recipe.toml"', '"recipe.toml"\njudge = false'))
        folder = self.run(study, tmp_path / "runs", calib)
        assert load_result(folder / "study.json").quality is None
        assert not (folder / "quality.json").exists()
        for name in ("index.html", "report.md"):
            assert "The calibration set was not judged in this study" in (folder / "report" / name).read_text()


def test_memory_does_not_grow_with_the_log() -> None:
    """Ten times the samples: 18,000 more arrays alone would be 18.4 MB.

    What does grow is a hash an id, some 80 bytes: 1.5 MB. The rest of the bound is what peaks of two processes differ by.
    """
    command = [sys.executable, str(ROOT / "experiments/benchmarks/streaming.py"), "--sizes", "2000", "20000"]
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run(
            [*command, "--calibration", "64", "--evaluation", "64", "--out", out.name], check=True, timeout=300
        )
        grown = json.loads(Path(out.name).read_text())["growth"]
    assert grown["log_mb"] > 25
    assert grown["build_mb"] < 8 and grown["check_mb"] < 8, grown
