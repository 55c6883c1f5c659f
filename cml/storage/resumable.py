"""Work that takes hours: done and recorded in pieces, continued after a kill, refused to a second process."""
# It grows in a hidden folder with a journal, whose first line holds the settings of the work and each further line a
# complete piece, which is on the disk before its line. If there is a link in the folder, the work starts over.

import contextlib
import io
import json
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from cml.console.messages import say
from cml.errors import DataError, UserError
from cml.storage.atomic import PARTIAL, delete, exclusive_lock, make_folder, read_json, with_path, write_all, write_json
from cml.storage.provenance import as_json, difference
from cml.storage.strict_json import parse_json

JOURNAL = "journal.jsonl"
_FINISHED = "finished"
T = TypeVar("T")


class FolderError(UserError):
    """A folder cannot be written or has no space left; nothing else is wrong."""


class WorkFolder:
    """A folder in which this process alone works. Made by ``work_folder``."""

    def __init__(self, root: Path, journal: IO[bytes], made_with: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        self.root, self.made_with, self._journal = root, as_json(made_with), journal
        self._head = {"made_with": self.made_with, "about": about}
        self._recording = threading.Lock()
        journal.seek(0)
        head = journal.readline()
        self._start, self.recorded = len(head), 0  # where the records begin, and how many there are
        # how the work of an earlier process differs from this; "" if it does not, None if there is none
        self.difference: str | None = None
        with contextlib.suppress(ValueError, LookupError, TypeError):
            there = parse_json(head, surrogates=True) if head.endswith(b"\n") and not _holds_links(root) else {}
            self.difference = difference(there["made_with"], self.made_with, there["about"], about)

    def start_over(self) -> None:
        """Delete what is there."""
        for path in self.root.iterdir():
            if path.name != JOURNAL:
                delete(path, strict=True)
        self._journal.truncate(0)
        self._append(self._head)
        self._start, self.recorded = os.fstat(self._journal.fileno()).st_size, 0

    def records(self, parse: Callable[[Any], T]) -> list[T]:
        """The records, converted by ``parse``; where that fails the journal was torn, as by a power cut, and ends."""
        self._journal.seek(self._start)
        found, end = [], self._start
        with contextlib.suppress(DataError, LookupError, TypeError, ValueError):
            for line in self._journal:
                if not line.endswith(b"\n"):
                    break
                found.append(parse(parse_json(line, surrogates=True)))
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
    """Open or make a folder for this process alone, or ``FolderError``; another one waits, or fails with ``what``."""
    # about says in words what the digests in made_with are of, for errors
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
            root, opened.enter_context(exclusive_lock(root / JOURNAL, what, wait=wait)), made_with, about or {}
        )


class DifferentSettingsError(UserError):
    """Existing results, complete or not, were made with other settings than the wanted ones."""


