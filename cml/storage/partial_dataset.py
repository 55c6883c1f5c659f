"""A dataset in the making: a folder beside its place that outlives a killed process, so that the next one goes on.

``.NAME.partial`` holds the dataset as far as it got and a record, ``finished.jsonl``: its first line says what the
dataset is made with, each further line which files of an item are whole, with their sizes and checksums. A file is
written first and recorded then; what a power cut has torn fails its checksum and is made anew. Whoever works there
holds a lock on the record. Not for: naming files and writing metadata (dataset_files.py).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import PIL

from cml.errors import DataError, UserError
from cml.storage.atomic import check_vacant

_RECORD = "finished.jsonl"
_BATCH = 256  # files between two calls that force them to the disk
Whole = tuple[int, int]  # size and checksum of a file


class PartialDataset:
    """The folder in which a dataset is made; a ``with`` block that ends well without ``publish`` throws it away.

    Args:
        folder: Where the dataset shall lie; absent or empty.
        made_with: What decides its content. What another process has left is used only if it was made with the same;
            with an empty one nothing is ever used again, and nothing left.

    Attributes:
        data: Where to write; it becomes ``folder``.

    Raises:
        UserError: ``folder`` is taken, or another process is making this dataset.
    """

    def __init__(self, folder: Path, made_with: Mapping[str, Any]) -> None:
        self._folder = Path(os.path.abspath(folder))
        self._root = partial_folder(folder)
        # another Pillow may encode a little otherwise
        self._made_with = {**json.loads(json.dumps(dict(made_with))), "pillow": PIL.__version__} if made_with else {}
        self.data = self._root / "dataset"
        self._items: dict[str, dict[str, Whole]] = {}  # finished items with their files
        self._files: dict[str, Whole] = {}  # whole on the disk, by their path below data
        self._used: set[str] = set()  # paths of this process's dataset
        self._unforced: list[str] = []
        self._forcing = ThreadPoolExecutor(1)  # waiting for the disk should not hold up the images
        self._forced: list[Future[None]] = []

    def __enter__(self) -> PartialDataset:
        check_vacant(self._folder)
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        self._record = self._lock()
        try:
            self._begin()
        except BaseException:
            self._record.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forcing.shutdown(cancel_futures=True)
        # the same command would only make the same mistake again, unless the mistake is a single item's
        users = isinstance(error, UserError) and not isinstance(error, DataError)
        if error is None or users or not self.kept:
            shutil.rmtree(self._root, ignore_errors=True)
        self._record.close()  # and with it the lock

    @property
    def kept(self) -> int:
        """Items that the next process could use if this one died now."""
        return len(self._items) if self._made_with else 0

    def finished(self, item_id: str) -> dict[str, bytes] | None:
        """The files of an item that an earlier process has finished, by path, or None if one of them is not whole.

        Different items may be asked for by different threads at a time.
        """
        contents = {}
        for path, whole in self._items.get(item_id, {}).items():
            try:
                contents[path] = (self.data / path).read_bytes()
            except OSError:
                contents[path] = b""
            if _whole(contents[path]) != whole:
                self._files.pop(path, None)
                return None
        return contents or None

    def write(self, path: str, content: bytes) -> None:
        """Write a file; one that an earlier process has written alike stays."""
        whole = _whole(content)
        if self._files.get(path) != whole:
            (self.data / path).write_bytes(content)
            self._files[path] = whole
        self._used.add(path)
        self._unforced.append(path)
        if len(self._unforced) >= _BATCH:
            self._force()

    def record(self, item_id: str, paths: list[str]) -> None:
        """Note that the files of an item are written."""
        files = {path: self._files[path] for path in paths}
        if self._items.get(item_id) != files:
            self._append({"item_id": item_id, "files": files})
            self._items[item_id] = files

    def publish(self, further: set[str]) -> None:
        """Move the dataset to its place: all its files are on the disk by then.

        Args:
            further: Paths of files that were not written by ``write``; any file that nobody names is deleted.
        """
        for path in [path for path in self.data.rglob("*") if path.is_file()]:
            name = path.relative_to(self.data).as_posix()
            if name not in self._used and name not in further:
                path.unlink()
        self._unforced.extend(further)
        self._force()
        for batch in self._forced:
            batch.result()
        _force(self.data, *(path for path in self.data.rglob("*") if path.is_dir()))
        os.replace(self.data, self._folder)  # replaces an empty folder, refuses a full one
        _force(self._folder.parent)

    def _lock(self) -> IO[bytes]:
        while True:
            self._root.mkdir(exist_ok=True)
            path = self._root / _RECORD
            try:
                record = path.open("a+b")
            except FileNotFoundError:  # the process that was here has just thrown it away
                continue
            try:
                fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(record.fileno()), path.stat()):
                    return record
            except FileNotFoundError:
                pass
            except BlockingIOError:
                record.close()
                raise UserError(
                    f"Another process is preparing {self._folder} now. Wait for it, or choose another folder."
                ) from None
            record.close()

    def _begin(self) -> None:
        try:
            check_vacant(self._folder)  # another process may just have finished it
        except UserError:
            shutil.rmtree(self._root, ignore_errors=True)
            raise
        if not self._take_over():
            shutil.rmtree(self.data, ignore_errors=True)
            self._record.truncate(0)
            self._append({"made_with": self._made_with})
        self.data.mkdir(exist_ok=True)
        if self._items:
            print(f"{len(self._items)} items were finished before; going on from there.", file=sys.stderr)

    def _take_over(self) -> bool:
        """Read what an earlier process has finished; False if it is of no use here."""
        self._record.seek(0)
        head = self._record.readline()
        try:
            there = json.loads(head)["made_with"] if head.endswith(b"\n") else None
        except (ValueError, LookupError, TypeError):
            there = None
        if not self._made_with or there != self._made_with:
            if there and self._record.read(1):
                why = difference(there, self._made_with)
                print(f"{self._root} was begun otherwise ({why}); starting over.", file=sys.stderr)
            return False
        end = len(head)
        for line in self._record:
            if not line.endswith(b"\n"):
                break
            try:
                entry = json.loads(line)
                files = {path: (int(size), int(checksum)) for path, (size, checksum) in entry["files"].items()}
                self._items[str(entry["item_id"])] = files
            except (ValueError, LookupError, TypeError, AttributeError):  # torn by a power cut
                break
            self._files |= files
            end += len(line)
        self._record.truncate(end)
        return True

    def _append(self, entry: Mapping[str, Any]) -> None:
        self._record.write(json.dumps(entry, ensure_ascii=False).encode() + b"\n")
        self._record.flush()  # out of this process: a kill takes nothing back

    def _force(self) -> None:
        self._forced.append(self._forcing.submit(_force, *(self.data / path for path in self._unforced)))
        self._unforced.clear()


def partial_folder(folder: Path) -> Path:
    """Where the dataset of ``folder`` is made."""
    folder = Path(os.path.abspath(folder))
    return folder.with_name(f".{folder.name}.partial")


def difference(there: object, wanted: Mapping[str, Any]) -> str:
    """In a few words, how two notes of what a dataset is made with differ."""
    if not isinstance(there, dict) or not there:
        return "nothing says how"
    flat = [{**values, **values.get("settings", {})} for values in (there, wanted)]
    for key in flat[1]:
        if key != "settings" and flat[0].get(key) != flat[1][key]:
            return f"{key} {flat[0].get(key)!r}, now {flat[1][key]!r}"
    return "with further settings"


def _whole(content: bytes) -> Whole:
    return len(content), zlib.crc32(content)


def _force(*paths: Path) -> None:
    """Return when files or folders are on the disk."""
    for path in paths:
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
