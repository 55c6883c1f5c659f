"""Writing files and folders so that nothing half-written is ever read as whole.

The one rule: write under a temporary name beside the target, then rename. A killed process leaves the old state (or
none) plus a temporary that no reader looks at, and that the next writer of the same name takes away. Not for: reading
formats, which live with their owners.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from cml.errors import DataError, UserError
from cml.storage import system
from cml.storage.strict_json import parse_json

_held: set[int] = set()  # descriptors of the locks of this process
PARTIAL = ".partial-"  # every temporary carries it, so that people can tell what a killed run left behind


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block ends without an error."""
    with _temporary(path, folder=False) as temporary:
        yield temporary
        force(temporary)
        temporary.chmod(0o666 & ~_umask())  # mkstemp makes files private, a user expects the usual mode


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; rename it to ``path`` when the block ends without an error.

    Raises:
        UserError: ``path`` exists and is not an empty folder; an existing folder is never replaced.
    """
    check_vacant(path)
    with _temporary(path, folder=True) as temporary:
        yield temporary
        temporary.chmod(0o777 & ~_umask())


@contextlib.contextmanager
def _temporary(path: Path, *, folder: bool) -> Iterator[Path]:
    with folder_made(path.parent), contextlib.ExitStack() as held:
        _clear_dead(path)
        temporary, handle = _own_temporary(path, folder=folder)
        if handle is not None:
            held.callback(os.close, handle)
        try:
            with located(path):
                yield temporary
                try:
                    system.replace(temporary, path)  # replaces an empty folder, refuses a full one
                except OSError as error:
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        check_vacant(path)  # another process has just put something there
                    raise
        finally:
            delete(temporary)


@contextlib.contextmanager
def folder_made(path: Path) -> Iterator[None]:
    """Make a folder and those around it; if the block fails, those that were made and are empty go again."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in made:
            with contextlib.suppress(OSError):  # it holds something
                folder.rmdir()
        raise


def cache_folder() -> Path:
    """Where things that can be computed again are kept: ``$CML_CACHE``, by default ``~/.cache/cml``."""
    return Path(os.environ.get("CML_CACHE") or Path.home() / ".cache" / "cml")


def check_vacant(path: Path) -> None:
    """Raise ``UserError`` unless ``path`` is free: absent or an empty folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} already exists and is not an empty folder. Choose another folder or delete this one.")


@contextlib.contextmanager
def locked(path: Path, what: str, *, wait: bool = False) -> Iterator[IO[bytes]]:
    """Hold the lock file ``path`` while the block runs, so that one process at a time works on something.

    The lock goes with the process: one that was killed leaves a file that locks nothing. Processes forked off it, such
    as data workers, do not hold it.

    Args:
        path: The lock file, which is no link; the folder around its folder must exist.
        what: What it guards, for the error: "the run runs/mine".
        wait: Wait until nobody else holds the lock, however long that takes.

    Yields:
        The file, open for reading and appending. It stays behind.

    Raises:
        UserError: another process holds the lock.
    """
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
                raise UserError(
                    f"Another process is working on {what} (it holds {path}). Wait for it to end or stop it."
                ) from None
            _held.add(file.fileno())
            try:
                yield file
                return
            finally:
                _held.discard(file.fileno())


def force(*paths: Path) -> None:
    """Return when files, or the lists of folders' files, are on the disk; Windows forces no lists."""
    for path in paths:
        if not system.OPEN_FILES_MOVE and path.is_dir():
            continue
        number = os.open(path, os.O_RDONLY if system.OPEN_FILES_MOVE else os.O_RDWR)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def delete(path: Path, *, strict: bool = False) -> None:
    """Delete a file, a link or a folder, if it is there; a folder with all in it that can be, or ``strict``ly all."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not strict)
    else:
        with contextlib.nullcontext() if strict or system.OPEN_FILES_MOVE else contextlib.suppress(PermissionError):
            path.unlink(missing_ok=True)  # Windows keeps what is open


def write_all(descriptor: int, content: bytes | memoryview, at: int | None = None) -> None:
    """Write bytes behind what is there, or from the byte ``at`` on: all of them, also where one call takes only some.

    A call takes up to 2 GiB, and on a disk about to be full a part of that; the next one says so.
    """
    while len(content):
        written = os.write(descriptor, content) if at is None else system.write_at(descriptor, content, at)
        content, at = content[written:], None if at is None else at + written


def _let_go() -> None:
    """In a forked process: give its share of every lock back, or it would be locked until that process ends too."""
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor in _held:
        os.dup2(null, descriptor, inheritable=False)  # the file object still believes in its descriptor
    os.close(null)
    _held.clear()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_let_go)


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as readable JSON, atomically. NaN and infinity are refused: they are not JSON.

    Raises:
        UserError: a text, such as a path, is not UTF-8.
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    unicode_text(text, f"what {path} should note")
    with atomic_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


@contextlib.contextmanager
def text_path(path: Path) -> Iterator[str]:
    """A name of a file for libraries that take text alone, also where its own is not UTF-8.

    Raises:
        OSError: the file cannot be opened.
    """
    try:
        unicode_text(str(path), "")
    except UserError:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            yield f"/dev/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        yield str(path)


def unicode_text(text: str, what: str) -> str:
    """A text that a file may note, as it is.

    Raises:
        UserError: it holds bytes that are no Unicode, as the name of a file may.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = (text[: error.start].rpartition("\n")[2] + text[error.start :].partition("\n")[0]).strip()
        raise UserError(f"The path {found!a} in {what} is not UTF-8 text: rename the file or folder.") from None
    return text


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading; a pipe or a device, which may never end, is refused without waiting for it.

    Raises:
        OSError: it is missing, cannot be read or is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | system.NO_WAIT | system.PLAIN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_json(path: Path, what: str, *, finite: bool = True) -> Any:  # noqa: ANN401 - any JSON
    """Read a JSON file strictly (strict_json.py).

    Args:
        path: The file.
        what: Its purpose, for the error: "the run's config".
        finite: As for ``parse_json``.

    Raises:
        DataError: the file is missing, no file or no sound JSON.
    """
    return read_parsed(path, what, "JSON", functools.partial(parse_json, finite=finite))


