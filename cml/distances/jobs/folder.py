"""The folder of a distance job, where job.json comes last; until then a journal says which strips are safe."""
# The whole room of an array on the disk is taken at the start, and it is written by pwrite, not through a memory map: a
# disk that is full is then an error at the start, and the memory of the process stays that of the strips.

import contextlib
import errno
import hashlib
import io
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.jobs.work import Arrays, Form, Strip, Work
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.storage import system
from cml.storage.atomic import check_vacant, read_json, write_all, write_json
from cml.storage.npy import map_array
from cml.storage.resumable import FolderError, ResumableOutput, read_complete, resumable_output, work_path
from cml.storage.saved_options import record
from cml.version import __version__

FORMAT = 1  # raise it when a label distance gives other numbers than before: what is stored then is not used any more
JOB, ITEMS = "job.json", "items.json"
TILE = 1024  # rows and columns mirrored at a time: runs of 4 KiB of float32, a page of the disk


class JobFolder:
    """A job under way, or finished, with all its strips, which are none until they are cut. Made by ``job_folder``."""

    def __init__(self, work: Work, made: ResumableOutput) -> None:
        self.folder, self.work, self.is_finished = made.out, work, made.manifest is not None
        self._made, self._files = made, dict[str, RowFile]()
        starts: Any = made.records[0].get("strips") if made.records else None
        known: list[int] = starts if _is_cut(starts) else []
        self.strips = [Strip(*ends) for ends in itertools.pairwise([*known, len(work.labels)])]

    def begin(self, strips: Sequence[Strip]) -> None:
        """Say how the rows are cut; whatever was done is done anew."""
        if self._made.records:
            self._made.start_over()
        self.strips = list(strips)
        self._made.record({"strips": [strip.start for strip in strips]})

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Open the files for ``store`` and ``mirror``; where one was lost or damaged, all begin anew."""
        if not _is_sound(self._made.work, self.work):
            self.begin(self.strips)
        with contextlib.ExitStack() as stack:
            for name, form in self.work.forms.items():
                file = RowFile(self._made.work / name, len(self.work.labels), form)
                self._files[name] = stack.enter_context(file)
            yield

    def pending(self) -> list[Strip]:
        """The strips that are not recorded yet."""
        done = self._recorded("strip")
        return [strip for strip in self.strips if strip.start not in done]

    def store(self, strip: Strip, arrays: Arrays) -> None:
        """Write a strip, wait until it is on the disk, then record it. Several threads may call it."""
        for name, file in self._files.items():
            file.put(strip.start, arrays[name])
        self._made.record({"strip": strip.start})

    def bands(self) -> list[int]:
        """First rows of the bands below the diagonal that are still to be mirrored."""
        done, starts = self._recorded("mirror"), range(0, len(self.work.labels), TILE)
        return [start for start in starts if start not in done] if self.work.mirrored else []

    def mirror(self, start: int) -> None:
        """Fill the band below the diagonal that begins with row ``start``, and record it."""
        for file in self._files.values():
            file.mirror(start)
        self._made.record({"mirror": start})

    def finish(self, about: Mapping[str, Any], item_ids: Sequence[str]) -> None:
        """Give the result its name when every strip and band is done; ``about`` is for people who read job.json."""
        if item_ids:
            write_json(self._made.work / ITEMS, list(item_ids))
        said = {
            "cml": __version__,
            **about,
            **_about(self.work),
            "unit": self.work.distance.unit,
            "symmetric": self.work.distance.is_symmetric,
            "items": len(self.work.labels),
            **_terms(self.work),
            "strips": [strip.start for strip in self.strips],
        }
        self._made.finish(said)

    def _recorded(self, what: str) -> set[object]:
        return {one.get(what) for one in self._made.records}


@contextlib.contextmanager
def job_folder(folder: Path, work: Work, *, wait: bool) -> Iterator[JobFolder]:
    """Begin, continue or find a job in a folder that holds nothing else; whoever comes second waits, or is refused."""
    if (folder / JOB).exists():
        read_record(folder)
    elif not work_path(folder, JOB).is_dir():
        check_vacant(folder)
    with resumable_output(
        folder,
        _terms(work),
        (*work.forms, ITEMS),
        JOB,
        about=_about(work),
        sound=lambda: _is_sound(folder, work),
        parse=lambda entry: record(entry, dict[str, int | list[int]], "the record", "one of strips"),
        wait=wait,
    ) as made:
        yield JobFolder(work, made)


def check_finished(folder: Path, work: Work) -> None:
    """Raise ``UserError`` unless ``folder`` holds this very job, finished."""
    if read_complete(folder / JOB, _terms(work), _about(work)) is None or not _is_sound(folder, work):
        raise UserError(f"The job in {folder} is not finished; run it again to continue.")


def read_record(folder: Path) -> dict[str, Any]:
    """What job.json says; ``UserError`` if the job is not finished, ``DataError`` if it is missing or damaged."""
    path = folder / JOB
    if not path.exists() and work_path(folder, JOB).is_dir():
        raise UserError(f"The job in {folder} is not finished; run it again to continue.")
    found = read_json(path, "the record of a distance job")
    if not isinstance(found, dict) or not _is_cut(found.get("strips")) or "items" not in found:
        raise DataError(f"{path} is not the record of a distance job; delete {folder} to start over.")
    return dict(found)


def _is_cut(starts: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether rows may be cut into strips that begin there."""
    if not isinstance(starts, list) or starts[:1] != [0] or not all(type(start) is int for start in starts):
        return False
    return all(a < b for a, b in itertools.pairwise(starts))


