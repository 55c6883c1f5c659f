"""A hidden folder in which one process at a time works, with a journal of what is complete.

The first line of the journal holds the settings of the work, each further line a complete piece, which is on the disk
before its line. Links in the folder are never followed: if there is one, the work starts over.
"""

import contextlib
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from cml.errors import DataError, UserError
from cml.storage.atomic import delete, folder_made, located, locked, write_all
from cml.storage.made_with import as_json, difference
from cml.storage.strict_json import parse_json

JOURNAL = "journal.jsonl"
T = TypeVar("T")


class FolderError(UserError):
    """A folder cannot be written or has no space left; nothing else is wrong."""


class WorkFolder:
    """A folder in which this process alone works. Made by ``work_folder``.

    Attributes:
        root: The folder.
        made_with: What the work depends on, as JSON returns it.
        difference: How the work of an earlier process differs from this; "" if it does not, None if there is none.
        recorded: Number of records.
    """

    def __init__(self, root: Path, journal: IO[bytes], made_with: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        self.root, self.made_with, self._journal = root, as_json(made_with), journal
        self._head = {"made_with": self.made_with, "about": about}
        self._recording = threading.Lock()
        journal.seek(0)
        head = journal.readline()
        self._start, self.recorded = len(head), 0  # where the records begin
        self.difference: str | None = None
        with contextlib.suppress(ValueError, LookupError, TypeError):
            there = parse_json(head, surrogates=True) if head.endswith(b"\n") and not _holds_links(root) else {}
            same = there["made_with"] == self.made_with
            self.difference = "" if same else difference(there["made_with"], self.made_with, there["about"], about)

    def start_over(self) -> None:
        """Delete what is there."""
        for path in self.root.iterdir():
            if path.name != JOURNAL:
                delete(path, strict=True)
        self._journal.truncate(0)
        self._append(self._head)
        self._start, self.recorded = os.fstat(self._journal.fileno()).st_size, 0

    def records(self, parse: Callable[[Any], T]) -> list[T]:
        """The records, oldest first, each converted by ``parse``.

        If ``parse`` raises DataError, LookupError, TypeError or ValueError, the journal was torn there, as by a power
        cut, and ends before that record.
        """
        self._journal.seek(self._start)
        found, end = [], self._start
        for line in self._journal:
            try:
                if not line.endswith(b"\n"):
                    break
                found.append(parse(parse_json(line, surrogates=True)))
            except (DataError, LookupError, TypeError, ValueError):
                break
            end += len(line)
        self._journal.truncate(end)
        self.recorded = len(found)
        return found

    def record(self, entry: object, *, sync: bool = True) -> None:
        """Record what is complete; it survives a kill, and with ``sync`` a power cut. Several threads may call it."""
        with self._recording:
            self._append(entry)
        if sync:
            os.fsync(self._journal.fileno())

    def discard(self) -> None:
        """Delete the folder."""
        delete(self.root)

    def _append(self, entry: object) -> None:
        # not through the file's buffer, which would be written again when the file is closed on a full disk
        write_all(self._journal.fileno(), json.dumps(entry).encode() + b"\n")
        self.recorded += 1


@contextlib.contextmanager
def work_folder(
    root: Path, made_with: Mapping[str, Any], what: str, *, about: Mapping[str, Any] | None = None, wait: bool = False
) -> Iterator[WorkFolder]:
    """Open a folder for this process alone; it is made if it is missing.

    Args:
        root: The folder.
        made_with: What the work depends on, as JSON can hold it.
        what: What the work makes, for the error.
        about: What the digests in ``made_with`` are of, in words, for errors.
        wait: Wait for another process that works there; otherwise that is an error.

    Raises:
        UserError: another process works there.
        FolderError: the folder cannot be made.
    """
    with contextlib.ExitStack() as opened:
        try:
            if _is_link(root):
                root.unlink()
            opened.enter_context(folder_made(root.parent))
            root.mkdir(exist_ok=True)
            if _is_link(root / JOURNAL):
                (root / JOURNAL).unlink()
        except OSError as error:
            raise FolderError(
                f"The folder {root.parent} cannot be written ({error.strerror}); choose another one."
            ) from None
        opened.enter_context(located(root.parent))
        yield WorkFolder(root, opened.enter_context(locked(root / JOURNAL, what, wait=wait)), made_with, about or {})


def _is_link(path: Path) -> bool:
    """Whether writing to a path may write elsewhere: it is a symbolic or hard link, or not a regular file."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(found.st_mode) and (not stat.S_ISREG(found.st_mode) or found.st_nlink > 1)


def _holds_links(root: Path) -> bool:
    return any(_is_link(Path(at, name)) for at, folders, files in os.walk(root) for name in (*folders, *files))
