"""The matrix of a small set of labels whose distances are costly: computed once, with a forecast, then read."""

from dataclasses import replace

import numpy as np

from cml.array_types import Float32
from cml.console.messages import format_duration, say
from cml.distances.jobs.forecast import choose_strip_pairs, measure_rate
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.local_executor import run_on_threads
from cml.distances.jobs.run import run_job
from cml.distances.jobs.stored_lists import folder_of
from cml.distances.jobs.work import MatrixWork, Strip, cut
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.pair_function import PairFunction
from cml.distances.precomputed import Precomputed
from cml.errors import DataError
from cml.storage.work_folder import FolderError

MOST_ITEMS = 4096  # a matrix of 64 MB
COSTLY = 20_000  # pairs a second, below which a distance that does not say whether it is costly counts as costly
LEAST_SECONDS = 0.2  # that all pairs of such a distance take at least; a matrix saves nothing otherwise
SAID_FROM = 3.0  # seconds from which on the work is forecast


def replace_costly_distance(
    distance: LabelDistance,
    labels: Labels,  # N encoded labels
    *,
    blocks: int,
    rows: int,
    all_pairs: bool = False,
    options: JobOptions | None = None,  # how to compute the matrix. None for the defaults
    quiet: bool = False,
) -> tuple[LabelDistance, Labels]:
    """Replace a costly label distance by the matrix of all its distances, where that is worth its cost.

    It is for up to ``MOST_ITEMS`` labels of a costly distance, whose pairs are no more than those that will be
    asked for: those of ``blocks`` blocks, or of a search for neighbours that takes all pairs.

    Returns a label distance and the labels encoded for it, whose distances are the same to the last bit: those of the
    matrix, or ``distance`` and ``labels`` as they are.
    """
    count = len(labels)
    all_pairs &= type(distance).searcher is LabelDistance.searcher  # one of its own may do with fewer
    if not 2 <= count <= MOST_ITEMS or not (all_pairs or count**2 <= blocks * rows**2):
        return distance, labels
    if distance.class_names(labels[:1]) is not None or distance.label_vectors(labels[:1]) is not None:
        return distance, labels  # they may be asked for
    work = MatrixWork(distance, labels)
    is_costly = distance.is_costly
    if is_costly is None:
        rate = measure_rate(work, seconds=0.05)
        is_costly = rate < COSTLY and count**2 / rate > LEAST_SECONDS
    if not is_costly:
        return distance, labels
    options = replace(options or JobOptions(bar_after=None if quiet else 2.0), wait=True)
    folder = folder_of(work)
    is_job = distance.is_stored and not isinstance(distance, PairFunction)  # which stores its pairs itself
    if not (is_job and (folder / "matrix.npy").exists()):
        options = _plan_strips(work, options, quiet=quiet)
    try:
        matrix: str | Float32
        matrix = str(run_job(work, folder, options).path) if is_job else _compute_in_memory(work, options)
        stored = Precomputed(matrix, unit=distance.unit, symmetric=distance.is_symmetric)
    except (FolderError, DataError, OSError):
        return distance, labels
    return stored, stored.encode(range(count))


def _plan_strips(work: MatrixWork, options: JobOptions, *, quiet: bool) -> JobOptions:
    """Choose the size of the strips, and forecast the work in a message if it takes long."""
    pairs, rate = work.all_pairs, measure_rate(work)
    if pairs / rate > SAID_FROM and not quiet:
        title = getattr(work.distance, "title", work.distance.name)
        say(
            f"The label distance {title!r} of {len(work.labels):,} items, computed once: {pairs:,} pairs "
            f"at {rate:,.0f} a second, {format_duration(pairs / rate)}."
        )
    return replace(options, strip_pairs=options.strip_pairs or choose_strip_pairs(pairs, rate, options.threads))


def _compute_in_memory(work: MatrixWork, options: JobOptions) -> Float32:
    """Compute all distances (N, N)."""
    matrix = np.empty((len(work.labels), len(work.labels)), np.float32)

    def compute(strip: Strip) -> None:
        rows = slice(*strip)
        block = work.compute(strip)["matrix.npy"]  # the last columns of these rows
        columns = slice(len(matrix) - block.shape[1], None)
        matrix[rows, columns] = block
        if work.mirrored:
            matrix[columns, rows] = block.T

    strips = cut(work, options.strip_pairs or len(matrix))
    with options.progress_bar("label distances", "pair", work.all_pairs) as bar:
        run_on_threads(compute, strips, options.threads, lambda strip: bar.update(work.pairs(strip)))
    return matrix
