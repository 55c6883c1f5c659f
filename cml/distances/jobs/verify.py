"""Checks of a finished distance job: that it belongs to these labels, and a random part of it computed again."""

from pathlib import Path

import numpy as np

from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.folder import check_finished, read_record
from cml.distances.jobs.work import MatrixWork, NeighborsWork, Strip, Work
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import DataError, UserError
from cml.storage.regular_file import map_array

VERIFIED_ROWS, VERIFIED_LISTS = 64, 16


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
) -> int:
    """Compute a random part of a finished job again and compare every bit."""
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
    return len(rows) * len(columns)
