"""MLflow: the only module that imports it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from calib.errors import CalibError, MissingDependencyError
from calib.tracking import TrackedRun

if TYPE_CHECKING:
    from mlflow import MlflowClient


class MlflowTracker:
    """Records into MLFLOW_TRACKING_URI, or into SQLite below `root` where that is not set."""

    def __init__(self, root: Path) -> None:
        """Choose the store; nothing is written yet.

        Raises:
            MissingDependencyError: mlflow is not installed.
        """
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise MissingDependencyError("tracking needs mlflow: pip install 'calib[mlflow]'") from error
        self.uri = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(root / 'mlflow.db').resolve()}"
        self._artifacts = (root / "mlflow-artifacts").resolve()
        root.mkdir(parents=True, exist_ok=True)
        self._client: MlflowClient = MlflowClient(tracking_uri=self.uri)

    def record(self, experiment: str, parent: TrackedRun, nested: Sequence[TrackedRun]) -> str:
        """Record a study; the parent is marked finished last, so that an unfinished one is visible as such.

        Raises:
            CalibError: the store cannot be reached or refuses.
        """
        from mlflow.exceptions import MlflowException

        try:
            experiment_id = self._experiment(experiment)
            parent_id = self._start(experiment_id, parent, {})
            for run in nested:
                run_id = self._start(experiment_id, run, {"mlflow.parentRunId": parent_id})
                self._client.set_terminated(run_id)
            self._client.set_terminated(parent_id)
        except MlflowException as error:
            raise CalibError(
                f"MLflow at {self.uri.partition('@')[2] or self.uri} failed: {error.message}; the run folder is complete, "
                "run the study again to track it"
            ) from error
        return str(parent_id)

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        # A server decides itself where artifacts go; a local store would put them below the current folder.
        local = self.uri.startswith("sqlite:")
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
