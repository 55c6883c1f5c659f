"""Stopping a run on SIGINT (Ctrl-C), SIGTERM or SIGHUP, after the current step and a checkpoint; again, at once."""
# An ignored SIGHUP, as under nohup, stays ignored. All processes of a run end if one of them gets a signal.

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows lacks it
SIGNALS = (signal.SIGINT, signal.SIGTERM, HANG_UP)
ECHO = 1.0  # seconds in which a signal counts as a repetition: a scheduler and torchrun both send it


class StopRequest:
    """A request to stop; ``made`` is True from the first signal on."""

    def __init__(self) -> None:
        self.made = False
        self._heard = 0.0

    def hear(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.made:
            if time.monotonic() - self._heard < ECHO:
                return
            raise KeyboardInterrupt
        self.made, self._heard = True, time.monotonic()
        with contextlib.suppress(OSError):  # the terminal may be gone; print may be busy
            os.write(2, b"\nstopping after this step, with a checkpoint; once more to stop at once\n")


@contextlib.contextmanager
def heard(listen: bool = True) -> Iterator[StopRequest]:
    """Handle signals while the block runs, unless ``listen`` is False; the former handlers are restored after it."""
    request = StopRequest()
    if not listen or threading.current_thread() is not threading.main_thread():
        yield request
        return
    ignored = {HANG_UP} if signal.getsignal(HANG_UP) is signal.SIG_IGN else set()
    before = {number: signal.signal(number, request.hear) for number in set(SIGNALS) - ignored}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