def read_parsed(path: Path, what: str, form: str, parse: Callable[[bytes], Any]) -> Any:  # noqa: ANN401
    """As ``read_json``, of another form than JSON, whose ``parse`` raises ``ValueError`` as ``parse_json`` does."""
    try:
        with open_regular(path) as file:
            return parse(file.read())
    except FileNotFoundError:
        raise DataError(f"{path} is missing: it should hold {what}.") from None
    except OSError as error:
        raise DataError(f"{path} should hold {what}, but cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path} should hold {what} as {form}, but cannot be parsed: it {error}.") from None


def _own_temporary(path: Path, *, folder: bool) -> tuple[Path, int | None]:
    """A new temporary of ``path`` and an open handle, whose lock tells others that its maker lives.

    There is no handle where what is open cannot be renamed; nobody clears anything there.
    """
    prefix = f".{path.name}{PARTIAL}"
    while True:
        if folder:
            name = tempfile.mkdtemp(prefix=prefix, dir=path.parent)
            handle = os.open(name, os.O_RDONLY) if system.OPEN_FILES_MOVE else -1
        else:
            handle, name = tempfile.mkstemp(prefix=prefix, suffix=path.suffix, dir=path.parent)
        if not system.OPEN_FILES_MOVE:
            if handle >= 0:
                os.close(handle)
            return Path(name), None
        with contextlib.suppress(OSError):  # a file system without locks: nobody clears anything there either
            system.lock(handle, wait=True)
        if os.path.exists(name):
            return Path(name), handle
        os.close(handle)  # somebody cleared it before it was locked


def _clear_dead(path: Path) -> None:
    """Delete the temporaries of ``path`` that killed processes left."""
    prefix = f".{path.name}{PARTIAL}"
    if not system.OPEN_FILES_MOVE:
        return
    for entry in [entry for entry in os.scandir(path.parent) if entry.name.startswith(prefix)]:
        with contextlib.suppress(OSError):
            handle = os.open(entry.path, os.O_RDONLY | system.NO_FOLLOW | system.NO_WAIT)
            try:
                system.lock(handle, wait=False)
                delete(Path(entry.path))
            finally:
                os.close(handle)


@contextlib.contextmanager
def located(path: Path) -> Iterator[None]:
    """Give an error of the machine that names no file, such as that of a full disk, the file it happened to."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
