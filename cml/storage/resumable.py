"""Work that takes hours: done in pieces, each recorded, continued after a kill, refused to a second process.

What ``cml distances``, ``embed``, ``index`` and ``export captioning`` are made with; ``prepare`` shares the folder and
its journal (work_folder.py). The next process with the same command drops what the journal does not know and goes on.
Not for: what the pieces hold.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.errors import DataError, UserError
from cml.storage.atomic import PARTIAL, delete, read_json, write_all, write_json
from cml.storage.made_with import as_json, difference
from cml.storage.work_folder import WorkFolder, work_folder

_FINISHED = "finished"


class MadeOtherwiseError(UserError):
    """Results that are there, whole or half made, were made with something else than what is wanted."""


class Building:
    """Results in the making, or found whole. Made by ``building``.

    Attributes:
        out: Folder where the results belong.
        work: Hidden folder in which they grow.
        records: What ``record`` said so far, oldest first.
        manifest: The manifest, if everything is there already.
    """

    def __init__(self, out: Path, name: str, parts: Sequence[str], manifest: dict[str, Any] | None) -> None:
        self.out, self.work, self.manifest = out, work_of(out, name), manifest
        self.records: list[dict[str, Any]] = []
        self._name, self._parts = name, parts
        self._folder: WorkFolder  # where something is still to do

    def record(self, entry: Mapping[str, Any]) -> None:
        """Say what is whole, after it was forced to the disk. Several threads may call it."""
        self._folder.record(entry)
        self.records.append(dict(entry))

    def start_over(self) -> None:
        """Delete all that is there, because a part of it is lost or damaged."""
        self._folder.start_over()
        self.records.clear()

    def finish(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Put the parts where they belong and write the manifest; returns it. A kill in between is made good later.

        What the results are made with is added as ``made_with``, unless the manifest says it itself.
        """
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
            raise MadeOtherwiseError(
                f"{self.out} was begun otherwise ({folder.difference}). Give the command it was begun with, choose "
                f"another folder, or delete {self.work} to start over."
            )
        self.records = folder.records(checked)
        if self.records and _FINISHED in self.records[-1]:
            self._publish()
        elif taken := [path for path in (self.out / part for part in self._parts) if os.path.lexists(path)]:
            folder.discard()
            raise UserError(f"{taken[0]} exists already and is of another origin. Choose another folder or name.")

    def _publish(self) -> dict[str, Any]:
        said, made_with = self.records[-1][_FINISHED], self._folder.made_with
        self.manifest = said if made_with.items() <= said.items() else {**said, "made_with": made_with}
        for part in self._parts:
            if (self.work / part).exists():
                os.replace(self.work / part, self.out / part)
        write_json(self.out / self._name, self.manifest)
        self._folder.discard()
        return self.manifest


def work_of(out: Path, manifest: str = "manifest.json") -> Path:
    """The hidden folder in which the results that ``manifest`` stands for grow."""
    return out / f".{manifest.removesuffix('.json')}{PARTIAL}work"


@contextlib.contextmanager
def building(
    out: Path,
    made_with: Mapping[str, Any],
    parts: Sequence[str],
    manifest: str = "manifest.json",
    *,
    about: Mapping[str, Any] | None = None,
    sound: Callable[[], bool] = lambda: True,
    parse: Callable[[dict[str, Any]], object] = dict,
    wait: bool = False,
) -> Iterator[Building]:
    """Begin or continue results whose manifest is written last: where it is, everything is.

    Args:
        out: Folder where the results belong; made if it is missing, and it may hold other things.
        made_with: What the content depends on, fit for JSON. Results made with anything else are never continued.
        parts: Names below ``out`` that the results will have, those that may be left out too.
        manifest: Name of the file that says that everything is there.
        about: As for ``work_folder``; the manifest should say it too.
        sound: Whether the parts of finished results are; otherwise they are made anew.
        parse: Checks a record; a DataError, LookupError, TypeError or ValueError of it says that the work is whole up
            to the record before.
        wait: As for ``work_folder``.

    Yields:
        The results; with ``manifest`` if they are whole already.

    Raises:
        UserError: another process is at work there, or something else has one of the names.
        MadeOtherwiseError: the results that are there were made otherwise: says in what.
        FolderError: the folder cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder.")
    found = found_whole(out / manifest, made_with, about)
    if found is None and (out / "config.json").exists():
        raise UserError(f"{out} holds a run or a model (config.json). Choose another folder.")
    if found is not None and sound():
        delete(work_of(out, manifest))  # of a process killed just after its last step
        yield Building(out, manifest, parts, found)
        return
    with work_folder(work_of(out, manifest), made_with, str(out), about=about, wait=wait) as folder:
        found = found_whole(out / manifest, made_with, about)
        if found is not None and sound():  # somebody has just finished it
            folder.discard()
            yield Building(out, manifest, parts, found)
            return
        if found is not None:
            print(f"{out} is not whole, or was begun by another version of cml; starting over.", file=sys.stderr)
            for name in (manifest, *parts):
                delete(out / name)
        made = Building(out, manifest, parts, None)
        made._begin(folder, parse)
        try:
            yield made
        except BaseException as error:
            if not made.records:  # nothing to go on from
                folder.discard()
            elif isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt("the same command continues from its last record") from None
            raise


def found_whole(
    manifest: Path, made_with: Mapping[str, Any], about: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The manifest of finished results, None if there is none.

    Raises:
        MadeOtherwiseError: they were made otherwise: says in what.
        DataError: the manifest is damaged.
    """
    if not manifest.exists():
        return None
    wanted, value = as_json(made_with), read_json(manifest, "what was made here")
    found: dict[str, Any] = value if isinstance(value, dict) else {}
    there = found.get("made_with") or {key: found[key] for key in wanted if key in found}
    if there != wanted:
        raise MadeOtherwiseError(
            f"{manifest.parent} holds results that were made otherwise ({difference(there, wanted, found, about)}). "
            "Choose another folder or delete this one."
        )
    return found


class GrowingFile(io.FileIO):
    """A file of a building that only grows; what an earlier process wrote behind the record is dropped.

    Args:
        path: The file.
        size: Bytes of it that the record knows.

    Raises:
        DataError: the file is shorter than the record says.
    """

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, "a+")
        if (found := os.fstat(self.fileno()).st_size) < size:
            self.close()
            raise DataError(f"{path} has {found} bytes, but {size} were recorded; delete {path.parent} to start over.")
        self.truncate(size)

    def append(self, content: bytes) -> None:
        """Write behind what is there."""
        write_all(self.fileno(), content)

    def sync(self) -> int:
        """Force everything to the disk; returns the size to record."""
        os.fsync(self.fileno())
        return os.fstat(self.fileno()).st_size
