"""A tracker beside training: a thread of its own makes its calls in order, and its first failure becomes a warning.

Training only puts calls in a queue, so that a server that is slow, silent or gone costs no step. The thread is no
process, because trackers are objects of the user that need not be picklable.
"""

import functools
import queue
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

from cml.console.messages import say
from cml.errors import UserError
from cml.registry import Choice
from cml.trackers.tracker import TrackedRun, Tracker

START_WAIT = 5.0  # seconds that training waits for the first calls; most failures are told, most imports done by then
CALL_LIMIT = 60.0  # seconds that a call may take; a client that tries again for longer has a server that is gone
END_LIMIT = 300.0  # seconds after the last step for the calls that wait
INTERRUPT_LIMIT = 2.0  # the same after an interrupt; the watch of several processes leaves rank 0 three (peer_watchdog)
QUEUE_LIMIT = 10_000  # calls that may wait: a tracker that is 100,000 steps behind will not catch up
_SILENT_WAIT = 3.0  # seconds of waiting at the end without a message
_MAKE = "make_tracker"
_DEEDS = {
    _MAKE: "starting it",
    "begin": "opening the run",
    "log": "sending metrics",
    "log_image": "sending an image",
    "end": "closing the run",
}


class GuardedTracker:
    """A tracker that never fails and that nobody waits for, except at the end of a run.

    Its calls return at once. After a failure, or a call that takes too long, the rest of the run is not sent; the next
    ``begin`` tries again, unless that call has still not returned.

    Args:
        tracker: The tracker, or its name and settings as on the command line.

    Raises:
        UserError: The tracker is unknown, or its library is not installed.
    """

    def __init__(self, tracker: str | Tracker) -> None:
        if isinstance(tracker, str):
            self._name = Choice.parse(tracker).name
            self._calls = _Calls(None)
            self._calls.add(_MAKE, functools.partial(self._calls.make_tracker, tracker))
        else:
            self._name = type(tracker).__name__
            self._calls = _Calls(tracker)
        threading.Thread(target=self._calls.make_calls, name=f"tracker {self._name}", daemon=True).start()
        weakref.finalize(self, self._calls.waiting.put, None)  # the thread does not hold this object, and ends with it
        self._wait(START_WAIT)
        if isinstance(self._calls.error, UserError):
            raise self._calls.error

    def begin(self, run: TrackedRun, /) -> None:
        """Open the run, for the first time or again; wait a few seconds for it.

        Args:
            run: The run.
        """
        self._is_usable()  # tells how an earlier run ended
        self._calls.try_again()
        self._call("begin", run)
        self._is_sent(START_WAIT)

    def log(self, step: int, numbers: Mapping[str, float], /) -> None:
        """Add the metrics of a step.

        Args:
            step: Steps done.
            numbers: The metrics by name, of which the tracker gets a copy.
        """
        self._call("log", step, dict(numbers))

    def log_image(self, name: str, path: Path, /) -> None:
        """Add an image.

        Args:
            name: Its title.
            path: A PNG file, which must exist until the run is closed.
        """
        self._call("log_image", name, path)

    def end(self) -> None:
        """Close the run; wait until all is sent, within limits."""
        self._call("end")
        silent_wait = min(_SILENT_WAIT, END_LIMIT)
        if self._is_sent(silent_wait):
            return
        calls = self._calls.count_unmade()
        say(f"waiting for the tracker {self._name}, at most {END_LIMIT:g} seconds: {_count(calls)} left")
        if not self._is_sent(END_LIMIT - silent_wait):
            calls = self._calls.count_unmade()
            self._give_up(
                f"{END_LIMIT:g} seconds after the last step it was still {self._calls.deed}, with {_count(calls)} left"
            )

    def flush(self) -> None:
        """Wait a moment until all is sent, after an interrupt."""
        if not self._is_sent(INTERRUPT_LIMIT):  # the thread goes on sending, if the process lives
            calls = self._calls.count_unmade()
            self._warn(f"may lack the end of this run: {_count(calls)} were left when it stopped.")

    def _call(self, method: str, *arguments: object) -> None:
        if self._is_usable():
            self._calls.add(method, functools.partial(self._calls.call, method, *arguments))

    def _is_sent(self, limit: float) -> bool:
        """Wait until all calls are made; False after ``limit`` seconds, True also if none is made any more."""
        if not self._is_usable():
            return True
        is_done = self._wait(limit)
        return not self._is_usable() or is_done

    def _is_usable(self) -> bool:
        """Whether the tracker takes calls; warn if it has just become clear that it does not."""
        error, self._calls.error = self._calls.error, None
        if error is not None:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300].rstrip(".: ")
            self._warn(f"failed when {self._calls.deed} and gets no more of this run: {reason}. {self._calls.advice}")
        elif self._calls.is_skipping:
            pass
        elif self._calls.seconds() > CALL_LIMIT:
            self._give_up(f"{self._calls.deed} has taken more than {CALL_LIMIT:g} seconds")
        elif self._calls.count_unmade() > QUEUE_LIMIT:
            self._give_up(f"more than {QUEUE_LIMIT:,} calls wait until {self._calls.deed} is done")
        return not self._calls.is_skipping

    def _give_up(self, reason: str) -> None:
        self._calls.is_skipping = True
        self._warn(f"gets no more of this run: {reason}. Check that its server answers. {self._calls.advice}")

    def _warn(self, claim: str) -> None:
        warnings.warn(f"The tracker {self._name} {claim}".rstrip(), stacklevel=4)

    def _wait(self, limit: float) -> bool:
        """Wait until the calls so far are made; False after ``limit`` seconds, or if one takes too long."""
        marker = threading.Event()
        self._calls.waiting.put(marker)
        end = time.monotonic() + limit
        while (left := min(end - time.monotonic(), CALL_LIMIT - self._calls.seconds())) > 0:
            if marker.wait(left + 0.001):
                return True
        return marker.is_set()


