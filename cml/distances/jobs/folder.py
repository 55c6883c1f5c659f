"""The folder of a distance job: what it computes, which strips are done, and the result once all are.

::

    job.json             what is computed, of which labels by which label distance, and how the rows are cut
    items.json           the id of each row's item, if they have any
    matrix.npy           the result: this, or ids.npy and distances.npy

job.json is written last. Until then everything grows in a hidden folder (cml.storage.resumable), whose journal says
which strips, and at the end which bands below the diagonal, are safe on the disk. Not for: making strips (work.py,
run.py).
"""

import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.distances.jobs.row_file import TILE, RowFile, is_sound
from cml.distances.jobs.work import Arrays, Strip, Work
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.storage.atomic import check_vacant, read_json, write_json
from cml.storage.resumable import Building, building, found_whole, work_of
from cml.storage.saved_options import record
from cml.version import __version__

FORMAT = 1  # raise it when a label distance gives other numbers than before: what is stored then is not used any more
JOB, ITEMS = "job.json", "items.json"


class JobFolder:
    """A job under way, or finished. Made by ``job_folder``.

    Attributes:
        folder: Where it lies.
        work: What it computes.
        strips: All strips; empty until they are cut.
        is_finished: True if the result is whole.
    """

    def __init__(self, work: Work, made: Building) -> None:
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
        paths = {name: self._made.work / name for name in self.work.forms}
        forms = self.work.forms.items()
        if not all(is_sound(paths[name], len(self.work.labels), form) for name, form in forms):
            self.begin(self.strips)
        with contextlib.ExitStack() as stack:
            for name, form in forms:
                self._files[name] = stack.enter_context(RowFile(paths[name], len(self.work.labels), form))
            yield

    def pending(self) -> list[Strip]:
        """The strips that are not recorded yet."""
        done = self._recorded("strip")
        return [strip for strip in self.strips if strip.start not in done]

    def store(self, strip: Strip, arrays: Arrays) -> None:
        """Write a strip, wait until it is on the disk, then record it. Several threads may call it."""
        for name, file in self._files.items():
            file.write(strip.start, arrays[name])
            file.sync()
        self._made.record({"strip": strip.start})

    def bands(self) -> list[int]:
        """First rows of the bands below the diagonal that are still to be mirrored."""
        done, starts = self._recorded("mirror"), range(0, len(self.work.labels), TILE)
        return [start for start in starts if start not in done] if self.work.mirrored else []

    def mirror(self, start: int) -> None:
        """Fill the band below the diagonal that begins with row ``start``, and record it."""
        for file in self._files.values():
            file.mirror(start)
            file.sync()
        self._made.record({"mirror": start})

    def finish(self, about: Mapping[str, Any], item_ids: Sequence[str]) -> None:
        """Give the result its name; every strip and band must be done.

        ``about`` is what job.json says beside, for people to read; ``item_ids`` are those of the rows' items, if any.
        """
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
    """Begin, continue or find a job; whoever comes second waits, or is refused.

    Raises:
        UserError: ``folder`` holds something else, the job of something else (says what differs), or another process
            works on it.
        FolderError: it cannot be written.
        DataError: job.json is damaged.
    """
    if (folder / JOB).exists():
        read_record(folder)
    elif not work_of(folder, JOB).is_dir():
        check_vacant(folder)

    def sound() -> bool:
        return _is_sound(folder, work)

    parts = (*work.forms, ITEMS)

    def parse(entry: object) -> object:
        return record(entry, dict[str, int | list[int]], "the record", "one of strips")

    about = _about(work)
    with building(folder, _terms(work), parts, JOB, about=about, sound=sound, parse=parse, wait=wait) as made:
        yield JobFolder(work, made)


def check_finished(folder: Path, work: Work) -> None:
    """Raise ``UserError`` unless ``folder`` holds this very job, finished."""
    if found_whole(folder / JOB, _terms(work), _about(work)) is None or not _is_sound(folder, work):
        raise UserError(f"The job in {folder} is not finished; run it again to continue.")


def read_record(folder: Path) -> dict[str, Any]:
    """What job.json says.

    Raises:
        UserError: the job is not finished.
        DataError: job.json is missing or damaged.
    """
    path = folder / JOB
    if not path.exists() and work_of(folder, JOB).is_dir():
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
    return all(is_sound(folder / name, len(work.labels), form) for name, form in work.forms.items())
