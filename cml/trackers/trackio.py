"""Trackio as a tracker (extra ``trackio``); its interface is that of Weights & Biases."""

from pathlib import Path

from cml.trackers.tracker import TrackedRun
from cml.trackers.wandb import WandB


class Trackio(WandB):
    """A run in a ``project`` of Trackio: a local database that ``trackio show`` draws, or a Hugging Face Space.

    Args:
        project: Name of the project.

    Raises:
        UserError: The library is not installed.
    """

    advice = ""
    _name = "trackio"

    def begin(self, run: TrackedRun) -> None:
        """Open the run, or resume it."""
        self._open(run, name=f"{run.name}-{run.key[:6]}")

    def log_image(self, name: str, path: Path) -> None:
        """Add an image."""
        self._run.log({name: self._library.Image(path)}, step=self._last_step)
