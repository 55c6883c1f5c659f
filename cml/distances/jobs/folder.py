"""The folder of a distance job, where job.json comes last; until then a journal records which strips are safe."""

import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.distances.jobs.row_file import TILE, RowFile, find_start
from cml.distances.jobs.work import Arrays, Strip, Work
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.storage.atomic import check_vacant
from cml.storage.checksums import FILES, digest_files, find_damaged, is_signed
from cml.storage.json_file import check_format, read_json, write_json
from cml.storage.resumable_output import ResumableOutput, read_complete, resumable_output, work_path
from cml.storage.saved_options import record

REVISION = 1  # raise it when a label distance gives other numbers than before: what is stored then is not used any more
JOB, ITEMS = "job.json", "items.json"


class JobFolder:
    """A job under way or finished. Created by ``job_folder``.

    ``folder``: the folder of the job.

    ``is_finished``: True if the result is complete.
    """

    def __init__(self, work: Work, output: ResumableOutput) -> None:
        self.folder, self.work, self.is_finished = output.out, work, output.manifest is not None
        self._output, self._files = output, dict[str, RowFile]()
        starts: Any = output.records[0].get("strips") if output.records else None
        known: list[int] = starts if _is_cut(starts) else []
        self.strips = [Strip(*ends) for ends in itertools.pairwise([*known, work.rows])]

    def begin(self, strips: Sequence[Strip]) -> None:  # strips: all strips, in order
        """Record how the rows are cut. Strips that were stored before are discarded."""
        if self._output.records:
            self._output.start_over()
        self.strips = list(strips)
        self._output.record({"strips": [strip.start for strip in strips]})

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Open the files for ``store`` and ``mirror``; where one was lost or damaged, all begin anew."""
        if not _is_sound(self._output.work, self.work):
            self.begin(self.strips)
        with contextlib.ExitStack() as stack:
            for name, form in self.work.forms.items():
                file = RowFile(self._output.work / name, self.work.rows, form)
                self._files[name] = stack.enter_context(file)
            yield

    def pending(self) -> list[Strip]:
        """List the strips that are not on the disk as they were recorded."""
        recorded = {entry["strip"]: entry.get("crc") for entry in self._output.records if "strip" in entry}

        def is_there(strip: Strip) -> bool:
            first = strip.start if self.work.mirrored else 0
            return recorded.get(strip.start) == [file.crc(*strip, first) for file in self._files.values()]

        return [strip for strip in self.strips if not is_there(strip)]

    def store(self, strip: Strip, arrays: Arrays) -> None:
        """Write a strip, wait until it is on the disk, then record it. Several threads may call it."""
        crc = [file.put(strip.start, arrays[name]) for name, file in self._files.items()]
        self._output.record({"strip": strip.start, "crc": crc})

    def bands(self) -> list[int]:
        """List the first rows of the bands below the diagonal that are to be mirrored."""
        return list(range(0, len(self.work.labels), TILE)) if self.work.mirrored else []

    def mirror(self, start: int) -> None:  # start: first row of the band
        """Fill a band below the diagonal."""
        for file in self._files.values():
            file.mirror(start)

    def finish(self, about: Mapping[str, Any], item_ids: Sequence[str]) -> None:
        """Publish the result when every strip and band is done."""
        if item_ids:
            write_json(self._output.work / ITEMS, list(item_ids))
        manifest = {
            **about,
            **_about(self.work),
            "unit": self.work.distance.unit,
            "symmetric": self.work.distance.is_symmetric,
            "items": len(self.work.labels),
            **_terms(self.work),
            "strips": [strip.start for strip in self.strips],
            FILES: digest_files(self._output.work, (*self.work.forms, ITEMS)),
        }
        self._output.finish(manifest)


@contextlib.contextmanager
def job_folder(
    folder: Path,
    work: Work,
    *,
    wait: bool,  # True to wait for another process that works on the same job; otherwise that is an error
) -> Iterator[JobFolder]:
    """Begin, continue or open a job in a folder that holds nothing else."""
    if not _is_begun(folder):
        try:
            check_vacant(folder)
        except UserError:
            if not _is_begun(folder):  # by now by another process
                raise
    if (folder / JOB).exists():
        read_record(folder)
    with resumable_output(
        folder,
        _terms(work),
        (*work.forms, ITEMS),
        JOB,
        about=_about(work),
        is_intact=lambda: _is_sound(folder, work) and find_damaged(folder, read_record(folder)) is None,
        parse=lambda entry: record(entry, dict[str, int | list[int]], "the record", "one of strips"),
        wait=wait,
    ) as output:
        yield JobFolder(work, output)


def _is_begun(folder: Path) -> bool:
    """Whether a job was begun in a folder; asked in this order, as a job that ends turns its work into the record."""
    return work_path(folder, JOB).is_dir() or (folder / JOB).exists()


def check_finished(folder: Path, work: Work) -> None:
    """Check that a folder holds this very job, finished, and that all of its files have their checksums."""
    record = read_complete(folder / JOB, _terms(work), _about(work))
    if record is None or not _is_sound(folder, work):
        raise UserError(f"The job in {folder} is not finished; run it again to continue.")
    if damaged := find_damaged(folder, record):
        raise DataError(f"{damaged} is damaged: its checksum is wrong. Delete {folder} and run the job again.")


def read_record(folder: Path) -> dict[str, Any]:
    """Read job.json."""
    path = folder / JOB
    if not path.exists() and work_path(folder, JOB).is_dir():
        raise UserError(f"The job in {folder} is not finished; run it again to continue.")
    job = read_json(path, "the record of a distance job")
    if not isinstance(job, dict) or not _is_cut(job.get("strips")) or "items" not in job:
        raise DataError(f"{path} is not the record of a distance job; delete {folder} to start over.")
    check_format(job, path, f"Delete {folder} and compute the distances again with 'cml distances'.")
    if not is_signed(job):
        raise DataError(f"{path} is damaged: its checksum is wrong. Delete {folder} and run the job again.")
    return dict(job)


def _is_cut(starts: Any) -> bool:  # noqa: ANN401 - any JSON
    """Whether rows may be cut into strips that begin there."""
    if not isinstance(starts, list) or starts[:1] != [0] or not all(type(start) is int for start in starts):
        return False
    return all(a < b for a, b in itertools.pairwise(starts))


def key(work: Work) -> str:
    """Compute the key of labels and label distance, the same for every job on them."""
    terms = _terms(work)
    parts = (terms["revision"], terms["labels_fingerprint"], terms["distance_fingerprint"])
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()


def _terms(work: Work) -> dict[str, Any]:
    """Collect what decides the result."""
    name, value = work.option
    return {
        "kind": work.kind,
        "revision": REVISION,
        "labels_fingerprint": work.labels.fingerprint(),
        "distance_fingerprint": work.distance.fingerprint(),
        name: value,
    }


def _about(work: Work) -> dict[str, Any]:
    """Describe what the digests of ``_terms`` are of."""
    return {"label_distance": str(Choice(work.distance.name, work.distance.settings()))}


def _is_sound(folder: Path, work: Work) -> bool:
    return all(find_start(folder / name, work.rows, form) is not None for name, form in work.forms.items())
