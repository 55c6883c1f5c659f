"""The trackers that cml knows by name; each needs the extra of that name."""

import importlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cml.errors import require_extra
from cml.trackers import TrackedRun


class TensorBoard:
    """Event files in ``folder``, by default RUN/tensorboard, which ``tensorboard --logdir runs`` reads."""

    def __init__(self, folder: str = "") -> None:
        with require_extra("tensorboard", "The tracker 'tensorboard'"):
            from torch.utils.tensorboard import SummaryWriter
        self._folder, self._make, self._last = folder, SummaryWriter, 0

    def begin(self, run: TrackedRun) -> None:
        """Open the event file."""
        self._writer = self._make(self._folder or (run.folder or Path("runs")) / "tensorboard")

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._last = step
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)

    def picture(self, name: str, path: Path) -> None:
        """Add a picture."""
        picture = Image.open(path, formats=["PNG"]).convert("RGB")
        self._writer.add_image(name, np.asarray(picture), self._last, dataformats="HWC")

    def end(self) -> None:
        """Close the event file."""
        self._writer.close()


class MLflow:
    """A run in an ``experiment`` of MLflow; ``MLFLOW_TRACKING_URI`` names the server or store."""

    def __init__(self, experiment: str = "cml") -> None:
        with require_extra("mlflow", "The tracker 'mlflow'"):
            from mlflow import entities, tracking
        self._client, self._metric, self._param = tracking.MlflowClient(), entities.Metric, entities.Param
        self._experiment = experiment

    def begin(self, run: TrackedRun) -> None:
        """Open the run; a tag identifies one that exists."""
        known = self._client.get_experiment_by_name(self._experiment)
        experiment = known.experiment_id if known else self._client.create_experiment(self._experiment)
        if found := self._client.search_runs([experiment], f"tags.`cml.key` = '{run.key}'", max_results=1):
            self._id = found[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        self._id = self._client.create_run(experiment, run_name=run.name, tags={"cml.key": run.key}).info.run_id
        params = [self._param(key, str(value)[:500]) for key, value in run.config.items()]
        self._client.log_batch(self._id, params=params)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        now = int(time.time() * 1000)
        # names may not hold an @
        metrics = [self._metric(name.replace("@", "_at_"), number, now, step) for name, number in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def picture(self, name: str, path: Path) -> None:
        """Add a picture."""
        self._client.log_artifact(self._id, str(path))

    def end(self) -> None:
        """Finish the run."""
        self._client.set_terminated(self._id)


class WandB:
    """A run in a ``project`` of Weights & Biases, which its own variables send elsewhere (``WANDB_MODE=offline``)."""

    _name = "wandb"

    def __init__(self, project: str = "cml") -> None:
        with require_extra(self._name, f"The tracker {self._name!r}"):
            self._library: Any = importlib.import_module(self._name)
        self._project, self._last = project, 0

    def begin(self, run: TrackedRun) -> None:
        """Open the run, or resume it."""
        self._open(run, name=run.name, id=run.key, dir=run.folder)

    def _open(self, run: TrackedRun, **options: object) -> None:
        self._run = self._library.init(project=self._project, resume="allow", config=dict(run.config), **options)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._last = step
        self._run.log(dict(numbers), step=step)

    def picture(self, name: str, path: Path) -> None:
        """Add a picture."""
        self._run.log({name: self._library.Image(str(path))})

    def end(self) -> None:
        """Finish the run."""
        self._run.finish()


class Trackio(WandB):
    """A run in a ``project`` of Trackio: a local database that ``trackio show`` draws, or a Hugging Face Space."""

    _name = "trackio"

    def begin(self, run: TrackedRun) -> None:
        """Open the run, or resume it."""
        self._open(run, name=f"{run.name}-{run.key[:6]}")

    def picture(self, name: str, path: Path) -> None:
        """Add a picture."""
        self._run.log({name: self._library.Image(path)}, step=self._last)
