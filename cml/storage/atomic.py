"""Writing files and folders so that a reader never sees a partial one: under a temporary name, then renamed."""

import contextlib
import errno
import io
import json
import os
import secrets
import shutil
import stat
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
        sync_to_disk(temporary)


def atomic_folder(path: Path) -> contextlib.AbstractContextManager[Path]:
    """As ``atomic_file``; ``UserError`` if ``path`` exists and is not an empty folder: it is never replaced."""
    check_vacant(path)
    return _temporary(path, folder=True)


@contextlib.contextmanager
def _temporary(path: Path, *, folder: bool) -> Iterator[Path]:
    with make_folder(path.parent), contextlib.ExitStack() as held:
        _clear_dead(path)
        temporary = _own_temporary(path, held, folder=folder)
        try:
            with with_path(path):
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
def make_folder(path: Path) -> Iterator[None]:
    """Make a folder and its parents; if the block fails, those that were made and are empty are removed."""
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
    """The folder of everything that can be recomputed: ``$CML_CACHE``, by default ``~/.cache/cml``."""
    return Path(os.environ.get("CML_CACHE") or Path.home() / ".cache" / "cml")


def check_vacant(path: Path) -> None:
    """Raise ``UserError`` unless ``path`` is free: absent or an empty folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} already exists and is not an empty folder. Choose another folder or delete this one.")


@contextlib.contextmanager
def exclusive_lock(path: Path, what: str, *, wait: bool = False) -> Iterator[IO[bytes]]:
    """Hold a lock file, open to read and append: one process at a time works on ``what``, "the run runs/mine"."""
    # The lock ends with the process, only the file stays, and forks do not hold it. Another process that does is waited
    # for, or a UserError.
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


def sync_to_disk(*paths: Path) -> None:
    """Return when files, or the entries of folders, are on the disk; Windows cannot do that for folders."""
    for path in paths:
        if system.OPEN_FILES_MOVE or not path.is_dir():
            number = os.open(path, os.O_RDONLY if system.OPEN_FILES_MOVE else os.O_RDWR)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def delete(path: Path, *, strict: bool = False) -> None:
    """Delete a file, link or folder if it exists; what cannot be deleted stays, or with ``strict`` is an error."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not strict)
    else:
        with contextlib.nullcontext() if strict or system.OPEN_FILES_MOVE else contextlib.suppress(PermissionError):
            path.unlink(missing_ok=True)  # Windows keeps what is open


def write_all(descriptor: int, content: bytes | memoryview, at: int | None = None) -> None:
    """Write all bytes, at the end of a file or from the byte ``at`` on."""
    while len(content):  # a call writes up to 2 GiB, and less on a disk that is almost full
        written = os.write(descriptor, content) if at is None else system.write_at(descriptor, content, at)
        content, at = content[written:], None if at is None else at + written


def _let_go() -> None:
    """Release the locks in a forked process, or they would be held until it ends too."""
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor in _held:
        os.dup2(null, descriptor, inheritable=False)  # the file object still believes in its descriptor
    os.close(null)
    _held.clear()


if hasattr(os, "register_at_fork"):  # Windows forks nothing
    os.register_at_fork(after_in_child=_let_go)


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as readable JSON, atomically; NaN and infinity, which JSON lacks, are a ``ValueError``."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = (text[: error.start].rpartition("\n")[2] + text[error.start :].partition("\n")[0]).strip()
        raise UserError(
            f"The path {found!a} in what {path} should note is not UTF-8 text: rename the file or folder."
        ) from None
    with atomic_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def text_path(path: Path) -> contextlib.AbstractContextManager[str]:
    """A file's name for libraries that only take Unicode text, which the name of a file need not be."""
    name = str(path)
    is_text = name.encode(errors="ignore").decode() == name
    return contextlib.nullcontext(name) if is_text else system.other_name(path)


def open_regular(path: Path) -> io.BufferedReader:
    """Open a file for reading; a pipe or a device, which may never end, is an ``OSError`` at once."""
    descriptor = os.open(path, os.O_RDONLY | system.NO_WAIT | system.PLAIN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_json(path: Path, what: str, *, finite: bool = True) -> Any:  # noqa: ANN401 - any JSON
    """Read a JSON file as ``parse_json`` does, or ``DataError`` with ``what`` it should hold: "the run's config"."""
    return read_parsed(path, what, "JSON", lambda raw: parse_json(raw, finite=finite))


def read_parsed(path: Path, what: str, form: str, parse: Callable[[bytes], Any]) -> Any:  # noqa: ANN401
    """As ``read_json``, for another format, whose ``parse`` raises ``ValueError`` as ``parse_json`` does."""
    try:
        with open_regular(path) as file:
            return parse(file.read())
    except FileNotFoundError:
        raise DataError(f"{path} is missing: it should hold {what}.") from None
    except OSError as error:
        raise DataError(f"{path} should hold {what}, but cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path} should hold {what} as {form}, but cannot be parsed: it {error}.") from None


def _own_temporary(path: Path, held: contextlib.ExitStack, *, folder: bool) -> Path:
    """Make a temporary of ``path``; while ``held`` is open, a lock on it tells others that its maker lives."""
    while True:
        temporary = path.with_name(f".{path.name}{PARTIAL}{secrets.token_hex(4)}{'' if folder else path.suffix}")
        temporary.mkdir() if folder else temporary.touch(exist_ok=False)
        if not system.OPEN_FILES_MOVE:  # nor are temporaries cleared there
            return temporary
        with contextlib.suppress(FileNotFoundError):  # another process cleared it before it was locked
            handle = os.open(temporary, os.O_RDONLY)
            held.callback(os.close, handle)
            with contextlib.suppress(OSError):  # a file system without locks, where nothing is cleared either
                system.lock(handle, wait=True)
            if temporary.exists():
                return temporary


def _clear_dead(path: Path) -> None:
    """Delete the temporaries of ``path`` that killed processes left."""
    if not system.OPEN_FILES_MOVE:
        return
    prefix = f".{path.name}{PARTIAL}"
    for entry in [entry for entry in os.scandir(path.parent) if entry.name.startswith(prefix)]:
        with contextlib.suppress(OSError):
            handle = os.open(entry.path, os.O_RDONLY | system.NO_FOLLOW | system.NO_WAIT)
            try:
                system.lock(handle, wait=False)
                delete(Path(entry.path))
            finally:
                os.close(handle)


@contextlib.contextmanager
def with_path(path: Path) -> Iterator[None]:
    """Add the path to an error of the system that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
