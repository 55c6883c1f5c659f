"""Weights & Biases as a tracker (extra ``wandb``)."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cml.errors import require_extra
from cml.trackers.tracker import TrackedRun, Tracker


class WandB(Tracker):
    """A run in a ``project`` of Weights & Biases, which its own variables send elsewhere (``WANDB_MODE=offline``).

    Args:
        project: Name of the project.

    Raises:
        UserError: The library is not installed.
    """

    advice = "WANDB_MODE=offline keeps the run on this machine."
    _name = "wandb"

    def __init__(self, project: str = "cml") -> None:
        with require_extra(self._name, f"The tracker {self._name!r}"):
            self._library: Any = importlib.import_module(self._name)
        self._project = project
        self._last_step = 0

    def begin(self, run: TrackedRun) -> None:
        """Open the run, or resume it."""
        self._open(run, name=run.name, id=run.key, dir=run.folder)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._last_step = step
        self._run.log(dict(numbers), step=step)

    def log_image(self, name: str, path: Path) -> None:
        """Add an image."""
        self._run.log({name: self._library.Image(str(path))})

    def end(self) -> None:
        """Finish the run."""
        self._run.finish()

    def _open(self, run: TrackedRun, **options: object) -> None:
        self._run = self._library.init(project=self._project, resume="allow", config=dict(run.config), **options)
