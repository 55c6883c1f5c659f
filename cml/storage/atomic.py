"""Writing files and folders so that a reader never sees a partial one: under a temporary name, then renamed."""

import contextlib
import csv
import errno
import hashlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cml.errors import DataError, UserError
from cml.storage import system
from cml.storage.safe_paths import LONGEST_NAME

# What Excel, LibreOffice and Google Sheets would run where a cell begins with it (OWASP, CSV injection). Numbers stay.
_FORMULA = re.compile(r"'*[=+\-@\t\r\uff0b\uff0d\uff1d\uff20]")
_NUMBERS = re.compile(r"[+-]?({0})(; [+-]?({0}))*".format(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf|nan"), re.IGNORECASE)
PARTIAL = ".partial-"  # every temporary carries it, so that people can tell what a killed run left behind


_LONGEST_SUFFIX = 5  # characters, up to 20 bytes
_ROOM = 40  # bytes that are kept free for what follows a hidden name


def hidden_name(name: str) -> str:
    """Name a hidden file or folder after another one, short enough to be followed by some 40 bytes."""
    coded = os.fsencode(name)
    longest = LONGEST_NAME - _ROOM - 1
    if len(coded) <= longest:
        return f".{name}"
    digest = hashlib.sha256(coded).hexdigest()[:16]
    return f".{coded[: longest - 17].decode(errors='ignore')}-{digest}"


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Write a file so that no reader sees a part of it."""
    with _temporary(path, folder=False) as temporary:
        yield temporary
        sync_to_disk(temporary)


def atomic_folder(path: Path) -> contextlib.AbstractContextManager[Path]:
    """Write a folder so that no reader sees a part of it."""
    try:
        check_vacant(path)
    except UserError:
        if path.parent.is_dir():
            _clear_dead(path)  # of a process that was killed after another one had written the folder
        raise
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
            if folder:
                _clear_dead(path)  # nobody writes it again; a file is, in the next run


@contextlib.contextmanager
def make_folder(path: Path) -> Iterator[None]:
    """Make a folder and its parents; if the block fails, those that were made and are empty are removed."""
    new_folders = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for folder in new_folders:
            with contextlib.suppress(OSError):  # it holds something
                folder.rmdir()
        raise


def check_vacant(path: Path) -> None:
    """Check that a folder can be written without replacing anything."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{path} already exists and is not an empty folder. Choose another folder or delete this one.")


def sync_to_disk(*paths: Path) -> None:
    """Return when the content of files, or the entries of folders, are on the disk."""
    for path in paths:
        if system.OPEN_FILES_MOVE or not path.is_dir():
            number = os.open(path, os.O_RDONLY if system.OPEN_FILES_MOVE else os.O_RDWR)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def delete(path: Path, *, strict: bool = False) -> None:
    """Delete a file, link or folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=not strict)
    else:
        with contextlib.nullcontext() if strict or system.OPEN_FILES_MOVE else contextlib.suppress(PermissionError):
            path.unlink(missing_ok=True)  # Windows keeps what is open


def write_all(
    descriptor: int,
    content: bytes | memoryview,
    at: int | None = None,  # the offset in bytes to write at; by default, the end of the file
) -> None:
    """Write all bytes to an open file."""
    while len(content):  # a call writes up to 2 GiB, and less on a disk that is almost full
        written = os.write(descriptor, content) if at is None else system.write_at(descriptor, content, at)
        content, at = content[written:], None if at is None else at + written


def _own_temporary(path: Path, held: contextlib.ExitStack, *, folder: bool) -> Path:
    """Make a temporary of ``path``; while ``held`` is open, a lock on it tells others that its maker lives."""
    while True:
        suffix = "" if folder or len(path.suffix) > _LONGEST_SUFFIX else path.suffix
        temporary = path.with_name(f"{hidden_name(path.name)}{PARTIAL}{secrets.token_hex(4)}{suffix}")
        if folder:
            temporary.mkdir()
        else:
            temporary.touch(exist_ok=False)
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
    prefix = f"{hidden_name(path.name)}{PARTIAL}"
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
    """Add a path to errors of the system that name no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


class GrowingFile(io.FileIO):
    """A file that only grows; bytes after the recorded size, which an interrupted job left, are dropped."""

    def __init__(
        self,
        path: Path,
        size: int,  # the recorded size in bytes
    ) -> None:
        super().__init__(path, "a+")
        actual = os.fstat(self.fileno()).st_size
        if actual < size:
            self.close()
            raise DataError(f"{path} has {actual} bytes, but {size} were recorded; delete {path.parent} to start over.")
        self.truncate(size)

    def append(self, content: bytes) -> None:
        """Write all bytes at the end."""
        write_all(self.fileno(), content)

    def sync(self) -> int:  # the size in bytes, to be recorded
        """Force everything to the disk."""
        os.fsync(self.fileno())
        return os.fstat(self.fileno()).st_size


def write_csv(path: Path | str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Path:
    r"""Write a table as a CSV file."""
    path = Path(path)
    with (
        atomic_file(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        csv.writer(file).writerows([as_cell(text) for text in row] for row in (columns, *rows))
    return path


def as_cell(text: str) -> str:
    """Put ``'`` before a text that a spreadsheet would run as a formula: an id may be a stranger's ``=cmd|..``."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBERS.fullmatch(text) else text


def from_cell(cell: str) -> str:
    """Take back what ``as_cell`` did."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
