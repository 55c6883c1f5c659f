"""Distance jobs: a whole matrix or all neighbour lists, written strip by strip, which survive being killed.

``write_matrix`` and ``write_neighbors`` do nothing if the result is there, go on where a killed process stopped, and
refuse a folder that holds the result of other labels or settings. Memory is that of the strips under way, whatever
the number of items. The result does not depend on threads, strips or machines.

Not for: checking a finished job (check.py), blocks on demand, which ``LabelDistance.pairwise`` gives, lists that
stay in memory (``neighbors``).
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.folder import JobFolder, job_folder
from cml.distances.jobs.forecast import check_room, forecast, pairs_a_second, pairs_a_strip
from cml.distances.jobs.row_file import TILE
from cml.distances.jobs.work import MatrixWork, NeighborsWork, Strip, Work, cut
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.processes.bar import Bar

CLUSTER_THREADS = 64  # strips are cut for so many threads where it is not known how many there will be
T = TypeVar("T")
Say = Callable[[str], object]


@dataclass(frozen=True)
class Runner:
    """How a job is run; the result depends on nothing of it."""

    threads: int = 2  # strips under way at a time in this process
    scheduler: str = ""  # "tcp://host:port" of a Dask scheduler whose workers compute; "" for threads of this process
    strip_pairs: int | None = None  # pairs in a strip; None: as many as take up to half a minute, at most 4 million
    wait: bool = False  # wait for another process that works on the same job; otherwise it is an error
    say: Say | None = None  # told in a line what the job will take. None: nobody.
    bar_after: float | None = 1.0  # seconds until there is a progress bar on stderr; None for none

    def __post_init__(self) -> None:
        if self.threads < 1 or (self.strip_pairs is not None and self.strip_pairs < 1):
            raise UserError(
                f"'threads' and 'strip_pairs' must be at least 1. Got {self.threads} and {self.strip_pairs} instead."
            )


@dataclass(frozen=True)
class Result:
    """A finished job."""

    folder: Path
    path: Path  # what ``precomputed`` reads: the file of the matrix, or the folder of the lists
    pairs: int  # pairs of labels that this call computed; 0 if the result was there
    seconds: float  # how long that took


def write_matrix(
    distance: LabelDistance,
    labels: Labels,
    out: Path,
    *,
    dtype: str = "float32",
    runner: Runner | None = None,
    item_ids: Sequence[str] = (),
) -> Result:
    """Write all label distances of N labels to ``out/matrix.npy`` (N, N).

    A distance that is the same both ways is computed for the upper triangle only. The lower one is copied from it at
    the end, tile by tile: written along with each strip it would take four times as long, because its columns lie on
    as many pages of the disk as there are rows.

    Args:
        distance: The label distance.
        labels: N encoded labels.
        out: Folder of the job, absent, empty, or one where this job was begun.
        dtype: "float32", or "float16": half the size, three digits.
        runner: How to run it.
        item_ids: Ids of the items, which are kept beside the result.

    Raises:
        UserError: the folder cannot be written, is too small, is worked on by another process, or holds something
            else; or a label distance is NaN, negative, or does not fit into ``dtype``.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from cml import distances
        >>> distance = distances.get("euclidean")
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "ages"
        >>> result = write_matrix(distance, distance.encode([1, 4, 6]), folder, runner=Runner(bar_after=None))
        >>> np.load(result.path, mmap_mode="r")[0].tolist()
        [0.0, 3.0, 5.0]
    """
    return run_job(MatrixWork(distance, labels, dtype), out, runner or Runner(), item_ids=item_ids)


def write_neighbors(
    distance: LabelDistance,
    labels: Labels,
    out: Path,
    k: int,
    *,
    runner: Runner | None = None,
    item_ids: Sequence[str] = (),
) -> Result:
    """Write the exact k nearest of each of N labels to ``out/ids.npy`` (N, k) and ``out/distances.npy`` (N, k).

    They are those of ``distance.neighbors(labels, k)``. Arguments and errors are those of ``write_matrix``.

    Raises:
        UserError: also if k is not in 1..N-1.
    """
    return run_job(NeighborsWork(distance, labels, k), out, runner or Runner(), item_ids=item_ids)


def run_job(
    work: Work, out: Path, runner: Runner, *, item_ids: Sequence[str] = (), about: Mapping[str, Any] | None = None
) -> Result:
    """Do a job, as ``write_matrix`` and ``write_neighbors`` do; ``about`` is added to job.json for people to read."""
    began = time.perf_counter()
    pairs = 0
    with job_folder(out, work, wait=runner.wait) as job:
        if not job.is_finished:
            check_room(work, out)
            measure = runner.say is not None or (not job.strips and runner.strip_pairs is None)
            rate = pairs_a_second(work) if measure else 0.0
            if not job.strips:
                every = sum(work.pairs(strip) for strip in cut(work, len(work.labels)))
                threads = CLUSTER_THREADS if runner.scheduler else runner.threads
                job.begin(cut(work, runner.strip_pairs or pairs_a_strip(every, rate, threads)))
            pairs = _compute(job, runner, rate)
            job.finish(about or {}, item_ids)
    path = out / "matrix.npy" if isinstance(work, MatrixWork) else out
    return Result(out, path, pairs, time.perf_counter() - began)


def _compute(job: JobFolder, runner: Runner, rate: float) -> int:
    """Do what is still to do; returns the number of pairs computed."""
    work = job.work

    def compute(strip: Strip) -> None:
        job.store(strip, work.compute(strip))

    with job.writing(), contextlib.ExitStack() as stack:
        pending = job.pending()
        pairs = sum(map(work.pairs, pending))
        threads, where, cluster = runner.threads, f"{runner.threads} threads", None
        if runner.scheduler and pending:
            from cml.distances.jobs.cluster import Cluster

            cluster = stack.enter_context(Cluster(runner.scheduler, work))
            threads, where = cluster.threads, f"{cluster.count} workers"
        if runner.say is not None:
            runner.say(forecast(work, pending, job.folder, rate, threads, where))
        every = sum(map(work.pairs, job.strips))
        with progress_bar(runner, work.kind, "pair", every, initial=every - pairs) as bar:

            def done(strip: Strip) -> None:
                bar.update(work.pairs(strip))

            if cluster is not None:
                cluster.strips(pending, job.store, done)
            else:
                on_threads(compute, pending, runner.threads, done)
        bands = job.bands()
        with progress_bar(runner, "lower half", "row", TILE * len(bands)) as bar:
            on_threads(job.mirror, bands, runner.threads, lambda _: bar.update(TILE))
    return pairs


def progress_bar(runner: Runner, what: str, unit: str, total: int, *, initial: int = 0) -> Bar:
    """A bar on stderr, if ``runner`` wants one."""
    return Bar(
        total=total,
        initial=initial,
        desc=what,
        unit=unit,
        unit_scale=True,
        smoothing=0,
        disable=runner.bar_after is None,
        delay=runner.bar_after or 0.0,
    )


def on_threads(run: Callable[[T], object], tasks: Sequence[T], threads: int, done: Callable[[T], object]) -> None:
    """Run every task on ``threads`` threads, in any order; ``done`` is told of each in this thread.

    At an error or an interruption no further task begins, and those under way are ended.
    """
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(run, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                done(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
