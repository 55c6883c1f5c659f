"""Signals that end a command: all of them give its work the chance to be kept."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the block as SIGINT does, outside of which they end the process.

    A signal that somebody ignores, as nohup does, or handles is left alone.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    known = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}  # Windows has no SIGHUP
    known = known if threading.current_thread() is threading.main_thread() else set()
    ours = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
