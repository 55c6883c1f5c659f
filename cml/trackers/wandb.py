"""Weights & Biases; its own environment variables say where and whether it sends (``WANDB_MODE=offline``)."""

from collections.abc import Mapping
from pathlib import Path

from cml.errors import extra_needed
from cml.trackers import TrackedRun


class WandB:
    """A run in a ``project`` of Weights & Biases."""

    def __init__(self, project: str = "cml") -> None:
        with extra_needed("wandb", "The tracker 'wandb'"):
            import wandb
        self._wandb, self._project = wandb, project

    def begin(self, run: TrackedRun) -> None:
        """Open the run, or resume it."""
        self._run = self._wandb.init(
            project=self._project, name=run.name, id=run.key, resume="allow", config=dict(run.config), dir=run.folder
        )

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._run.log(dict(numbers), step=step)

    def picture(self, name: str, path: Path) -> None:
        """Add a picture."""
        self._run.log({name: self._wandb.Image(str(path))})

    def end(self) -> None:
        """Finish the run."""
        self._run.finish()
