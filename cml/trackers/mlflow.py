"""MLflow as a tracker (extra ``mlflow``)."""

import time
from collections.abc import Mapping
from pathlib import Path

from cml.errors import require_extra
from cml.trackers.tracker import TrackedRun, Tracker


class MLflow(Tracker):
    """A run in an ``experiment`` of MLflow, whose own thread sends the curves.

    ``MLFLOW_TRACKING_URI`` names the server or store.

    Args:
        experiment: Name of the experiment, which is made if there is none.

    Raises:
        UserError: The library is not installed.
    """

    advice = "MLFLOW_TRACKING_URI names another server or store."

    def __init__(self, experiment: str = "cml") -> None:
        with require_extra("mlflow", "The tracker 'mlflow'"):
            from mlflow import entities, tracking
        self._client = tracking.MlflowClient()
        self._metric, self._param = entities.Metric, entities.Param
        self._experiment = experiment

    def begin(self, run: TrackedRun) -> None:
        """Open the run; a tag identifies one that exists."""
        experiment = self._client.get_experiment_by_name(self._experiment)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(self._experiment)
        earlier = self._client.search_runs([experiment_id], f"tags.`cml.key` = '{run.key}'", max_results=1)
        if earlier:
            self._id = earlier[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        self._id = self._client.create_run(experiment_id, run_name=run.name, tags={"cml.key": run.key}).info.run_id
        params = [self._param(key, str(value)[:500]) for key, value in run.config.items()]
        self._client.log_batch(self._id, params=params)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        now = int(time.time() * 1000)
        # names may not hold an @
        metrics = [self._metric(name.replace("@", "_at_"), number, now, step) for name, number in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics, synchronous=False)

    def log_image(self, name: str, path: Path) -> None:
        """Add an image."""
        self._client.log_artifact(self._id, str(path))

    def end(self) -> None:
        """Wait until all is sent, and finish the run."""
        self._client.set_terminated(self._id)
