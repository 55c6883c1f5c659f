"""Distance jobs: a whole matrix or all neighbour lists, written strip by strip, resumed after a kill.

``write_matrix`` and ``write_neighbors`` do nothing if the result is there, continue where a killed process stopped, and
refuse a folder that holds the result of other labels or settings. Memory is that of the strips under way, whatever the
number of items. The result does not depend on threads, strips or machines.

Not for: checking a finished job (verify.py), blocks on demand, which ``LabelDistance.pairwise`` gives, lists that stay
in memory (``LabelDistance.neighbors``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml.distances.jobs.folder import JobFolder, job_folder
from cml.distances.jobs.forecast import check_disk_space, choose_strip_pairs, forecast, measure_rate
from cml.distances.jobs.job_options import JobOptions, JobResult
from cml.distances.jobs.local_executor import LocalExecutor, run_on_threads
from cml.distances.jobs.row_file import TILE
from cml.distances.jobs.work import MatrixWork, NeighborsWork, Strip, Work, cut
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.option_types import check_options

if TYPE_CHECKING:
    from cml.distances.jobs.dask_executor import DaskExecutor

CLUSTER_THREADS = 64  # strips are cut for so many threads where it is not known how many there will be


def write_matrix(
    distance: LabelDistance,
    labels: Labels,  # N encoded labels
    out: Path,
    *,
    dtype: str = "float32",  # ``float32``, or ``float16``: half the size, three digits
    options: JobOptions | None = None,  # how to run the job. None for the defaults
    item_ids: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
) -> JobResult:
    """Write all label distances of N labels to ``out/matrix.npy`` (N, N).

    A distance that is the same both ways is computed for the upper triangle only. The lower one is copied from it at
    the end, tile by tile: written along with each strip it would take four times as long, because its columns lie on as
    many pages of the disk as there are rows.

    Example:
        >>> import tempfile
        >>> from cml.distances.euclidean import Euclidean
        >>> ages = Euclidean().encode([31, 35, 60])
        >>> result = write_matrix(Euclidean(), ages, Path(tempfile.mkdtemp()) / "job")
        >>> result.path.name, result.pairs
        ('matrix.npy', 6)
    """
    return run_job(MatrixWork(distance, labels, dtype), out, options, item_ids=item_ids, about=about)


def write_neighbors(
    distance: LabelDistance,
    labels: Labels,  # N encoded labels
    out: Path,
    k: int,  # neighbours of each label, 1 to N - 1
    *,
    options: JobOptions | None = None,  # how to run the job. None for the defaults
    item_ids: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
) -> JobResult:
    """Write what ``distance.neighbors(labels, k)`` gives to ``out/ids.npy`` and ``out/distances.npy`` (N, k)."""
    return run_job(NeighborsWork(distance, labels, k), out, options, item_ids=item_ids, about=about)


def run_job(
    work: Work,
    out: Path,
    options: JobOptions | None = None,  # how to run the job. None for the defaults
    *,
    item_ids: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
) -> JobResult:
    """Do the work of a job in its folder, as ``write_matrix`` and ``write_neighbors`` do."""
    options = check_options(options or JobOptions())
    start_time = time.perf_counter()
    pairs = 0
    with job_folder(out, work, wait=options.wait) as job:
        if not job.is_finished:
            check_disk_space(work, out)
            needs_rate = options.say is not None or (not job.strips and options.strip_pairs is None)
            rate = measure_rate(work) if needs_rate else 0.0
            if not job.strips:
                threads = CLUSTER_THREADS if options.scheduler else options.threads
                strip_pairs = options.strip_pairs or choose_strip_pairs(work.all_pairs, rate, threads)
                job.begin(cut(work, strip_pairs))
            pairs = _compute(job, options, rate)
            job.finish(about or {}, item_ids)
    path = out / next(iter(work.forms)) if len(work.forms) == 1 else out
    return JobResult(out, path, pairs, time.perf_counter() - start_time)


def _compute(job: JobFolder, options: JobOptions, rate: float) -> int:
    """Compute the strips still to do; returns the number of their pairs."""
    work = job.work
    with job.writing(), contextlib.ExitStack() as stack:
        pending = job.pending()
        pairs = sum(map(work.pairs, pending))
        executor: LocalExecutor | DaskExecutor = LocalExecutor(work, options.threads)
        if options.scheduler and pending:
            from cml.distances.jobs.dask_executor import DaskExecutor

            executor = stack.enter_context(DaskExecutor(options.scheduler, work))
        if options.say is not None:
            options.say(forecast(work, pending, job.folder, rate, executor.threads, executor.description))
        done_before = work.all_pairs - pairs
        with options.progress_bar(work.kind, "pair", work.all_pairs, initial=done_before) as bar:

            def advance(strip: Strip) -> None:
                bar.update(work.pairs(strip))

            executor.compute_strips(pending, job.store, advance)
        bands = job.bands()
        with options.progress_bar("lower half", "row", TILE * len(bands)) as bar:
            run_on_threads(job.mirror, bands, options.threads, lambda _: bar.update(TILE))
    return pairs
