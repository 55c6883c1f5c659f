"""A lock file: one process at a time works on a folder."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cml.errors import UserError
from cml.storage import system

_AGAIN = 0.02  # seconds between two attempts
_held: set[int] = set()  # descriptors of the locks of this process


@contextlib.contextmanager
def exclusive_lock(
    path: Path,
    subject: str,
    *,
    wait: bool = False,
    patience: float = 0.0,  # otherwise, seconds to wait for it
) -> Iterator[IO[bytes]]:
    """Hold a lock on a file, so that one process at a time works on something.

    The lock ends with the process; only the file stays. Forked processes do not hold it. A link in the place of the
    file is not followed.

    The locked file may hold content, such as the journal of a job, and is opened to read and append. The library
    filelock does not fit: its locks empty the file in many versions (3.12 and 3.20 open it with ``O_TRUNC``, 4.2 no
    longer does), open it without ``O_APPEND``, and delete it at the end on Windows; its import takes 30 ms.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            path.parent.mkdir(exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | system.NO_FOLLOW | system.PLAIN
            file = os.fdopen(os.open(path, flags, 0o666), "a+b")
        except FileNotFoundError:  # the process that was here has just deleted the folder
            if not path.parent.parent.exists():
                raise
            continue
        with file:
            try:
                system.lock(file.fileno(), wait=wait)
                if not os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    continue
            except FileNotFoundError:
                continue
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(_AGAIN)
                    continue
                raise UserError(
                    f"Another process is working on {subject} (it holds {path}). Wait for it to end or stop it."
                ) from None
            _held.add(file.fileno())
            try:
                yield file
                return
            finally:
                _held.discard(file.fileno())


def _release_in_fork() -> None:
    """Release the locks in a forked process, or they would be held until it ends too."""
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor in _held:
        os.dup2(null, descriptor, inheritable=False)  # the file object still believes in its descriptor
    os.close(null)
    _held.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_release_in_fork)
