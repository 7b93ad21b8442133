"""MLflow: the only module that imports it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from calib import files
from calib.errors import CalibError, MissingDependencyError
from calib.tracking import TrackedRun


class MlflowTracker:
    """Records into MLFLOW_TRACKING_URI, or into SQLite below `root` where that is not set."""

    def __init__(self, root: Path) -> None:
        """Choose the store; nothing is written yet.

        Raises:
            MissingDependencyError: mlflow is not installed.
        """
        if importlib.util.find_spec("mlflow") is None:
            raise MissingDependencyError("tracking needs mlflow: pip install 'calib[mlflow]', or run with --no-track")
        # MLflow waits more than four minutes for a server that is not there, prints URLs among our answers, and reports
        # its use to its makers, which is not ours to allow.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        self._store = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(root / 'mlflow.db').resolve()}"
        self.uri = without_secrets(self._store)
        self._artifacts = (root / "mlflow-artifacts").resolve()
        files.make_folder(root)

    def record(self, experiment: str, parent: TrackedRun, nested: Sequence[TrackedRun]) -> str:
        """Record a study; the parent is marked finished last, so that an unfinished one is visible as such.

        Raises:
            CalibError: the store cannot be reached or refuses.
        """
        from mlflow import MlflowClient

        try:
            self._client: MlflowClient = MlflowClient(tracking_uri=self._store)
            experiment_id = self._experiment(experiment)
            parent_id = self._start(experiment_id, parent, {})
            for run in nested:
                run_id = self._start(experiment_id, run, {"mlflow.parentRunId": parent_id})
                self._client.set_terminated(run_id)
            self._client.set_terminated(parent_id)
        except Exception as error:  # a store raises what its network, driver or file system does
            problem = " ".join(str(error).replace(self._store.rstrip("/"), self.uri.rstrip("/")).split())
            raise CalibError(
                f"MLflow at {self.uri} failed: {problem}; the run folder is complete, run the study again to track it"
            ) from None  # the cause holds the address with its password
        return str(parent_id)

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        # A server decides itself where artifacts go; a local store would put them below the current folder.
        local = self._store.startswith("sqlite:")
        return str(self._client.create_experiment(name, self._artifacts.as_uri() if local else None))

    def _start(self, experiment_id: str, run: TrackedRun, tags: Mapping[str, str]) -> str:
        from mlflow.entities import Metric, Param, RunTag

        created = self._client.create_run(experiment_id, tags={**run.tags, **tags}, run_name=run.name)
        run_id = str(created.info.run_id)
        now = int(created.info.start_time)
        self._client.log_batch(
            run_id,
            metrics=[Metric(key, value, now, 0) for key, value in run.metrics.items() if value == value],
            params=[Param(key, value) for key, value in run.parameters.items()],
            tags=[RunTag("calib.artifacts", ", ".join(path.name for path in run.artifacts))],
        )
        for artifact in run.artifacts:
            if artifact.is_dir():
                self._client.log_artifacts(run_id, str(artifact), artifact.name)
            else:
                self._client.log_artifact(run_id, str(artifact))
        return run_id


def without_secrets(uri: str) -> str:
    """Return a URI without user, password and query: what may be written down."""
    scheme, separator, rest = uri.partition("://")
    if rest.startswith("/"):  # a path, as in sqlite:///runs/mlflow.db
        return uri
    return scheme + separator + rest.rpartition("@")[2].partition("?")[0]
