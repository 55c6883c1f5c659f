"""Trackio: a local database that ``trackio show`` draws, or a Hugging Face Space."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cml.errors import extra_needed
from cml.trackers import TrackedRun


class Trackio:
    """A run in a ``project`` of Trackio."""

    def __init__(self, project: str = "cml") -> None:
        with extra_needed("trackio", "The tracker 'trackio'"):
            import trackio
        self._trackio: Any = trackio  # its types are incomplete
        self._project, self._last = project, 0

    def begin(self, run: TrackedRun) -> None:
        """Open the run, or resume it."""
        name = f"{run.name}-{run.key[:6]}"
        self._run = self._trackio.init(project=self._project, name=name, resume="allow", config=dict(run.config))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._last = step
        self._run.log(dict(numbers), step=step)

    def picture(self, name: str, path: Path) -> None:
        """Add a picture."""
        self._run.log({name: self._trackio.Image(path)}, step=self._last)

    def end(self) -> None:
        """Finish the run."""
        self._run.finish()
