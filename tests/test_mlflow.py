"""Tracking against a real MLflow server over HTTP, and against SQLite where no server is named."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from calib.study import load_result
from calib.tracking.mlflow_tracker import without_secrets

from .conftest import assert_refused, write_study


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root, port = tmp_path_factory.mktemp("server"), free_port()
    store, artifacts = f"sqlite:///{root / 'server.db'}", str(root / "artifacts")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store, "--artifacts-destination", artifacts]
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (root / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=root, env=environment, start_new_session=True)
    address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 90
    try:
        while not answers(address):
            assert process.poll() is None, (root / "log").read_text()
            assert time.monotonic() < deadline, (root / "log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, 9)  # the server has workers
        process.wait(timeout=10)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the small study's runs, which the tests share: only the first one computes."""
    return write_study(tmp_path_factory.mktemp("tracked")).parent / "runs"


def only_run(runs: Path) -> Path:
    (folder,) = (runs / "small").iterdir()
    return folder


def recorded(uri: str) -> list[Run]:
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("small")
    return list(client.search_runs([experiment.experiment_id])) if experiment else []


def test_a_server_holds_the_study_as_a_parent_and_nested_runs(
    server: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calib
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    answer = calib("run", runs.parent / "study.toml", "--runs", runs, "--json")
    assert answer.status == 0, answer.err
    assert json.loads(answer.out)["tracking_uri"] == server, "nothing but JSON on stdout"
    folder = only_run(runs)
    result = load_result(folder / "study.json")

    tracked = recorded(server)
    (parent,) = [run for run in tracked if "mlflow.parentRunId" not in run.data.tags]
    nested = {run.info.run_name: run for run in tracked if run is not parent}
    assert set(nested) == {row.name for row in result.candidates}
    assert {run.data.tags["mlflow.parentRunId"] for run in nested.values()} == {parent.info.run_id}
    assert {run.info.status for run in tracked} == {"FINISHED"}

    for row in result.candidates:
        data = nested[row.name].data
        assert data.metrics["cer"] == row.metrics["cer"]
        assert data.metrics["exact"] == row.metrics["exact"]
        assert data.metrics["cer.device.fax"] == row.slices["device"]["fax"].value
        assert ("cer.delta" in data.metrics) == (row.kind != "baseline")
        assert data.params["onnx_sha256"] == row.sha256
        assert data.params["model_sha256"] == result.model.sha256
        assert data.params["calibration_sha256"] == result.calibration.sha256
    (mse,) = [row for row in result.candidates if row.name == "mse"]
    assert nested["mse"].data.metrics["cer.delta"] == mse.delta
    assert parent.data.params["version.onnxruntime"] == result.environment["onnxruntime"]
    assert parent.data.tags["calib.verdict"] == result.verdict.headline
    assert parent.data.tags["calib.decision"] == result.verdict.decision
    assert result.evidence.bound is not None
    assert parent.data.metrics["cer.drop_most"] == result.evidence.bound.most

    client = MlflowClient(tracking_uri=server)
    for run_id, name, original in (
        (parent.info.run_id, "study.json", folder / "study.json"),
        (parent.info.run_id, "study.toml", runs.parent / "study.toml"),
        (parent.info.run_id, "report/index.html", folder / "report" / "index.html"),
        (nested["mse"].info.run_id, "scales.json", folder / "candidates" / "mse" / "scales.json"),
        (nested["mse"].info.run_id, "model.int8.onnx", folder / "candidates" / "mse" / "model.int8.onnx"),
    ):
        assert Path(client.download_artifacts(run_id, name, str(tmp_path))).read_bytes() == original.read_bytes()
    held = {file.path for file in client.list_artifacts(nested["mse"].info.run_id)}
    assert "evaluation.json" not in held, "the study does not include samples"


def test_a_second_run_records_nothing(server: str, runs: Path, monkeypatch: pytest.MonkeyPatch, calib) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    command = ("run", runs.parent / "study.toml", "--runs", runs)
    assert calib(*command).status == 0
    before = {run.info.run_id for run in recorded(server)}
    assert calib(*command).status == 0
    assert {run.info.run_id for run in recorded(server)} == before != set()


def test_without_a_server_the_runs_folder_holds_the_store(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calib
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    answer = calib("run", runs.parent / "study.toml", "--runs", runs)
    assert answer.status == 0, answer.err
    store = f"sqlite:///{runs / 'mlflow.db'}"
    assert store in answer.out
    tracked = recorded(store)
    assert len(tracked) == 7
    assert all(run.info.artifact_uri.startswith((runs / "mlflow-artifacts").as_uri()) for run in tracked)
    assert list(tmp_path.iterdir()) == [], "nothing below the current folder"


def test_a_server_that_is_not_there_costs_a_message_and_not_the_run(
    server: str, runs: Path, monkeypatch: pytest.MonkeyPatch, calib
) -> None:
    command = ("run", runs.parent / "study.toml", "--runs", runs)
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:s3cret-word@127.0.0.1:9/base")
    start = time.monotonic()
    answer = calib(*command)
    assert time.monotonic() - start < 60
    assert_refused(answer, "http://127.0.0.1:9/base failed", "run the study again")
    folder = only_run(runs)
    files = [path for path in runs.parent.rglob("*") if path.is_file() and b"s3cret-word" in path.read_bytes()]
    assert files == []
    assert "s3cret-word" not in answer.out + answer.err
    assert load_result(folder / "study.json").tracking_uri == "http://127.0.0.1:9/base"
    assert (folder / "report" / "index.html").is_file()

    before = len(recorded(server))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    assert calib(*command).status == 0
    assert len(recorded(server)) == before + 7


def test_a_password_is_used_and_not_written_down(
    server: str, runs: Path, monkeypatch: pytest.MonkeyPatch, calib
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.replace("127.0.0.1", "user:s3cret-word@localhost"))
    before = len(recorded(server))
    answer = calib("run", runs.parent / "study.toml", "--runs", runs)
    assert answer.status == 0, answer.err
    assert len(recorded(server)) == before + 7
    assert "s3cret-word" not in answer.out + answer.err
    assert not [path for path in runs.parent.rglob("*") if path.is_file() and b"s3cret-word" in path.read_bytes()]
    assert not [run for run in recorded(server) if "s3cret-word" in str(run.to_dictionary())]


@pytest.mark.parametrize("uri", ["nonsense://host", "http://[", "sqlite:////proc/none/mlflow.db", "sqlite:///{text}"])
def test_an_address_that_is_none(uri: str, runs: Path, monkeypatch: pytest.MonkeyPatch, calib) -> None:
    text = runs.parent / "recipe.toml"  # a file, and not a database
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(text=text))
    assert_refused(calib("run", runs.parent / "study.toml", "--runs", runs), "MLflow at", "run the study again")


def test_what_is_shown_of_an_address() -> None:
    for uri, shown in (
        ("http://host:5000/x", "http://host:5000/x"),
        ("https://me:pass@host/x", "https://host/x"),
        ("https://token@host", "https://host"),
        ("http://me:pa/s@s@host/x", "http://host/x"),
        ("postgresql://me:pass@db/mlflow?sslpassword=x", "postgresql://db/mlflow"),
        ("sqlite:////runs/a@b/mlflow.db", "sqlite:////runs/a@b/mlflow.db"),
    ):
        assert without_secrets(uri) == shown
