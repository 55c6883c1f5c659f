"""Experiment trackers by name: ``cml.trackers.get("wandb(project=poses)")``.

A tracker gets the metrics and pictures of a run during training, and those of its evaluation later. The run's name
there is derived from its folder, so that a resumed run continues the same entry.
"""

import hashlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

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
    def of(cls, folder: Path | None, config: Mapping[str, Any]) -> Self:
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
        "tensorboard": "cml.trackers.known:TensorBoard",
        "wandb": "cml.trackers.known:WandB",
        "mlflow": "cml.trackers.known:MLflow",
        "trackio": "cml.trackers.known:Trackio",
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

    def tell(self, method: str, *arguments: object) -> None:
        """Call a method of the tracker."""
        if self._tracker is None:
            return
        try:
            getattr(self._tracker, method)(*arguments)
        except Exception as error:
            kind, said = type(self._tracker).__name__, " ".join(str(error).split())[:300]
            self._tracker = None
            warnings.warn(
                f"The tracker {kind} failed and is no longer used: {type(error).__name__}: {said}", stacklevel=2
            )
