"""The interface of an experiment tracker, and the run as a tracker sees it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

_NUMBERED = re.compile(r"(seed|dimension)-\d+")


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker sees it.

    Attributes:
        name: A readable name: the folder's, with its parents' if it is one of several seeds or dimensions.
        key: A unique id, the same whenever the run of this folder is opened.
        folder: The run folder; None for a run without one.
        config: The options, as JSON can hold them.

    Example:
        >>> TrackedRun(name="mine", key="3f2a", folder=None, config={"seed": 0}).name
        'mine'
    """

    name: str
    key: str
    folder: Path | None
    config: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path | None, config: Mapping[str, Any]) -> Self:
        """Name the run in a folder.

        Args:
            folder: The run folder; None for a run without one.
            config: The options.

        Returns:
            The run, with the same key for the same folder.
        """
        place = "" if folder is None else str(folder.resolve())
        key = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:16]
        parts = [] if folder is None else [folder.name, *(parent.name for parent in folder.parents)]
        own = next((count for count, part in enumerate(parts, 1) if not _NUMBERED.fullmatch(part)), 0)
        return cls("/".join(parts[:own][::-1]) or "run", key, folder, config)


class Tracker(Protocol):
    """The interface of a tracker.

    The methods of a tracker are called one after another during training, so that they should only hand over what is to
    be sent; ``end`` waits until it is, for five minutes at most. An error becomes a warning, and training continues
    without the tracker. A class may have an attribute ``advice``: the last sentence of that warning, on what to do
    without the server.

    Example:
        >>> class Printer(Tracker):  # a tracker of one's own
        ...     def log(self, step, numbers, /):
        ...         print(step, numbers)
        >>> Printer().log(10, {"loss": 0.5})
        10 {'loss': 0.5}
    """

    def begin(self, run: TrackedRun, /) -> None:
        """Open the run, for the first time or again.

        Args:
            run: The run; its key tells whether it was opened before.
        """

    def log(self, step: int, numbers: Mapping[str, float], /) -> None:
        """Add the metrics of a step.

        Args:
            step: Steps done.
            numbers: The metrics by name.
        """

    def log_image(self, name: str, path: Path, /) -> None:
        """Add an image.

        Args:
            name: Its title.
            path: A PNG file.
        """

    def end(self) -> None:
        """Close the run."""