def _count(calls: int) -> str:
    return "1 call" if calls == 1 else f"{calls:,} calls"


class _Calls:
    """The calls of a tracker, and how its thread fares with them.

    Args:
        tracker: The tracker; None for one that ``make_tracker`` makes.

    Attributes:
        waiting: Calls that are not made yet, with the names of their methods; events, which are set when reached; None
            at the end.
        deed: The last call that began, in words.
        error: The error of a call, until somebody takes it.
        is_skipping: Whether calls are dropped.
    """

    def __init__(self, tracker: Tracker | None) -> None:
        self.waiting: queue.SimpleQueue[tuple[str, Callable[[], None]] | threading.Event | None] = queue.SimpleQueue()
        self.deed = ""
        self.error: BaseException | None = None
        self.is_skipping = False
        self._tracker = tracker
        self._added = self._passed = 0  # each is written by one thread only
        self._began: float | None = None  # when the call that is being made began

    @property
    def advice(self) -> str:
        """A sentence of the tracker's class on what to do if its server does not answer; empty if it has none."""
        advice = getattr(type(self._tracker), "advice", "")
        return advice if isinstance(advice, str) else ""

    def add(self, method: str, call: Callable[[], None]) -> None:
        """Let the thread make a call after the others.

        Args:
            method: Name of its method.
            call: The call.
        """
        self._added += 1
        self.waiting.put((method, call))

    def make_calls(self) -> None:
        """Make the calls in order, until None comes; the thread's function."""
        while (call := self.waiting.get()) is not None:
            if isinstance(call, threading.Event):
                call.set()
                continue
            if not self.is_skipping:
                self._make_call(*call)
            self._passed += 1

    def make_tracker(self, name: str) -> None:
        """Make the tracker in the thread that calls it, as some libraries demand.

        Args:
            name: Its name and settings.
        """
        from cml.trackers import get

        self._tracker = get(name)

    def call(self, method: str, *arguments: object) -> None:
        """Call a method of the tracker.

        Args:
            method: Name of the method.
            *arguments: Its arguments.
        """
        getattr(self._tracker, method)(*arguments)

    def try_again(self) -> None:
        """Make calls again after a failure, if there is a tracker, and no call of an earlier run is left."""
        if self._tracker is not None and self.count_unmade() == 0:
            self.is_skipping = False

    def seconds(self) -> float:
        """How long the call that is being made has taken so far; 0 if there is none."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def count_unmade(self) -> int:
        """How many calls have not returned."""
        return self._added - self._passed

    def _make_call(self, method: str, call: Callable[[], None]) -> None:
        self.deed = _DEEDS[method]
        self._began = time.monotonic()
        try:
            call()
        except BaseException as error:  # SystemExit too, which would end the thread without a word
            if not self.is_skipping:  # else somebody has given up waiting for this call
                self.error = error
                self.is_skipping = True
        self._began = None
