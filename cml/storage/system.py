"""File operations in which operating systems differ: locks, flags, names, reading and writing at an offset.

Without any one of the branches for Windows, ``test_training_locks_and_jobs_do_without_what_windows_lacks`` in
tests/platforms/test_platforms.py fails.
"""

import contextlib
import importlib
import importlib.util
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# flags of os.open; 0 where a system lacks them
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0)
PLAIN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

_posix: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None
OPEN_FILES_MOVE = _posix is not None  # whether an open file can be renamed and a folder opened; not on Windows
_OPEN_FILES = Path("/dev/fd")  # under their numbers, where a system shows them

_FAR = 1 << 40  # the byte that is locked on Windows, where nobody else can read a locked byte
_AGAIN = 0.1  # seconds
_one_at_a_time = threading.Lock()


def lock(descriptor: int, *, wait: bool) -> None:
    """Lock an open file until it is closed."""
    if _posix is not None:
        _posix.flock(descriptor, _posix.LOCK_EX | (0 if wait else _posix.LOCK_NB))
        return
    windows: Any = importlib.import_module("msvcrt")
    os.lseek(descriptor, _FAR, os.SEEK_SET)
    while True:
        try:
            return windows.locking(descriptor, windows.LK_NBLCK, 1)  # type: ignore[no-any-return]
        except PermissionError as error:
            if not wait:
                raise BlockingIOError(error.errno, error.strerror) from None
        time.sleep(_AGAIN)


def write_at(
    descriptor: int,
    content: bytes | memoryview,
    at: int,  # the offset in bytes
) -> int:  # the number of bytes written
    """Write at an offset, as ``os.pwrite`` does; thread-safe."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, content, at)
    with _one_at_a_time:
        os.lseek(descriptor, at, os.SEEK_SET)
        return os.write(descriptor, content)


def read_at(
    descriptor: int,
    into: memoryview,
    at: int,  # the offset in bytes
) -> int:  # the number of bytes read
    """Read into a buffer from an offset, as ``os.preadv`` does; thread-safe."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [into], at)
    with _one_at_a_time:
        os.lseek(descriptor, at, os.SEEK_SET)
        content = os.read(descriptor, len(into))
    into[: len(content)] = content
    return len(content)


def replace(source: Path, target: Path) -> None:
    """Rename a file or folder; an existing file or empty folder is replaced."""
    if not OPEN_FILES_MOVE and source.is_dir() and target.is_dir():
        with contextlib.suppress(OSError):  # it is not empty, so that the next line fails
            target.rmdir()
    os.replace(source, target)


@contextlib.contextmanager
def other_name(path: Path) -> Iterator[str]:
    """Name a file in plain text: by its open descriptor, or as a copy, as on Windows."""
    if OPEN_FILES_MOVE and _OPEN_FILES.is_dir():
        with path.open("rb") as file:
            yield str(_OPEN_FILES / str(file.fileno()))
        return
    descriptor, copy = tempfile.mkstemp()
    os.close(descriptor)
    try:
        yield shutil.copyfile(path, copy)
    finally:
        with contextlib.suppress(PermissionError):  # Windows keeps what the block has left open
            os.unlink(copy)
