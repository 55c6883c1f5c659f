"""Checks of a finished distance job: that it belongs to these labels, and a random part of it computed again."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.folder import check_finished, read_record
from cml.distances.jobs.work import MatrixWork, NeighborsWork, Strip, Work
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import DataError, UserError
from cml.storage.checksums import FILES
from cml.storage.regular_file import map_array

VERIFIED_ROWS, VERIFIED_LISTS = 64, 16


class Verified(NamedTuple):
    """What was verified, all of it equal."""

    compared: int  # stored distances that were computed again
    stored: int  # all that are stored
    files: list[str]  # whose checksums hold


def open_job(
    distance: LabelDistance,
    labels: Labels,  # the N encoded labels that it should be of
    folder: Path,
) -> Work:
    """Open a finished job."""
    record = read_record(folder)
    if record["items"] != len(labels):
        raise UserError(f"{folder} holds the job of {record['items']} items, but there are {len(labels)}.")
    work: Work
    if record.get("kind") == MatrixWork.kind:
        work = MatrixWork(distance, labels, record.get("dtype", ""))
    else:
        work = NeighborsWork(distance, labels, record.get("k", 0))
    check_finished(folder, work)
    return work


def verify(
    distance: LabelDistance,
    labels: Labels,  # the N encoded labels of the job
    folder: Path,
    *,
    seed: int | None = None,  # seed of the random part. None for another part at each call
) -> Verified:
    """Compare all files of a finished job with their checksums, and compute a random part of it again, bit by bit."""
    work = open_job(distance, labels, folder)
    rng, n = np.random.default_rng(seed), len(labels)
    if isinstance(work, MatrixWork):
        rows, columns = (np.sort(rng.choice(n, min(n, VERIFIED_ROWS), replace=False)) for _ in range(2))
        with one_blas_thread():
            again = {"matrix.npy": work.block(rows, columns)}
    else:
        rows = np.sort(rng.choice(n, min(n, VERIFIED_LISTS), replace=False))
        columns = np.arange(work.option[1])
        with one_blas_thread():
            lists = [work.compute(Strip(row, row + 1)) for row in rows.tolist()]
        again = {name: np.concatenate([neighbors[name] for neighbors in lists]) for name in work.forms}
    for name, expected in again.items():
        stored = map_array(folder / name)[rows[:, None], columns]
        if len(wrong := np.argwhere(stored != expected)):
            row, column = wrong[0]
            raise DataError(
                f"{folder / name} has {stored[row, column]:g} at row {rows[row]}, column {columns[column]}, where "
                f"{expected[row, column]:g} was computed now; {len(wrong)} of {expected.size} compared numbers differ. "
                "Delete its folder and run the job again."
            )
    files = read_record(folder)[FILES]
    return Verified(len(rows) * len(columns), work.rows * next(iter(work.forms.values())).columns, sorted(files))
