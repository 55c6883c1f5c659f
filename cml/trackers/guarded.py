"""A tracker that never fails a run: the first error of its calls becomes a warning, and the end has a time limit.

The libraries of trackers send in threads of their own, so that a call seldom waits for a server. Only the end of a run
waits until all is sent, in a thread that is left behind after ``END_LIMIT``.
"""

import threading
import warnings
from collections.abc import Mapping
from pathlib import Path

from cml.console.messages import say
from cml.errors import UserError
from cml.registry import Choice
from cml.trackers.tracker import TrackedRun, Tracker

END_LIMIT = 300.0  # seconds after the last step until all has to be sent
_SILENT_WAIT = 3.0  # seconds of waiting at the end without a message
_DEEDS = {
    "begin": "opening the run",
    "log": "sending metrics",
    "log_image": "sending an image",
    "end": "closing the run",
}


class GuardedTracker(Tracker):
    """A tracker that never fails, and whose end takes at most ``END_LIMIT`` seconds.

    After a failure the rest of the run is not sent; the next ``begin`` tries again.

    Args:
        tracker: The tracker, or its name and settings as on the command line.

    Raises:
        UserError: The tracker is unknown, or its library is not installed.
    """

    def __init__(self, tracker: str | Tracker) -> None:
        self._name = Choice.parse(tracker).name if isinstance(tracker, str) else type(tracker).__name__
        self._tracker = None if isinstance(tracker, str) else tracker
        self._is_open = False
        if isinstance(tracker, str):
            from cml.trackers import get

            try:
                self._tracker = get(tracker)
            except UserError:
                raise
            except (Exception, SystemExit) as error:
                self._tell(_fault("starting it", error), level=3)

    def begin(self, run: TrackedRun, /) -> None:
        """Open the run, for the first time or again."""
        self._is_open = self._tracker is not None
        self._call("begin", run)

    def log(self, step: int, numbers: Mapping[str, float], /) -> None:
        """Add the metrics of a step."""
        self._call("log", step, dict(numbers))

    def log_image(self, name: str, path: Path, /) -> None:
        """Add an image."""
        self._call("log_image", name, path)

    def end(self) -> None:
        """Close the run; wait until all is sent, within the limit."""
        faults: list[str] = []
        closing = threading.Thread(
            target=lambda: faults.append(self._try("end")), name=f"end of {self._name}", daemon=True
        )
        closing.start()
        closing.join(min(_SILENT_WAIT, END_LIMIT))
        if closing.is_alive():
            say(f"waiting for the tracker {self._name}, at most {END_LIMIT:g} seconds")
            closing.join(max(0.0, END_LIMIT - _SILENT_WAIT))
        late = f"may lack the end of this run: it was still closing the run {END_LIMIT:g} seconds after the last step."
        self._tell(faults[0] if faults else late, level=3)
        self._is_open = False

    def _call(self, method: str, *arguments: object) -> None:
        self._tell(self._try(method, *arguments))

    def _try(self, method: str, *arguments: object) -> str:
        """Make a call, unless an earlier one of the run has failed; returns what went wrong, or ""."""
        try:
            if self._is_open:
                getattr(self._tracker, method)(*arguments)
        except (Exception, SystemExit) as error:  # not KeyboardInterrupt, which is the user's
            return _fault(_DEEDS[method], error)
        return ""

    def _tell(self, fault: str, level: int = 4) -> None:  # level: of the stack, where the tracker was called
        if fault:
            self._is_open = False
            advice = getattr(type(self._tracker), "advice", "")  # what to do if its server does not answer
            advice = advice if isinstance(advice, str) else ""
            warnings.warn(f"The tracker {self._name} {fault} {advice}".rstrip(), stacklevel=level)


def _fault(deed: str, error: BaseException) -> str:
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".: ")
    return f"failed when {deed} and gets no more of this run: {reason}."
