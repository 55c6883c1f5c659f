"""Neighbour lists that were computed before are found again, by the fingerprints of labels and label distance.

They lie in ``$CML_CACHE`` (default ``~/.cache/cml``) below ``distances``: the folders of jobs, and notes of where
jobs lie that were written elsewhere. Deleting all of it costs only time. Not for: making lists (run.py).
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from cml.distances.jobs.check import open_job
from cml.distances.jobs.folder import key
from cml.distances.jobs.run import Runner, progress_bar, write_neighbors
from cml.distances.jobs.work import NeighborsWork, Work
from cml.distances.label_distance import LabelDistance, Neighbors
from cml.distances.labels import Labels
from cml.errors import DataError, UserError
from cml.storage.atomic import cache_folder, read_json, write_json
from cml.storage.npy import map_array
from cml.storage.work_folder import FolderError

_ELSEWHERE = "elsewhere-"


def stored_neighbors(distance: LabelDistance, labels: Labels, k: int, *, runner: Runner | None = None) -> Neighbors:
    """The exact k nearest labels of each label, as ``distance.neighbors(labels, k)`` gives them.

    Lists of k or more neighbours that a job has written are read; otherwise they are computed by a job that stores
    them, which goes on where one was killed and waits for another process that makes the same lists. Where nothing
    can be stored they are computed in memory.

    Args:
        distance: The label distance.
        labels: N encoded labels.
        k: Neighbours a label, 1 <= k < N.
        runner: How to compute them; None: two threads, a progress bar after two seconds.

    Raises:
        UserError: k is not in 1..N-1.
    """
    work = NeighborsWork(distance, labels, k)
    runner = replace(runner or Runner(bar_after=2.0), wait=True)
    if not distance.is_stored:
        with progress_bar(runner, work.kind, "row", len(labels)) as bar:
            return distance.neighbors(labels, k, threads=runner.threads, progress=bar.update)
    found = _stored(work)
    if found is not None:
        return found
    try:
        folder = write_neighbors(distance, labels, folder_of(work), k, runner=runner).folder
        return _read(folder, k)
    except (FolderError, DataError, OSError):
        return distance.neighbors(labels, k, threads=runner.threads)


def folder_of(work: Work) -> Path:
    """Where in the cache a job is kept."""
    return _shelf(work) / f"{work.kind}-{work.option[1]}"


def note(folder: Path, work: Work) -> None:
    """Note in the cache where a finished job lies, so that its lists are found again."""
    place = str(folder.resolve())
    if place == str(folder_of(work).resolve()):
        return
    name = f"{_ELSEWHERE}{hashlib.sha256(place.encode(errors='surrogateescape')).hexdigest()[:16]}.json"
    try:
        (_shelf(work)).mkdir(parents=True, exist_ok=True)
        write_json(_shelf(work) / name, {"folder": place})
    except (OSError, UserError):
        pass  # a cache that cannot be written, or a place that cannot be noted, costs time only


def _shelf(work: Work) -> Path:
    """The folder in the cache for all that is of the same labels and label distance."""
    return cache_folder() / "distances" / key(work)[:32]


def _stored(work: NeighborsWork) -> Neighbors | None:
    """The shortest lists found that are long enough, cut to k."""
    found: list[tuple[int, Path]] = []
    for folder in _folders(_shelf(work)):
        try:
            there = open_job(work.distance, work.labels, folder)
        except (UserError, OSError):  # not finished, moved away, or damaged
            continue
        if isinstance(there, NeighborsWork) and there.k >= work.k:
            found.append((there.k, folder))
    for _, folder in sorted(found):
        try:
            return _read(folder, work.k)
        except (OSError, ValueError):  # damaged: as if it were not there
            continue
    return None


def _folders(shelf: Path) -> Iterator[Path]:
    yield from shelf.glob(f"{NeighborsWork.kind}-*")
    for path in shelf.glob(f"{_ELSEWHERE}*.json"):
        try:
            yield Path(read_json(path, "the place of a distance job")["folder"])
        except (UserError, KeyError, TypeError):
            continue


def _read(folder: Path, k: int) -> Neighbors:
    ids, distances = (map_array(folder / name) for name in ("ids.npy", "distances.npy"))
    return Neighbors(np.array(ids[:, :k]), np.array(distances[:, :k]))
