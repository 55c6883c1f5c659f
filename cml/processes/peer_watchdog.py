"""Notices within 30 s that another process of the run died, hangs or failed, and stops this one with a message.

Broken connections of gloo do not name a process, one that hangs breaks none, and a time limit of collectives would end
a run in which one reads a large data set. So a thread of each leaves signs of life in their shared store. Without it,
``test_without_torchrun_the_others_stop_too_and_say_whose_fault_it_was`` in tests/training/test_distributed.py fails.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from datetime import timedelta
from typing import Any, NamedTuple

BEAT = 1.0  # seconds between two signs of life
SILENCE = 20.0  # seconds without one after which a process counts as lost; a busy one has a thread for them
SILENCE_AFTER_BREAK = 6.0  # the same, once a connection to a process has broken
GRACE = 3.0  # seconds that other processes wait: torchrun takes the first to end for the cause
HEARING = 2.0  # seconds that a failed process stays until the others know of it: with it, the store may end
_ASK_AGAIN = 0.02  # seconds between two questions whether they do
_DONE, _INTERRUPTED = "done", "interrupted"


class Verdict(NamedTuple):
    """This process must stop.

    Attributes:
        message: Why; empty if this machine has printed it.
        code: The exit code.
    """

    message: str
    code: int = 1


class RankWatch:
    """Signs of life of this process and of the others, in the store of the run.

    Args:
        store: The key-value store of torch.distributed that all processes share.
        rank: The rank of this process.
        size: The number of processes.
        host: The name of this machine; by default, that of the system.
    """

    def __init__(self, store: Any, rank: int, size: int, host: str | None = None) -> None:  # noqa: ANN401 - torch's
        self._store, self._rank, self._size = store, rank, size
        self._host = socket.gethostname() if host is None else host
        self._beats = 0
        self._seen: dict[int, tuple[str, float]] = {}  # for each other rank its last sign, and the time when it changed
        self._silence = SILENCE
        self._over = threading.Event()
        self._has_reported = False
        store.set_timeout(timedelta(seconds=SILENCE))
        store.set(f"place/{rank}", f"process {os.getpid()} on {self._host}")
        store.set(f"life/{rank}", "0")
        self._thread = threading.Thread(target=self._watch, name="rank watch", daemon=True)

    def start(self) -> None:
        """Begin to watch; every process must have made its watch."""
        self._thread.start()

    def finish(self) -> None:
        """Stop watching, once the others know of a failure; they will not miss this process."""
        self._over.set()
        if self._thread.is_alive():  # a return from the store's C++ code while Python exits would abort the process
            self._thread.join(SILENCE)
        with contextlib.suppress(RuntimeError):  # the process that held the store may have ended
            if self._has_reported:
                self._wait_until_all_know()
            self._store.set(f"life/{self._rank}", _DONE)

    def report_failure(self, error: BaseException) -> bool:
        """Tell the others why this process stops.

        Args:
            error: The error.

        Returns:
            False if another process has already reported a failure.
        """
        self._over.set()
        kind = _INTERRUPTED if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
        with contextlib.suppress(RuntimeError):  # then only this error can be reported
            self._store.set(f"knows/{self._rank}", "")
            self._has_reported = True
            if self._store.add("failures", 1) > 1:
                return False
            self._store.set("failure", "\n".join([str(self._rank), self._host, kind]))
        return True

    def _wait_until_all_know(self) -> None:
        """Wait until the others know of the failure or have ended, but not for those that hang."""
        deadline = time.monotonic() + HEARING
        unaware = {*range(self._size)} - {self._rank}
        while unaware and time.monotonic() < deadline:
            unaware = {rank for rank in unaware if not self._knows(rank)}
            time.sleep(_ASK_AGAIN)

    def _knows(self, rank: int) -> bool:
        return bool(self._store.check([f"knows/{rank}"])) or self._store.get(f"life/{rank}").decode() == _DONE

    def connection_broke(self) -> None:
        """Wait until the watch finds the lost process, which ends this one; returns if none is lost."""
        self._silence = min(self._silence, SILENCE_AFTER_BREAK)
        self._over.wait(SILENCE)

    def look(self, now: float) -> Verdict | None:
        """Leave a sign of life and read those of the others.

        Args:
            now: The time of a monotonic clock in seconds.

        Returns:
            Why this process must stop; None if all is well.
        """
        self._beats += 1
        try:
            self._store.set(f"life/{self._rank}", str(self._beats))
            if self._store.check(["failure"]):
                self._store.set(f"knows/{self._rank}", "")
                return self._failure(self._store.get("failure").decode())
            for rank in {*range(self._size)} - {self._rank}:
                sign = self._store.get(f"life/{rank}").decode()
                if rank not in self._seen or self._seen[rank][0] != sign:
                    self._seen[rank] = (sign, now)
            silent = {rank: now - since for rank, (sign, since) in self._seen.items() if sign != _DONE}
            longest = max(silent, key=silent.__getitem__, default=None)
            if longest is None or silent[longest] <= self._silence:
                return None
            place = self._store.get(f"place/{longest}").decode()
            is_reported = self._store.add(f"told/{self._host}", 1) > 1
        except RuntimeError as error:
            why = str(error).splitlines()[0]
            return Verdict(f"The process that started this run no longer answers ({why}). {_GO_ON}")
        if is_reported:
            return Verdict("")
        return Verdict(
            f"Rank {longest} ({place}) has died or hangs: no sign of life for {silent[longest]:.0f} s. The other "
            f"processes have stopped. {_GO_ON}"
        )

    def _failure(self, text: str) -> Verdict:
        rank, host, reason = text.split("\n", 2)
        if reason == _INTERRUPTED:
            return Verdict("", 130)
        if host == self._host:  # it has printed that itself, on the same screen
            return Verdict("")
        return Verdict(f"Stopped, because rank {rank} on {host} has failed. {reason}")

    def _watch(self) -> None:
        while not self._over.wait(BEAT):
            verdict = self.look(time.monotonic())
            if verdict is not None and not self._over.is_set():
                with contextlib.suppress(OSError, ValueError):  # the reader of the output is gone too
                    if verdict.message:
                        print(f"error: {verdict.message}", file=sys.stderr, flush=True)
                    if self._over.wait(GRACE):
                        return  # the main thread has ended by itself
                os._exit(verdict.code)  # the main thread may wait in a collective that never ends


_GO_ON = "Continue from the last checkpoint with --resume, with any number of processes."