def key(work: Work) -> str:
    """Hex digest of labels and label distance: the same for every job on them."""
    terms = _terms(work)
    parts = (terms["format"], terms["labels_fingerprint"], terms["distance_fingerprint"])
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def _terms(work: Work) -> dict[str, Any]:
    """What decides the result."""
    name, value = work.option
    return {
        "kind": work.kind,
        "format": FORMAT,
        "labels_fingerprint": work.labels.fingerprint(),
        "distance_fingerprint": work.distance.fingerprint(),
        name: value,
    }


def _about(work: Work) -> dict[str, Any]:
    """What the digests of ``_terms`` are of."""
    return {"label_distance": str(Choice(work.distance.name, work.distance.settings()))}


def _is_sound(folder: Path, work: Work) -> bool:
    return all(_start(folder / name, len(work.labels), form) is not None for name, form in work.forms.items())


def _start(path: Path, rows: int, form: Form) -> int | None:
    """Where the numbers of a sound file begin."""
    try:
        array: Any = map_array(path)
    except (OSError, ValueError):
        return None
    sound = isinstance(array, np.memmap) and array.shape == (rows, form.columns) and array.dtype == form.dtype
    return int(array.offset) if sound and array.flags.c_contiguous else None


class RowFile(io.FileIO):
    """An array (rows, form.columns) on disk; a file that has not exactly the right head and size is replaced."""

    def __init__(self, path: Path, rows: int, form: Form) -> None:
        self._rows, self._form = rows, form
        start = _start(path, rows, form)
        is_new = start is None
        if start is None:
            path.unlink(missing_ok=True)
            start = int(np.lib.format.open_memmap(path, "w+", form.dtype, (rows, form.columns)).offset)
        self._start = start
        super().__init__(path, "r+")
        if is_new and hasattr(os, "posix_fallocate"):
            size = os.fstat(self.fileno()).st_size
            try:
                os.posix_fallocate(self.fileno(), 0, size)
            except OSError as error:
                self.close()
                path.unlink()
                if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    raise
                raise FolderError(
                    f"The disk has no room for {path}: it takes {size:,} bytes ({error.strerror}). Free some space or "
                    "choose another folder."
                ) from None

    def put(self, start: int, block: NDArray[Any]) -> None:
        """Write ``block`` (R, C) to the disk, as the last C columns of the rows from ``start`` on."""
        block = np.ascontiguousarray(block, self._form.dtype)
        if (first := self._form.columns - block.shape[1]) == 0:
            self._put(start, 0, block)
        else:
            for row, values in enumerate(block, start):
                self._put(row, first, values)
        os.fsync(self.fileno())

    def mirror(self, start: int) -> None:
        """Copy what is above the diagonal of a square array to below it, in the ``TILE`` rows from ``start`` on."""
        stop = min(start + TILE, self._rows)
        for first in range(0, stop, TILE):
            tile = np.empty((min(first + TILE, stop) - first, stop - start), self._form.dtype)
            for row, values in enumerate(tile, first):
                into = values.view(np.uint8).data
                if system.read_at(self.fileno(), into, self._at(row, start)) != len(into):
                    raise OSError(errno.EIO, "The file ends too early", str(self.name))
            mirrored = np.ascontiguousarray(tile.T)
            if first == start:
                mirrored = np.where(np.tri(len(tile), len(tile), -1, dtype=np.bool_), mirrored, tile)
            for row, values in enumerate(mirrored, start):
                self._put(row, first, values)
        os.fsync(self.fileno())

    def _at(self, row: int, column: int) -> int:
        return self._start + (row * self._form.columns + column) * self._form.dtype.itemsize

    def _put(self, row: int, column: int, values: NDArray[Any]) -> None:
        write_all(self.fileno(), values.reshape(-1).view(np.uint8).data, self._at(row, column))
