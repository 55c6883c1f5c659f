"""The folder of a distance job: what it computes, which strips are done, and the result once all are.

::

    job.json             what is computed, of which labels by which label distance, and how the rows are cut
    items.json           the id of each row's item, if they have any
    done.txt             one line a strip, written after the strip itself is safe on the disk
    matrix.npy.partial   the result while it is being made; without .partial when it is whole (matrix.npy, or
                         ids.npy and distances.npy)
    lock                 held by the process that works on it; it goes with the process

A process killed at any moment leaves strips that are whole and recorded, and others that are made again. Not for:
making strips (strips.py, jobs.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.distances.jobs.row_file import TILE, RowFile, is_sound
from cml.distances.jobs.work import Arrays, Strip, Work
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.storage.atomic import PARTIAL, check_vacant, read_json, write_json
from cml.version import __version__

FORMAT = 1  # raise it when a label distance gives other numbers than before: what is stored then is not used any more
JOB, DONE, LOCK, ITEMS = "job.json", "done.txt", "lock", "items.json"
_BEING_MADE = ".partial"


class JobFolder:
    """A job that was begun, or is finished. Made by ``begin`` and ``find``.

    Attributes:
        folder: Where it lies.
        work: What it computes.
        strips: All strips.
    """

    def __init__(self, folder: Path, work: Work, strips: list[Strip]) -> None:
        self.folder, self.work, self.strips = folder, work, strips
        self._files: dict[str, RowFile] = {}
        self._recording = threading.Lock()

    @classmethod
    def begin(
        cls, folder: Path, work: Work, strips: list[Strip], about: Mapping[str, Any], item_ids: Sequence[str]
    ) -> JobFolder:
        """Write job.json, with ``about`` for people to read, and the ids of the rows if there are any."""
        (folder / DONE).unlink(missing_ok=True)
        if item_ids:
            write_json(folder / ITEMS, list(item_ids))
        distance = work.distance
        record = {
            "cml": __version__,
            **about,
            "label_distance": str(Choice(distance.name, distance.settings())),
            "unit": distance.unit,
            "symmetric": distance.is_symmetric,
            "items": len(work.labels),
            **_terms(work),
            "strips": [strip.start for strip in strips],
        }
        write_json(folder / JOB, record)
        return cls(folder, work, strips)

    @classmethod
    def find(cls, folder: Path, work: Work) -> JobFolder | None:
        """The job in ``folder``, if one was begun there.

        Raises:
            UserError: ``folder`` holds something else, or the job of something else: says what differs.
            DataError: job.json is damaged.
        """
        if not (folder / JOB).exists():
            if not folder.is_dir() or any(not _of_a_job(path.name) for path in folder.iterdir()):
                check_vacant(folder)
            return None
        record = read_record(folder)
        for name, now in _terms(work).items():
            if record.get(name) != now:
                raise UserError(
                    f"{folder} holds {_differs(name, record, now)}. Choose another folder, or delete this one to start "
                    "over."
                )
        starts = [*record["strips"], len(work.labels)]
        return cls(folder, work, [Strip(*ends) for ends in itertools.pairwise(starts)])

    @property
    def paths(self) -> list[Path]:
        """The files of the finished result."""
        return [self.folder / name for name in self.work.forms]

    @property
    def is_finished(self) -> bool:
        """True if the result is whole."""
        return all(self._is_whole(name) for name in self.work.forms)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Open the files for ``store`` and ``mirror``."""
        with contextlib.ExitStack() as stack:
            for name, form in self.work.forms.items():
                if self._is_whole(name):  # the process was killed among the last renames
                    continue
                path = self.folder / (name + _BEING_MADE)
                self._files[name] = stack.enter_context(RowFile(path, len(self.work.labels), form))
            if any(file.is_new for file in self._files.values()):
                (self.folder / DONE).unlink(missing_ok=True)
            self._cut_torn_line()
            yield
        self._files = {}

    def pending(self) -> list[Strip]:
        """The strips that are not recorded yet."""
        done = self._done()
        return [strip for strip in self.strips if f"strip {strip.start}" not in done]

    def store(self, strip: Strip, arrays: Arrays) -> None:
        """Write a strip, wait until it is on the disk, then record it. Several threads may call it."""
        for name, file in self._files.items():
            file.write(strip.start, arrays[name])
            file.sync()
        self._record(f"strip {strip.start}")

    def bands(self) -> list[int]:
        """First rows of the bands below the diagonal that are still to be mirrored."""
        done = self._done()
        starts = range(0, len(self.work.labels), TILE) if self.work.mirrored else ()
        return [start for start in starts if f"mirror {start}" not in done]

    def mirror(self, start: int) -> None:
        """Fill the band below the diagonal that begins with row ``start``, and record it."""
        for file in self._files.values():
            file.mirror(start)
            file.sync()
        self._record(f"mirror {start}")

    def finish(self) -> None:
        """Give the result its name; every strip and band must be done."""
        for name in self.work.forms:
            if not self._is_whole(name):
                os.replace(self.folder / (name + _BEING_MADE), self.folder / name)
        self._sync_folder()
        (self.folder / DONE).unlink(missing_ok=True)

    def _is_whole(self, name: str) -> bool:
        return is_sound(self.folder / name, len(self.work.labels), self.work.forms[name])

    def _record(self, line: str) -> None:
        with self._recording:
            is_first = not (self.folder / DONE).exists()
            with (self.folder / DONE).open("ab") as file:
                file.write(f"{line}\n".encode())
                file.flush()
                os.fsync(file.fileno())
            if is_first:
                self._sync_folder()

    def _done(self) -> set[str]:
        try:
            return set((self.folder / DONE).read_text(encoding="utf-8").splitlines())
        except FileNotFoundError:
            return set()

    def _cut_torn_line(self) -> None:
        """A process killed in mid-line leaves one without its end, to which the next would be added."""
        with contextlib.suppress(FileNotFoundError), (self.folder / DONE).open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_record(folder: Path) -> dict[str, Any]:
    """What job.json says.

    Raises:
        DataError: it is missing or damaged.
    """
    path = folder / JOB
    record = read_json(path, "the record of a distance job")
    starts: Any = record.get("strips") if isinstance(record, dict) else None
    whole = isinstance(starts, list) and all(isinstance(start, int) for start in starts)
    if not whole or starts[:1] != [0] or any(a >= b for a, b in itertools.pairwise(starts)) or "items" not in record:
        raise DataError(f"{path} is not the record of a distance job; delete {folder} to start over.")
    return dict(record)


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


def _differs(name: str, record: Mapping[str, Any], now: Any) -> str:  # noqa: ANN401 - any term
    then = record.get(name)
    if name == "kind":
        return f"the job of another kind, {then}, not {now}"
    if name == "format":
        return f"a job that another version of cml began ({record.get('cml')})"
    if name == "labels_fingerprint":
        return "the job of other labels: the items have changed, or it was begun on other ones"
    if name == "distance_fingerprint":
        return f"the job of another label distance, {record.get('label_distance')}"
    return f"a job with {name}={then}, now {name}={now}"


def _of_a_job(name: str) -> bool:
    return name in (LOCK, ITEMS) or (PARTIAL in name and (JOB in name or ITEMS in name))