class ResumableOutput:
    """Results that are being made in ``work``, or were found complete in ``out``. Made by ``building``."""

    def __init__(self, out: Path, name: str, parts: Sequence[str], manifest: dict[str, Any] | None) -> None:
        self.out, self.work = out, work_path(out, name)
        self.manifest = manifest  # None if the results are not complete
        self.records: list[dict[str, Any]] = []  # oldest first
        self._name, self._parts = name, parts
        self._folder: WorkFolder  # set if the results are not complete

    def record(self, entry: Mapping[str, Any]) -> None:
        """Record what is complete, after it was forced to the disk. Several threads may call it."""
        self._folder.record(entry)
        self.records.append(dict(entry))

    def start_over(self) -> None:
        """Delete everything so far, because a part of it is lost or damaged."""
        self._folder.start_over()
        self.records.clear()

    def finish(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Move the parts to their target, then write and return the manifest; a later call completes a killed one."""
        self.record({_FINISHED: dict(manifest)})
        return self._publish()

    def _begin(self, folder: WorkFolder, parse: Callable[[dict[str, Any]], object]) -> None:
        def checked(entry: dict[str, Any]) -> dict[str, Any]:
            dict(entry[_FINISHED]) if _FINISHED in dict(entry) else parse(entry)
            return entry

        self._folder = folder
        if folder.difference is None:
            folder.start_over()
        elif folder.difference:
            raise DifferentSettingsError(
                f"{self.out} was begun with different settings ({folder.difference}). Give the same command, choose "
                f"another folder, or delete {self.work} to start over."
            )
        self.records = folder.records(checked)
        if self.records and _FINISHED in self.records[-1]:
            self._publish()
        elif taken := [path for path in (self.out / part for part in self._parts) if os.path.lexists(path)]:
            folder.discard()
            raise UserError(f"{taken[0]} already exists, but this command did not make it. Choose another folder.")

    def _publish(self) -> dict[str, Any]:
        said, made_with = self.records[-1][_FINISHED], self._folder.made_with
        self.manifest = said if made_with.items() <= said.items() else {**said, "made_with": made_with}
        for part in self._parts:
            if (self.work / part).exists():
                os.replace(self.work / part, self.out / part)
        write_json(self.out / self._name, self.manifest)
        self._folder.discard()
        return self.manifest


def work_path(out: Path, manifest: str = "manifest.json") -> Path:
    """The hidden folder in which the results of ``manifest`` grow."""
    return out / f".{manifest.removesuffix('.json')}{PARTIAL}work"


@contextlib.contextmanager
def resumable_output(
    out: Path,
    made_with: Mapping[str, Any],
    parts: Sequence[str],
    manifest: str = "manifest.json",
    *,
    about: Mapping[str, Any] | None = None,
    sound: Callable[[], bool] = lambda: True,
    parse: Callable[[dict[str, Any]], object] = dict,
    wait: bool = False,
) -> Iterator[ResumableOutput]:
    """Begin or continue results whose manifest is written last: if it exists, they are complete."""
    # out may hold other files, but none named as parts, which include optional ones. Only results of the same made_with
    # are continued, or else DifferentSettingsError; complete ones that are not sound are made again.
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder.")
    made = ResumableOutput(out, manifest, parts, read_complete(out / manifest, made_with, about))
    if made.manifest is None and (out / "config.json").exists():
        raise UserError(f"{out} holds a run or a model (config.json). Choose another folder.")
    if made.manifest is not None and sound():
        delete(made.work)  # left by a process that was killed just after its last step
        yield made
        return
    with work_folder(made.work, made_with, str(out), about=about, wait=wait) as folder:
        made.manifest = read_complete(out / manifest, made_with, about)
        if made.manifest is not None and sound():  # another process has just finished it
            folder.discard()
            yield made
            return
        if made.manifest is not None:
            say(f"{out} is damaged, or another version of cml made it; starting over.")
            for name in (manifest, *parts):
                delete(out / name)
            made.manifest = None
        made._begin(folder, parse)
        try:
            yield made
        except BaseException as error:
            if not made.records:  # nothing to continue
                folder.discard()
            elif isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt("the same command continues from its last record") from None
            raise


def read_complete(
    manifest: Path, made_with: Mapping[str, Any], about: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The manifest of complete results, None if there is none; ``DifferentSettingsError`` if settings differ."""
    if not manifest.exists():
        return None
    wanted, value = as_json(made_with), read_json(manifest, "what was made here")
    found: dict[str, Any] = value if isinstance(value, dict) else {}
    there = found.get("made_with") or {key: found[key] for key in wanted if key in found}
    if there != wanted:
        raise DifferentSettingsError(
            f"{manifest.parent} holds results of different settings ({difference(there, wanted, found, about)}). "
            "Choose another folder or delete this one."
        )
    return found


class GrowingFile(io.FileIO):
    """A file that only grows; bytes after the recorded ``size``, which an earlier process wrote, are dropped."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, "a+")
        if (found := os.fstat(self.fileno()).st_size) < size:
            self.close()
            raise DataError(f"{path} has {found} bytes, but {size} were recorded; delete {path.parent} to start over.")
        self.truncate(size)

    def append(self, content: bytes) -> None:
        """Write at the end."""
        write_all(self.fileno(), content)

    def sync(self) -> int:
        """Force everything to the disk; returns the size to record."""
        os.fsync(self.fileno())
        return os.fstat(self.fileno()).st_size


def _is_link(path: Path) -> bool:
    """Whether writing to a path may write elsewhere: it is a symbolic or hard link, or not a regular file."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(found.st_mode) and (not stat.S_ISREG(found.st_mode) or found.st_nlink > 1)


def _holds_links(root: Path) -> bool:
    return any(_is_link(Path(at, name)) for at, folders, files in os.walk(root) for name in (*folders, *files))
