"""Stopping a training run on request: SIGINT (Ctrl-C), SIGTERM and SIGHUP end it after the step under way.

It leaves a checkpoint. A SIGHUP that somebody ignores, as nohup does, changes nothing.

Of several processes all end when one of them was told to. Another signal, over a second later, stops at once, as any
did before; the run then goes on from an earlier checkpoint. Only the main thread of a process hears signals; elsewhere
nothing changes. Not for: other commands, which stop at once (cli.py).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # which Windows has not
SIGNALS = (signal.SIGINT, signal.SIGTERM, HANG_UP)
ECHO = 1.0  # seconds in which a signal is the one before: a scheduler tells all processes, torchrun tells them again


@contextlib.contextmanager
def heard(listen: bool = True) -> Iterator[StopRequest]:
    """Hear signals while the block runs; afterwards they do again what they did before.

    Args:
        listen: False lets them do what they do.
    """
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


class StopRequest:
    """Whether somebody asked for an end.

    Attributes:
        made: True from the first signal on.
    """

    def __init__(self) -> None:
        self.made = False
        self._heard = 0.0

    def stop(self, step: int, steps: int) -> NoReturn:
        """Stop; the checkpoint is written."""
        raise KeyboardInterrupt(f"the checkpoint of step {step} of {steps} is written")

    def hear(self, number: int, frame: FrameType | None) -> None:
        """What a signal does."""
        if self.made:
            if time.monotonic() - self._heard < ECHO:
                return
            raise KeyboardInterrupt
        self.made, self._heard = True, time.monotonic()
        with contextlib.suppress(OSError):  # the terminal may be gone; print may be busy
            os.write(2, b"\nstopping after this step, with a checkpoint; once more to stop at once\n")
