"""The matrix of a small set of labels whose distances are costly: computed once, then read by every run.

A batch of 150 images with captions asks for 11,175 distances, a fifth of a second of a processor; a few hundred such
batches cost more than all pairs of 2,000 images do. The matrix is a job like any other (jobs.py) in the cache
(stored_lists.py). Not for: large sets, which get their blocks on demand.
"""

from __future__ import annotations

from dataclasses import replace

from cml.distances.jobs.run import Runner, write_matrix
from cml.distances.jobs.stored_lists import folder_of
from cml.distances.jobs.work import FolderError, MatrixWork
from cml.distances.label_distance import LabelDistance, Labels
from cml.distances.precomputed import Precomputed
from cml.errors import DataError

MOST_ITEMS = 4096  # a matrix of 64 MB


def through_matrix(
    distance: LabelDistance, labels: Labels, *, blocks: int, rows: int, runner: Runner | None = None
) -> tuple[LabelDistance, Labels]:
    """The same distances of the same labels, read from a matrix where that is worth its cost.

    It is where the distance is costly, there are at most ``MOST_ITEMS`` labels, and all their pairs are no more than
    those of the blocks. Then the matrix is read if a run before has made it, otherwise computed and kept. To the last
    bit the distances are those of ``distance.pairwise``. Where nothing can be kept, everything stays as it is.

    Args:
        distance: The label distance.
        labels: N encoded labels.
        blocks: How many blocks will be asked for ..
        rows: .. of how many rows and columns each.
        runner: How to compute the matrix; None: two threads, a progress bar after two seconds.

    Returns:
        The distance, and the labels as it takes them, in their order.
    """
    worth = 2 <= len(labels) <= MOST_ITEMS and len(labels) ** 2 <= blocks * rows**2
    if not (distance.is_costly and distance.is_stored and worth):
        return distance, labels
    folder = folder_of(MatrixWork(distance, labels))
    try:
        written = write_matrix(distance, labels, folder, runner=replace(runner or Runner(bar_after=2.0), wait=True))
        stored = Precomputed(str(written.path), unit=distance.unit, symmetric=distance.is_symmetric)
    except (FolderError, DataError, OSError):
        return distance, labels
    return stored, stored.encode(range(len(labels)))
