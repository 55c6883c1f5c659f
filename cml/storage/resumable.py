"""Work that takes hours: done and recorded in pieces, continued after a kill, refused to a second process.

``cml distances``, ``embed``, ``index`` and ``export captioning`` use it; ``prepare`` shares the folder and its journal
(work_folder.py). The next process with the same command drops what the journal does not list and continues.
"""

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
    """Existing results, complete or not, were made with other settings than the wanted ones."""


class Building:
    """Results that are being made, or were found complete. Made by ``building``.

    Attributes:
        out: The target folder.
        work: Hidden folder in which the results grow.
        records: The entries of ``record`` so far, oldest first.
        manifest: The manifest if the results are complete, else None.
    """

    def __init__(self, out: Path, name: str, parts: Sequence[str], manifest: dict[str, Any] | None) -> None:
        self.out, self.work, self.manifest = out, work_of(out, name), manifest
        self.records: list[dict[str, Any]] = []
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
        """Move the parts to their target, then write and return the manifest. A later call completes a killed one.

        The settings of the results are added as ``made_with``, unless the manifest holds them.
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


def work_of(out: Path, manifest: str = "manifest.json") -> Path:
    """The hidden folder in which the results of ``manifest`` grow."""
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
    """Begin or continue results whose manifest is written last: if it exists, they are complete.

    Args:
        out: Target folder; made if it is missing, and it may hold other files.
        made_with: What the content depends on, as JSON can hold it. Only results with the same are continued.
        parts: Names of the results below ``out``, including optional ones.
        manifest: Name of the file that marks complete results.
        about: As for ``work_folder``; the manifest should hold it too.
        sound: Whether the parts of complete results are intact; otherwise they are made again.
        parse: Checks a record; if it raises DataError, LookupError, TypeError or ValueError, the work is complete up
            to the record before.
        wait: As for ``work_folder``.

    Yields:
        The results; with ``manifest`` if they are complete.

    Raises:
        UserError: another process is working there, or something else has one of the names.
        MadeOtherwiseError: existing results have other settings; the message names the first.
        FolderError: the folder cannot be written.
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder.")
    found = found_whole(out / manifest, made_with, about)
    if found is None and (out / "config.json").exists():
        raise UserError(f"{out} holds a run or a model (config.json). Choose another folder.")
    if found is not None and sound():
        delete(work_of(out, manifest))  # left by a process that was killed just after its last step
        yield Building(out, manifest, parts, found)
        return
    with work_folder(work_of(out, manifest), made_with, str(out), about=about, wait=wait) as folder:
        found = found_whole(out / manifest, made_with, about)
        if found is not None and sound():  # another process has just finished it
            folder.discard()
            yield Building(out, manifest, parts, found)
            return
        if found is not None:
            print(f"{out} is damaged, or another version of cml made it; starting over.", file=sys.stderr)
            for name in (manifest, *parts):
                delete(out / name)
        made = Building(out, manifest, parts, None)
        made._begin(folder, parse)
        try:
            yield made
        except BaseException as error:
            if not made.records:  # nothing to continue
                folder.discard()
            elif isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt("the same command continues from its last record") from None
            raise


def found_whole(
    manifest: Path, made_with: Mapping[str, Any], about: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """The manifest of complete results; None if there is none.

    Raises:
        MadeOtherwiseError: they have other settings; the message names the first.
        DataError: the manifest is damaged.
    """
    if not manifest.exists():
        return None
    wanted, value = as_json(made_with), read_json(manifest, "what was made here")
    found: dict[str, Any] = value if isinstance(value, dict) else {}
    there = found.get("made_with") or {key: found[key] for key in wanted if key in found}
    if there != wanted:
        raise MadeOtherwiseError(
            f"{manifest.parent} holds results of different settings ({difference(there, wanted, found, about)}). "
            "Choose another folder or delete this one."
        )
    return found


class GrowingFile(io.FileIO):
    """A file that only grows; bytes after the recorded ``size``, which an earlier process wrote, are dropped.

    Raises:
        DataError: the file is shorter than ``size``.
    """

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
