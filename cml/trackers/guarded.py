"""A tracker that never fails: its first error becomes a warning, and training continues without it."""

import warnings

from cml.trackers.tracker import Tracker


class GuardedTracker:
    """A tracker that after its first error, which is a warning, does nothing.

    Args:
        tracker: The tracker, or its name and settings as on the command line.

    Raises:
        UserError: The tracker is unknown, or its library is not installed.
    """

    def __init__(self, tracker: str | Tracker) -> None:
        from cml.trackers import get

        self._tracker: Tracker | None = get(tracker) if isinstance(tracker, str) else tracker

    def call(self, method: str, *arguments: object) -> None:
        """Call a method of the tracker.

        Args:
            method: Name of the method.
            *arguments: Its arguments.
        """
        if self._tracker is None:
            return
        try:
            getattr(self._tracker, method)(*arguments)
        except Exception as error:
            kind = type(self._tracker).__name__
            message = " ".join(str(error).split())[:300]
            self._tracker = None
            warnings.warn(
                f"The tracker {kind} failed and is no longer used: {type(error).__name__}: {message}", stacklevel=2
            )
