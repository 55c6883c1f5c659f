"""Signals that stop a training run: SIGINT (Ctrl-C), SIGTERM and SIGHUP end it after the current step.

A run with a folder writes a checkpoint first. One without heeds only SIGINT, and only where Python's own handler would
raise ``KeyboardInterrupt``. Another signal, more than a second later, stops at once; a run with a folder then continues
from an earlier checkpoint. An ignored SIGHUP, as under nohup, stays ignored. All processes of a run end if one of them
gets a signal. Only the main thread of a process can handle signals; in other threads nothing changes.
"""

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
    """Whether a signal has asked the run to stop."""

    def __init__(self, announcement: str) -> None:
        self.is_set = False  # True from the first signal on
        self._announcement = announcement
        self._received = 0.0  # time of the first signal

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.is_set:
            if time.monotonic() - self._received < ECHO:
                return
            raise KeyboardInterrupt
        self.is_set = True
        self._received = time.monotonic()
        with contextlib.suppress(OSError):  # the terminal may be gone; print may be busy
            os.write(2, f"\n{self._announcement}\n".encode())


@contextlib.contextmanager
def catch_signals(with_checkpoint: bool = True) -> Iterator[StopRequest]:
    """Catch signals while the block runs; the former handlers are restored after it."""
    checkpoint = ", with a checkpoint" if with_checkpoint else ""
    request = StopRequest(f"stopping after this step{checkpoint}; once more to stop at once")
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    if with_checkpoint:
        caught = set(SIGNALS) - ({HANG_UP} if signal.getsignal(HANG_UP) is signal.SIG_IGN else set())
    else:
        caught = {signal.SIGINT} if signal.getsignal(signal.SIGINT) is signal.default_int_handler else set()
    before = {number: signal.signal(number, request.handle) for number in caught}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
