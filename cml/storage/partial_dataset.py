"""A dataset being written, in ``.NAME.partial`` beside its target; the next process continues after a killed one."""

import contextlib
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import PIL

from cml.console.messages import say
from cml.errors import DataError, UserError
from cml.storage.atomic import check_vacant, hidden_name, sync_to_disk
from cml.storage.safe_paths import relative_name
from cml.storage.work_folder import work_folder

_BATCH = 256  # files between two calls that force them to the disk
Whole = tuple[int, int]  # size and checksum of a file


class PartialDataset:
    """The folder in which a dataset is made; a ``with`` block that succeeds without ``publish`` deletes it."""

    def __init__(self, folder: Path, provenance: Mapping[str, Any]) -> None:
        self._folder = Path(os.path.abspath(folder))
        # another version of Pillow may encode slightly differently
        self._provenance = {**provenance, "pillow": PIL.__version__} if provenance else {}
        self.data = partial_folder(folder) / "dataset"  # the folder to write to, which becomes ``folder``
        self._items: dict[str, dict[str, Whole]] = {}  # finished by an earlier process
        self._files: dict[str, Whole] = {}  # complete on the disk, by their path below data
        self._used: set[str] = set()  # paths of this process's dataset
        self._unforced: list[str] = []
        self._forcing = ThreadPoolExecutor(1)  # waiting for the disk should not hold up the images
        self._forced: list[Future[None]] = []
        self._stack = contextlib.ExitStack()
        self._is_begun = False

    def __enter__(self) -> Self:
        check_vacant(self._folder)
        with self._stack:
            self._work = self._stack.enter_context(work_folder(self.data.parent, self._provenance, str(self._folder)))
            try:
                check_vacant(self._folder)  # another process may just have finished it
            except UserError:
                self._work.discard()
                raise
            self._begin()
            self._is_begun = True
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:  # noqa: ANN401
        self._forcing.shutdown(cancel_futures=True)
        # the same command would only fail again, unless the fault is that of a single item
        users = isinstance(error, UserError) and not isinstance(error, DataError)
        if error is None or users or not self.kept:
            self._work.discard()
        self._stack.__exit__(kind, error, trace)

    @property
    def kept(self) -> int:
        """Items that the next process could reuse if this one died now."""
        return self._work.recorded if self._provenance and self._is_begun else 0

    def finished_files(self, item_id: str) -> dict[str, bytes] | None:
        """Read the files of an item that an earlier process finished; several threads may call it."""
        contents = {}
        for path, whole in self._items.get(item_id, {}).items():
            contents[path] = b""
            with contextlib.suppress(OSError):
                contents[path] = (self.data / path).read_bytes()
            if _whole(contents[path]) != whole:
                self._files.pop(path, None)
                return None
        return contents or None

    def add(self, item_id: str, contents: Mapping[str, bytes]) -> None:
        """Write the files of an item, then record it; equal files of an earlier process stay."""
        files = {path: _whole(content) for path, content in contents.items()}
        for path, content in contents.items():
            if self._files.get(path) != files[path]:
                (self.data / path).write_bytes(content)
                self._files[path] = files[path]
        self._used.update(files)
        self._unforced.extend(files)
        if len(self._unforced) >= _BATCH:
            self._force()
        if self._items.get(item_id) != files:
            self._work.record({"item_id": item_id, "files": files}, sync=False)

    def publish(self, further: set[str]) -> None:
        """Move the dataset to its target when it is on the disk; files of other items are deleted."""
        wanted = self._used | further
        for path in [path for path in self.data.rglob("*") if path.is_file()]:
            if path.relative_to(self.data).as_posix() not in wanted:
                path.unlink()
        self._unforced.extend(further)
        self._force()
        for batch in self._forced:
            batch.result()
        sync_to_disk(self.data, *(path for path in self.data.rglob("*") if path.is_dir()))
        os.replace(self.data, self._folder)  # replaces an empty folder, refuses a full one
        sync_to_disk(self._folder.parent)

    def _begin(self) -> None:
        """Take over what an earlier process finished, if it can be reused."""
        if self._provenance and self._work.difference == "":
            self._items = dict(self._work.records(_item))
            for files in self._items.values():
                self._files |= files
        else:
            if self._work.difference and self._work.records(_item):
                why = f"was begun with different settings ({self._work.difference}); starting over."
                say(f"{self._work.root} {why}")
            self._work.start_over()
        self.data.mkdir(exist_ok=True)
        if self._items:
            say(f"{len(self._items)} items were finished before; continuing from there.")

    def _force(self) -> None:
        self._forced.append(self._forcing.submit(sync_to_disk, *(self.data / path for path in self._unforced)))
        self._unforced.clear()


def partial_folder(folder: Path) -> Path:
    """Name the folder in which a dataset is made."""
    folder = Path(os.path.abspath(folder))
    return folder.with_name(f"{hidden_name(folder.name)}.partial")


def _item(entry: dict[str, Any]) -> tuple[str, dict[str, Whole]]:
    files = {}
    for path, (size, checksum) in dict(entry["files"]).items():
        files[relative_name(path, "the dataset")] = int(size), int(checksum)  # refuses a name of a file elsewhere
    return str(entry["item_id"]), files


def _whole(content: bytes) -> Whole:
    return len(content), zlib.crc32(content)
