"""stdin, stdout and stderr of the command line, in any state in which a shell or a scheduler hands them over."""

import codecs
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_SPELT, _SPELLINGS = "cml.spelt", {"±": "+-", "\N{EN DASH}": "-", "…": ".."}


class _Forgiving(io.FileIO):
    """A stream whose errors are ignored."""

    def write(self, content: "ReadableBuffer", /) -> int:
        try:
            return super().write(content)
        except OSError:  # the terminal is gone, or the disk of a log is full: the work continues
            return memoryview(content).nbytes


def open_streams() -> None:
    """Open closed streams on the null device, before a file gets their number.

    Errors on stderr are ignored from now on, and characters that a terminal lacks are spelt in ASCII.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number: this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - open until the process ends
    if sys.stderr is sys.__stderr__:
        coding = getattr(sys.stderr, "encoding", "utf-8")
        raw = io.BufferedWriter(_Forgiving(2, "wb", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, coding, errors=_SPELT, line_buffering=True)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors=_SPELT)


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Characters that the terminal lacks, spelt in ASCII."""
    assert isinstance(error, UnicodeEncodeError)
    others = error.object[error.start : error.end]
    known = (_SPELLINGS.get(char) or char.encode("ascii", "backslashreplace").decode() for char in others)
    return "".join(known), error.end


codecs.register_error(_SPELT, _spell)


@contextlib.contextmanager
def flush_results() -> Iterator[None]:
    """Flush stdout at the end of the block."""
    try:
        yield
    finally:
        try:
            sys.stdout.flush()
        except OSError as error:
            # or Python fails on it again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise OSError(error.errno, error.strerror, "standard output") from None


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
