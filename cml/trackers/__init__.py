"""Experiment trackers by name: ``cml.trackers.get("wandb(project=poses)")``.

A tracker gets the metrics and pictures of a run during training, and those of its evaluation later. The run's name
there is derived from its folder, so that a resumed run continues the same entry.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cml.registry import Registry

_NUMBERED = re.compile(r"(seed|dimension)-\d+")


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker sees it.

    Attributes:
        name: A readable name: the folder's, with its parents' if it is one of several seeds or dimensions.
        key: A unique id, the same whenever the run of this folder is opened.
        folder: The run folder; None for a run without one.
        config: The options, as JSON can hold them.
    """

    name: str
    key: str
    folder: Path | None
    config: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path | None, config: Mapping[str, Any]) -> TrackedRun:
        """The run in a folder."""
        place = "" if folder is None else str(folder.resolve())
        key = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:16]
        parts = [] if folder is None else [folder.name, *(parent.name for parent in folder.parents)]
        own = next((count for count, part in enumerate(parts, 1) if not _NUMBERED.fullmatch(part)), 0)
        return cls("/".join(parts[:own][::-1]) or "run", key, folder, config)


class Tracker(Protocol):
    """The interface of a tracker; an error in any method becomes a warning, and training continues without it."""

    def begin(self, run: TrackedRun, /) -> None:
        """Open the run, for the first time or again."""

    def log(self, step: int, numbers: Mapping[str, float], /) -> None:
        """Add the metrics of a step, by name."""

    def picture(self, name: str, path: Path, /) -> None:
        """Add a PNG."""

    def end(self) -> None:
        """Close the run."""


registry: Registry[Tracker] = Registry(
    "tracker",
    {
        "tensorboard": "cml.trackers.tensorboard:TensorBoard",
        "wandb": "cml.trackers.wandb:WandB",
        "mlflow": "cml.trackers.mlflow:MLflow",
        "trackio": "cml.trackers.trackio:Trackio",
    },
    group="cml.trackers",
)
get = registry.get
names = registry.names
register = registry.register


class Guarded:
    """A tracker, or its name, that never fails: after its first error, which is a warning, it does nothing."""

    def __init__(self, tracker: str | Tracker) -> None:
        self._tracker: Tracker | None = get(tracker) if isinstance(tracker, str) else tracker

    def begin(self, run: TrackedRun) -> None:
        """Open the run."""
        self._try(lambda tracker: tracker.begin(run))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add the metrics of a step, by name."""
        self._try(lambda tracker: tracker.log(step, numbers))

    def picture(self, name: str, path: Path) -> None:
        """Add a PNG."""
        self._try(lambda tracker: tracker.picture(name, path))

    def end(self) -> None:
        """Close the run."""
        self._try(lambda tracker: tracker.end())

    def _try(self, what: Callable[[Tracker], None]) -> None:
        if self._tracker is None:
            return
        try:
            what(self._tracker)
        except Exception as error:
            kind, said = type(self._tracker).__name__, " ".join(str(error).split())[:300]
            self._tracker = None
            warnings.warn(
                f"The tracker {kind} failed and is no longer used: {type(error).__name__}: {said}", stacklevel=3
            )
