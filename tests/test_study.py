"""Studies as a user runs them: files, resuming, identity, killed runs, and what a run may not hold."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from calib.study import load, load_result
from calib.study.codec import save

from .conftest import assert_refused, run_calib, temporary_files, text_model, write_study

FILES = {
    "calibration/manifest.json",
    "evaluation/manifest.json",
    "normalization.json",
    "stats.npz",
    "noise-stats.npz",
    "candidates/fp32/model.onnx",
    "candidates/fp32/evaluation.json",
    "candidates/fp16/model.fp16.onnx",
    "candidates/fp16/quantization.json",
    "candidates/fp16/evaluation.json",
    *(
        f"candidates/{name}/{file}"
        for name in ("max", "mse", "entropy", "noise-max")
        for file in ("scales.json", "calibration.cache", "quantization.json", "model.int8.onnx", "evaluation.json")
    ),
    "candidates/max/verification.json",  # of the best
    "timings.json",
    "quality.json",
    "study.json",
    "report/index.html",
    "report/report.md",
}
REPORTED = ("study.json", "report")  # written again by every run, from the artefacts
USERS_OWN = (
    ('["max", "mse", "entropy"]', '["max", "user_code.py:Calibrator", "mse"]'),
    (
        '"ctc-text"',
        '"user_code.py:Metric"',
    ),
)


def only_run(runs: Path) -> Path:
    (folder,) = (runs / "small").iterdir()
    return folder


def artefacts(folder: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of change of every file that a stage wrote."""
    found = {path.relative_to(folder).as_posix(): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {name: (s.st_ino, s.st_mtime_ns) for name, s in found.items() if not name.startswith(REPORTED)}


def scales(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.glob("candidates/*/scales.json")}


class TestRun:
    @pytest.fixture(scope="class")
    @classmethod
    def runs(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        root = tmp_path_factory.mktemp("whole")
        write_study(root)
        answer = run_calib("run", root / "study.toml", "--runs", root / "runs", "--no-track")
        assert answer.status == 0, answer.err
        assert "max" in answer.out
        assert str(only_run(root / "runs") / "report" / "index.html") in answer.out
        return root / "runs"

    def test_writes_every_file_of_a_run_and_no_other(self, runs: Path) -> None:
        folder = only_run(runs)
        present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert present >= FILES
        others = {name for name in present - FILES if "/shard-" not in name and "report/figures/" not in name}
        assert others == set()

    def test_the_result_comes_back_unchanged_from_its_file(self, runs: Path, tmp_path: Path) -> None:
        path = only_run(runs) / "study.json"
        result = load_result(path)
        save(result, tmp_path / "again.json")
        assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
        assert load_result(tmp_path / "again.json") == result
        assert [row.name for row in result.candidates] == ["fp32", "fp16", "max", "mse", "entropy", "noise-max"]

    def test_a_second_run_redoes_nothing(self, runs: Path) -> None:
        folder = only_run(runs)
        before, study = artefacts(folder), (folder / "study.json").read_bytes()
        answer = run_calib("run", runs.parent / "study.toml", "--runs", runs, "--no-track", "--json")
        assert answer.status == 0, answer.err
        assert only_run(runs) == folder
        assert artefacts(folder) == before
        assert (folder / "study.json").read_bytes() == study == answer.out.encode()

    def test_the_report_can_be_written_again(self, runs: Path, calib) -> None:
        folder = only_run(runs)
        before = (folder / "report" / "index.html").read_bytes()
        (folder / "report" / "index.html").unlink()
        assert calib("report", folder).status == 0
        assert (folder / "report" / "index.html").read_bytes() == before

    @pytest.mark.parametrize("damaged", ["stats.npz", "evaluation/shard-00000.npz", "candidates/mse/evaluation.json"])
    def test_a_damaged_file_of_a_run_is_an_error_that_names_it(
        self, runs: Path, damaged: str, tmp_path: Path, calib
    ) -> None:
        shutil.copytree(runs, tmp_path / "runs")
        folder = only_run(tmp_path / "runs")
        (folder / damaged).write_bytes((folder / damaged).read_bytes()[:-40])
        for path in folder.glob("candidates/max/evaluation.json"):  # so that the evaluation set is read
            path.unlink()
        answer = calib("run", runs.parent / "study.toml", "--runs", tmp_path / "runs", "--no-track")
        assert answer.status == 1
        assert str(folder / damaged) in answer.err


def test_building_the_data_twice_gives_the_same_bytes(study: Path, tmp_path: Path, calib) -> None:
    contents = []
    for out in (tmp_path / "one", tmp_path / "two", tmp_path / "two"):  # the last one replaces a set
        assert calib("data", "build", study.parent / "recipe.toml", "-o", out).status == 0
        contents.append({path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()})
    assert contents[0] == contents[1] == contents[2]
    assert len([path for path in contents[0] if path.name == "manifest.json"]) == 2
    assert temporary_files(tmp_path) == []


def test_a_tensor_of_zeros_needs_a_plan_that_keeps_its_reader_in_float(study: Path, tmp_path: Path, calib) -> None:
    text_model(study.parent / "model.onnx", dead_branch=True)
    command = ("run", study, "--runs", tmp_path / "runs", "--no-track")
    assert_refused(calib(*command), "tensor 'dead'", "zero for every sample", "float in the plan")
    study.write_text(study.read_text() + '\n[plan.layers]\ndead_conv = "fp32"\n')
    assert calib(*command).status == 0
    (result,) = (load_result(path) for path in (tmp_path / "runs").rglob("study.json"))
    assert [(row.int8_layers, row.total_layers) for row in result.candidates[2:]] == [(2, 3)] * 4


class TestKilled:
    """A run that is killed and run again ends in the same scales as one that nobody disturbed."""

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(cls, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
        root = tmp_path_factory.mktemp("undisturbed")
        study = write_study(root, *USERS_OWN)
        assert run_calib("run", study, "--runs", root / "runs", "--no-track").status == 0
        return scales(only_run(root / "runs"))

    @pytest.fixture
    def command(self, tmp_path: Path) -> list[str]:
        study = write_study(tmp_path, *USERS_OWN)
        return ["run", str(study), "--runs", str(tmp_path / "runs"), "--no-track"]

    @pytest.fixture
    def finish(self, command: list[str], tmp_path: Path, undisturbed: dict[str, bytes], calib) -> Callable[[], None]:
        def again() -> None:
            assert calib(*command).status == 0
            assert scales(only_run(tmp_path / "runs")) == undisturbed
            assert temporary_files(tmp_path) == []

        return again

    @pytest.mark.parametrize("stage", ["source", "calibrator", "metric"])
    def test_inside_a_stage(self, stage: str, command: list[str], tmp_path: Path, finish: Callable[[], None]) -> None:
        killed = run_calib(*command, env={**os.environ, "KILL_AT": stage})
        assert killed.status == -signal.SIGKILL
        assert stage != "source" or temporary_files(tmp_path)  # the half-written set lies there
        finish()

    @pytest.mark.parametrize(
        "artefact",
        ["calibration/manifest.json", "stats.npz", "candidates/max/scales.json", "candidates/fp32/evaluation.json"],
    )
    def test_when_an_artefact_appears(
        self, artefact: str, command: list[str], tmp_path: Path, finish: Callable[[], None]
    ) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "calib", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(f"runs/small/*/{artefact}")) and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
        assert process.wait(timeout=10) == -signal.SIGKILL
        finish()


class TestIdentity:
    """What decides the numbers is in the run's name; what does not, is not."""

    @pytest.mark.parametrize(
        "change",
        [
            ('"max", "mse"', '"max", "percentile-99.9", "mse"'),
            ("max_drop = 0.05", "max_drop = 0.04"),
            ("seed = 3", "seed = 4"),
            ("class Lines:", "class Lines:  # another source"),
            ("include_samples = false", "include_samples = true"),
        ],
    )
    def test_another_run_for(self, study: Path, change: tuple[str, str]) -> None:
        before = load(study).identity({})
        write_study(study.parent, change)
        assert load(study).identity({}) != before

    @pytest.mark.parametrize("users_own", USERS_OWN)
    def test_another_run_for_a_changed_calibrator_or_metric_of_the_user(
        self, study: Path, users_own: tuple[str, str]
    ) -> None:
        code = study.parent / "code" / "own.py"
        code.parent.mkdir()
        code.write_text((study.parent / "user_code.py").read_text())
        write_study(study.parent, (users_own[0], users_own[1].replace("user_code.py", "code/own.py")))
        before = load(study).identity({})
        code.write_text(code.read_text() + "\n# changed\n")
        assert load(study).identity({}) != before

    def test_another_run_for_another_model_or_package(self, study: Path) -> None:
        before = load(study).identity({"numpy": "2.0"})
        assert load(study).identity({"numpy": "2.1"}) != before
        model = study.parent / "model.onnx"
        model.write_bytes(model.read_bytes().replace(b"classify", b"classifi"))
        assert load(study).identity({"numpy": "2.0"}) != before

    def test_the_same_run_for_another_way_to_report(self, study: Path) -> None:
        before = load(study).identity({})
        write_study(
            study.parent,
            ("[report]", '[evidence]\nlevel = 0.9\n\n[report]\nslices = ["page"]'),
            ('"small"', '"small"\ndescription = "x"'),
        )
        assert load(study).identity({}) == before


class TestSamplesInTheRun:
    """Texts of samples may be patients'; they are where the study allows it and nowhere else."""

    CHANGES = (
        ('["max", "mse", "entropy"]', '["max"]'),
        ("count = 60", 'count = 60\nfault = "outlier"'),
        ("seed = 3", "seed = 4"),
    )

    def texts(self, folder: Path) -> dict[str, bool]:
        """Return for each file that people pass on whether it holds a text, prediction or other metadata."""
        files = [folder / "study.json", *folder.glob("report/**/*"), *folder.glob("candidates/*/evaluation.json")]
        manifest = (folder / "evaluation" / "manifest.json").read_text()
        marked = [
            "MARKED-",
            *(line.split('"')[3] for line in manifest.splitlines() if line.strip().startswith('"text":')),
        ]
        return {
            str(path.relative_to(folder)): any(text in path.read_text() for text in marked)
            for path in files
            if path.suffix in (".json", ".html", ".md", ".svg")
        }

    def test_are_left_out_unless_the_study_includes_them(self, tmp_path: Path, calib) -> None:
        found = {}
        for include in ("false", "true"):
            runs = tmp_path / include
            study = write_study(tmp_path, *self.CHANGES, ("include_samples = false", f"include_samples = {include}"))
            assert calib("run", study, "--runs", runs, "--no-track").status == 0
            folder = only_run(runs)
            assert load_result(folder / "study.json").flips, "the test needs flips to be worth anything"
            found[include] = self.texts(folder)
        assert not any(found["false"].values())
        shown = {name for name, text in found["true"].items() if text}
        assert {"study.json", "report/index.html", "report/report.md", "candidates/max/evaluation.json"} <= shown

    def test_do_not_stay_from_an_earlier_run_that_included_them(self, tmp_path: Path, calib) -> None:
        for include in ("true", "false"):
            study = write_study(tmp_path, *self.CHANGES, ("include_samples = false", f"include_samples = {include}"))
            assert calib("run", study, "--runs", tmp_path / "runs", "--no-track").status == 0
        newest = next(
            path
            for path in (tmp_path / "runs" / "small").iterdir()
            if not load_result(path / "study.json").include_samples
        )
        assert not any(self.texts(newest).values())


def test_a_layer_in_fp16_beside_an_fp32_rest(study: Path, tmp_path: Path, calib) -> None:
    study.write_text(study.read_text() + '\n[quantize]\nrest = "fp32"\n\n[plan.layers]\nclassify = "fp16"\n')
    assert calib("run", study, "--runs", tmp_path / "runs", "--no-track").status == 0
    result = load_result(only_run(tmp_path / "runs") / "study.json")
    assert [(row.name, row.asked, row.built) for row in result.precision] == [
        ("conv", "int8", "int8"),
        ("classify", "fp16", "fp16"),
    ]
    assert result.built is not None
    assert (result.built.int8_asked, result.built.int8_built) == (1, 1)


def test_without_right_answers_the_agreement_with_fp32_is_judged(tmp_path: Path, calib) -> None:
    study = write_study(
        tmp_path,
        ('target = "text"\n', ""),
        ('"ctc-text"', '"agreement"\noptions = { outputs = "logits" }'),
        ('metric = "cer"', 'metric = "token"'),
        ("max_drop = 0.05", "max_drop = 0.2"),
        ("[report]", "[evidence]\nsmallest_slice = 5\n\n[report]"),
    )
    assert calib("run", study, "--runs", tmp_path / "runs", "--no-track").status == 0
    result = load_result(only_run(tmp_path / "runs") / "study.json")
    by_name = {row.name: row for row in result.candidates}
    assert by_name["fp32"].metrics == pytest.approx({"token": 1, "top1": 1, "cosine": 1, "kl": 0})
    noise = by_name["noise-max"]
    assert noise.delta == noise.metrics["token"] - 1 < 0
    assert noise.broken == round(16 * (1 - noise.metrics["top1"])) > 0
    assert result.evidence.metric == "token"
    assert {piece.name for piece in result.evidence.slices} >= {"device = fax", "device = phone"}
    assert not any("target" in note for note in result.notes)
