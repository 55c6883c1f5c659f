"""Finished distance jobs: opened for reading, and a random part computed again.

Not for: doing jobs (run.py).
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.folder import check_finished, read_record
from cml.distances.jobs.work import MatrixWork, NeighborsWork, Strip, Work
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import DataError, UserError
from cml.storage.npy import map_array

VERIFIED_ROWS, VERIFIED_LISTS = 64, 16


def open_job(distance: LabelDistance, labels: Labels, folder: Path) -> Work:
    """What a finished job computed, of these labels and this label distance, whatever its kind.

    Raises:
        UserError: the job in ``folder`` is of something else, or not finished.
        DataError: there is none, or job.json is damaged.
    """
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


def verify(distance: LabelDistance, labels: Labels, folder: Path, *, seed: int | None = None) -> int:
    """Compute a random part of a finished job again and compare it, to the last bit, with what is stored.

    Of a matrix these are the distances between 64 rows and 64 columns, of neighbour lists those of 16 items.

    Args:
        distance: The label distance.
        labels: N encoded labels.
        folder: Folder of the job.
        seed: Of the draw; None: another part each time.

    Returns:
        Stored distances compared.

    Raises:
        UserError: the job in ``folder`` is of something else, or not finished.
        DataError: what is stored differs from what was computed: says where.
    """
    work = open_job(distance, labels, folder)
    rng, n = np.random.default_rng(seed), len(labels)
    stored = {name: map_array(folder / name) for name in work.forms}
    if isinstance(work, MatrixWork):
        rows, columns = (np.sort(rng.choice(n, min(n, VERIFIED_ROWS), replace=False)) for _ in range(2))
        with one_blas_thread():
            expected = work.stored(rows, columns)
        _compare(folder / "matrix.npy", rows, columns, stored["matrix.npy"][rows[:, None], columns], expected)
        return expected.size
    rows = np.sort(rng.choice(n, min(n, VERIFIED_LISTS), replace=False))
    columns = np.arange(work.option[1])
    for row in rows:
        with one_blas_thread():
            lists = work.compute(Strip(int(row), int(row) + 1))
        for name, expected in lists.items():
            _compare(folder / name, row[None], columns, stored[name][row][None], expected)
    return len(rows) * len(columns)


def _compare(
    path: Path, rows: NDArray[np.intp], columns: NDArray[np.intp], stored: NDArray[Any], expected: NDArray[Any]
) -> None:
    wrong = np.argwhere(stored != expected)
    if len(wrong):
        row, column = wrong[0]
        raise DataError(
            f"{path} has {stored[row, column]:g} at row {rows[row]}, column {columns[column]}, where "
            f"{expected[row, column]:g} was computed now; {len(wrong)} of {expected.size} compared numbers differ. "
            "Delete its folder and run the job again."
        )
