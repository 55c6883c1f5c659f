"""Neighbour lists that were computed before are found again, in ``$CML_CACHE`` below ``distances``, by fingerprints."""

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from cml.distances.jobs.folder import key
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import run_job
from cml.distances.jobs.verify import open_job
from cml.distances.jobs.work import NeighborsWork, Work
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import Neighbors
from cml.errors import DataError, UserError
from cml.storage.downloads import cache_folder
from cml.storage.json_file import read_json, write_json
from cml.storage.regular_file import map_array
from cml.storage.work_folder import FolderError

_ELSEWHERE = "elsewhere-"


def stored_neighbors(
    distance: LabelDistance,
    labels: Labels,  # N encoded labels
    k: int,  # neighbours of each label, 1 to N - 1
    *,
    options: JobOptions | None = None,  # how to compute lists that are not there. None for the defaults
) -> Neighbors:  # what ``distance.neighbors(labels, k)`` gives
    """Find the k nearest labels of each label, in lists that a job wrote or else by a new job in the cache."""
    work = NeighborsWork(distance, labels, k)
    options = replace(options or JobOptions(bar_after=2.0), wait=True)
    if not distance.is_stored or distance.is_partial:  # known pairs are faster to sort than all pairs to plan
        with options.progress_bar(work.kind, "row", len(labels)) as bar:
            return distance.neighbors(labels, k, threads=options.threads, progress=bar.update)
    stored = _read_stored(work)
    if stored is not None:
        return stored
    try:
        return _read(run_job(work, folder_of(work), options).folder, k)
    except (FolderError, DataError, OSError):
        return distance.neighbors(labels, k, threads=options.threads)


def folder_of(work: Work) -> Path:
    """Return the folder in the cache where a job is kept."""
    return _shelf(work) / f"{work.kind}-{work.option[1]}"


def note(folder: Path, work: Work) -> None:
    """Note in the cache where a finished job lies, so that its lists are found again."""
    place = str(folder.resolve())
    if place == str(folder_of(work).resolve()):
        return
    name = f"{_ELSEWHERE}{hashlib.sha256(place.encode(errors='surrogateescape')).hexdigest()[:16]}.json"
    with contextlib.suppress(OSError, UserError):  # a cache or note that cannot be written costs time only
        write_json(_shelf(work) / name, {"folder": place})


def _shelf(work: Work) -> Path:
    """The folder in the cache for all that is of the same labels and label distance."""
    return cache_folder() / "distances" / key(work)[:32]


def _read_stored(work: NeighborsWork) -> Neighbors | None:
    """The shortest lists found that are long enough, cut to k."""
    folders = list(_shelf(work).glob(f"{work.kind}-*"))
    candidates: list[tuple[int, Path]] = []
    for path in _shelf(work).glob(f"{_ELSEWHERE}*.json"):
        with contextlib.suppress(UserError, KeyError, TypeError):
            folders.append(Path(read_json(path, "the place of a distance job")["folder"]))
    for folder in folders:
        with contextlib.suppress(UserError, OSError):  # not finished, moved away, or damaged
            stored = open_job(work.distance, work.labels, folder)
            if isinstance(stored, NeighborsWork) and stored.k >= work.k:
                candidates.append((stored.k, folder))
    for _, folder in sorted(candidates):
        with contextlib.suppress(OSError, ValueError):  # damaged: as if it were not there
            return _read(folder, work.k)
    return None


def _read(folder: Path, k: int) -> Neighbors:
    ids, distances = (map_array(folder / name) for name in ("ids.npy", "distances.npy"))
    return Neighbors(np.array(ids[:, :k]), np.array(distances[:, :k]))
