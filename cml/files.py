"""Writing files and folders so that nothing half-written is ever read as whole.

The one rule: write under a temporary name beside the target, then rename. A killed process leaves the old state (or
none) plus a temporary that no reader looks at. Not for: reading formats, which live with their owners.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cml.errors import DataError, UserError
from cml.json_text import parse_json

PARTIAL = ".partial-"  # every temporary carries it, so that people can tell what a killed run left behind


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}{PARTIAL}", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes files private, a user expects the usual mode
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; rename it to ``path`` when the block ends without an error.

    Raises:
        UserError: ``path`` exists and is not an empty folder; an existing folder is never replaced.
    """
    check_vacant(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}{PARTIAL}", dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())
        os.replace(temporary, path)  # replaces an empty folder, refuses a full one
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def cache_folder() -> Path:
    """Where things that can be computed again are kept: ``$CML_CACHE``, by default ``~/.cache/cml``."""
    return Path(os.environ.get("CML_CACHE") or Path.home() / ".cache" / "cml")


def check_vacant(path: Path) -> None:
    """Raise ``UserError`` unless ``path`` is free: absent or an empty folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} already exists and is not an empty folder. Choose another folder or delete this one.")


@contextlib.contextmanager
def locked(path: Path, what: str, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file ``path`` while the block runs, so that one process at a time works on something.

    The lock goes with the process: one that was killed leaves a file that locks nothing.

    Args:
        path: The lock file; its folder must exist. It stays behind, empty of meaning.
        what: What it guards, for the error: "the run runs/mine".
        wait: Wait until nobody else holds the lock, however long that takes.

    Raises:
        UserError: another process holds the lock.
    """
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise UserError(
                f"Another process is working on {what} (it holds {path}). Wait for it to end or stop it."
            ) from None
        yield


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as readable JSON, atomically. NaN and infinity are refused: they are not JSON."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading; a pipe or a device, which may never end, is refused without waiting for it.

    Raises:
        OSError: it is missing, cannot be read or is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_json(path: Path, what: str, *, finite: bool = True) -> Any:  # noqa: ANN401 - any JSON
    """Read a JSON file strictly (json_text.py).

    Args:
        path: The file.
        what: Its purpose, for the error: "the run's config".
        finite: As for ``parse_json``.

    Raises:
        DataError: the file is missing, no file or no sound JSON.
    """
    try:
        with open_regular(path) as file:
            return parse_json(file.read(), finite=finite)
    except FileNotFoundError:
        raise DataError(f"{path} is missing: it should hold {what}.") from None
    except OSError as error:
        raise DataError(f"{path} should hold {what}, but cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path} should hold {what} as JSON, but cannot be parsed: it {error}.") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
