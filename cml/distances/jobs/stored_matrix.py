"""The matrix of a small set of labels whose distances are costly: computed once, with a forecast, then read."""

from dataclasses import replace

import numpy as np

from cml.console.durations import format_duration
from cml.console.messages import say
from cml.distances.jobs.run import Runner, on_threads, pairs_a_second, pairs_a_strip, progress_bar, run_job
from cml.distances.jobs.stored_lists import folder_of
from cml.distances.jobs.work import MatrixWork, Strip, cut
from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import Labels
from cml.distances.pair_function import PairFunction
from cml.distances.precomputed import Precomputed
from cml.errors import DataError
from cml.storage.resumable import FolderError

MOST_ITEMS = 4096  # a matrix of 64 MB
COSTLY = 20_000  # pairs a second below which a distance that does not say counts as costly, ..
LEAST_SECONDS = 0.2  # .. if all pairs take so long
SAID_FROM = 3.0  # seconds from which on the work is forecast


def through_matrix(
    distance: LabelDistance,
    labels: Labels,
    *,
    blocks: int,
    rows: int,
    all_pairs: bool = False,
    runner: Runner | None = None,
    quiet: bool = False,
) -> tuple[LabelDistance, Labels]:
    """The same distances of the same labels, to the last bit, read from a matrix where that is worth its cost."""
    # that is, for up to MOST_ITEMS labels of a costly distance, whose pairs are no more than those of so many blocks of
    # rows rows and columns, or of a search for neighbours that takes all_pairs
    count = len(labels)
    all_pairs &= type(distance).searcher is LabelDistance.searcher  # one of its own may do with fewer
    if not 2 <= count <= MOST_ITEMS or not (all_pairs or count**2 <= blocks * rows**2):
        return distance, labels
    if distance.class_names(labels[:1]) is not None or distance.label_vectors(labels[:1]) is not None:
        return distance, labels  # they may be asked for
    work = MatrixWork(distance, labels)
    if (is_costly := distance.is_costly) is None:
        rate = pairs_a_second(work, seconds=0.05)
        is_costly = rate < COSTLY and count**2 / rate > LEAST_SECONDS
    if not is_costly:
        return distance, labels
    runner = replace(runner or Runner(bar_after=None if quiet else 2.0), wait=True)
    folder = folder_of(work)
    is_job = distance.is_stored and not isinstance(distance, PairFunction)  # which stores its pairs itself
    if not (is_job and (folder / "matrix.npy").exists()):
        runner = _planned(work, runner, quiet=quiet)
    try:
        matrix: str | Float32 = str(run_job(work, folder, runner).path) if is_job else _in_memory(work, runner)
        stored = Precomputed(matrix, unit=distance.unit, symmetric=distance.is_symmetric)
    except (FolderError, DataError, OSError):
        return distance, labels
    return stored, stored.encode(range(count))


def _planned(work: MatrixWork, runner: Runner, *, quiet: bool) -> Runner:
    """How to cut the work, which is forecast on stderr if it takes long."""
    pairs, rate = work.all_pairs, pairs_a_second(work)
    if pairs / rate > SAID_FROM and not quiet:
        title = getattr(work.distance, "title", work.distance.name)
        say(
            f"The label distance {title!r} of {len(work.labels):,} items, computed once: {pairs:,} pairs "
            f"at {rate:,.0f} a second, {format_duration(pairs / rate)}."
        )
    return replace(runner, strip_pairs=runner.strip_pairs or pairs_a_strip(pairs, rate, runner.threads))


def _in_memory(work: MatrixWork, runner: Runner) -> Float32:
    """All distances (N, N)."""
    matrix = np.empty((len(work.labels), len(work.labels)), np.float32)

    def compute(strip: Strip) -> None:
        rows = slice(*strip)
        block = work.compute(strip)["matrix.npy"]  # the last columns of these rows
        columns = slice(len(matrix) - block.shape[1], None)
        matrix[rows, columns] = block
        if work.mirrored:
            matrix[columns, rows] = block.T

    strips = cut(work, runner.strip_pairs or len(matrix))
    with progress_bar(runner, "label distances", "pair", work.all_pairs) as bar:
        on_threads(compute, strips, runner.threads, lambda strip: bar.update(work.pairs(strip)))
    return matrix
