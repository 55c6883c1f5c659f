"""A hidden folder in which a long job grows, with a journal: continued after a kill, refused to a second process.

The journal's first line holds the provenance of the work, and each further line a complete piece, which is on the disk
before its line. A line begins with the CRC-32 of the JSON after it. A folder that holds links is started over, since
writing to it could write elsewhere.
import stat
"""

import contextlib
import json
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from cml.errors import DataError, UserError
from cml.storage import system
from cml.storage.atomic import delete, make_folder, with_path, write_all
from cml.storage.json_file import parse_json
from cml.storage.saved_options import as_json, difference

JOURNAL = "journal.jsonl"
T = TypeVar("T")


class FolderError(UserError):
    """A folder cannot be written or has no space left; nothing else is wrong."""


class WorkFolder:
    """A folder in which this process alone works, opened by ``work_folder``."""

    def __init__(self, root: Path, journal: IO[bytes], provenance: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        self.root, self.provenance, self._journal = root, as_json(provenance), journal
        self._head = {"made_with": self.provenance, "about": about}
        self._recording = threading.Lock()
        journal.seek(0)
        head = journal.readline()
        self._start, self.recorded = len(head), 0  # where the records begin, and how many there are
        # how the work of an earlier process differs, in words; "" if it does not, None if there is none
        self.difference: str | None = None
        with contextlib.suppress(ValueError, LookupError, TypeError):
            there = {} if _holds_links(root) else parse_line(head)
            self.difference = difference(there["made_with"], self.provenance, there["about"], about)

    def start_over(self) -> None:
        """Delete the work of an earlier process and begin the journal."""
        for path in self.root.iterdir():
            if path.name != JOURNAL:
                delete(path, strict=True)
        self._journal.truncate(0)
        self._append(self._head)
        self._start, self.recorded = os.fstat(self._journal.fileno()).st_size, 0

    def records(self, parse: Callable[[Any], T]) -> list[T]:
        """Read the journal; from a record on that cannot be read, as after a power cut, it is cut off."""
        self._journal.seek(self._start)
        records, end = [], self._start
        with contextlib.suppress(DataError, LookupError, TypeError, ValueError):
            for line in self._journal:
                records.append(parse(parse_line(line)))
                end += len(line)
        self._journal.truncate(end)
        self.recorded = len(records)
        return records

    def record(self, entry: object, *, sync: bool = True) -> None:
        """Record a complete piece; several threads may call it."""
        with self._recording:
            self._append(entry)
        if sync:
            os.fsync(self._journal.fileno())

    def discard(self) -> None:
        """Delete the folder."""
        delete(self.root)

    def _append(self, entry: object) -> None:
        # not through the file's buffer, which would be written again when the file is closed on a full disk
        write_all(self._journal.fileno(), encode_line(entry))
        self.recorded += 1


@contextlib.contextmanager
def work_folder(
    root: Path,
    provenance: Mapping[str, Any],
    subject: str,
    *,
    about: Mapping[str, Any] | None = None,
    wait: bool = False,
) -> Iterator[WorkFolder]:
    """Open or make a folder in which this process alone works."""
    with contextlib.ExitStack() as opened:
        try:
            if _is_link(root):
                root.unlink()
            opened.enter_context(make_folder(root.parent))
            root.mkdir(exist_ok=True)
            if _is_link(root / JOURNAL):
                (root / JOURNAL).unlink()
        except OSError as error:
            raise FolderError(
                f"The folder {root.parent} cannot be written ({error.strerror}); choose another one."
            ) from None
        opened.enter_context(with_path(root.parent))
        yield WorkFolder(
            root, opened.enter_context(exclusive_lock(root / JOURNAL, subject, wait=wait)), provenance, about or {}
        )


def encode_line(entry: object) -> bytes:
    """A line of a journal: a checksum, and JSON."""
    content = json.dumps(entry).encode()
    return b"%08x %b\n" % (zlib.crc32(content), content)


def parse_line(line: bytes) -> Any:  # noqa: ANN401 - any JSON
    """Read a line of a journal; ``ValueError`` for one that was cut off or changed."""
    crc, _, content = line.removesuffix(b"\n").partition(b" ")
    if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(content):
        raise ValueError("its checksum is wrong")
    return parse_json(content, surrogates=True)


def _is_link(path: Path) -> bool:
    """Whether writing to a path may write elsewhere: it is a symbolic or hard link, or not a regular file."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(status.st_mode) and (not stat.S_ISREG(status.st_mode) or status.st_nlink > 1)


def _holds_links(root: Path) -> bool:
    return any(_is_link(Path(at, name)) for at, folders, files in os.walk(root) for name in (*folders, *files))


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
            descriptor = os.open(path, flags, 0o666)
        except FileNotFoundError:  # the process that was here has just deleted the folder
            if not path.parent.parent.exists():
                raise
            continue
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # such as a pipe, which has no places to read and write at
            os.close(descriptor)
            raise UserError(f"{path} is no regular file, so that it cannot lock {subject}. Delete it.")
        with os.fdopen(descriptor, "a+b") as file:
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
