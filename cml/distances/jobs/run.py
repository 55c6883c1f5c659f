"""Distance jobs: a whole matrix or all neighbour lists, written strip by strip, which survive being killed."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from cml.console.byte_sizes import format_bytes
from cml.console.durations import format_duration
from cml.console.progress_bar import ProgressBar
from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.folder import TILE, JobFolder, check_finished, job_folder, read_record
from cml.distances.jobs.work import MatrixWork, NeighborsWork, Strip, Work, cut
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import DataError, UserError
from cml.storage.npy import map_array
from cml.storage.resumable import FolderError

CLUSTER_THREADS = 64  # strips are cut for so many threads where it is not known how many there will be
SAMPLE_SECONDS = 0.5  # a sample as long as this is believed
MOST_PAIRS = 1 << 22  # in a strip: 16 MiB of float32, and what the label distance needs to compute it
MOST_SECONDS = 30.0  # for a strip: what one thread loses when the process is killed
LEAST_SECONDS = 0.5
STRIPS_A_THREAD = 32  # at least, so that the progress bar moves and threads end together
VERIFIED_ROWS, VERIFIED_LISTS = 64, 16
T = TypeVar("T")


@dataclass(frozen=True)
class Runner:
    """How a job is run; the result depends on nothing of it."""

    threads: int = 2  # strips under way at a time in this process
    scheduler: str = ""  # "tcp://host:port" of a Dask scheduler whose workers compute; "" for threads of this process
    strip_pairs: int | None = None  # pairs in a strip; None: as many as take up to half a minute, at most 4 million
    wait: bool = False  # wait for another process that works on the same job; otherwise it is an error
    say: Callable[[str], object] | None = None  # told in a line what the job will take. None: nobody.
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
    **how: Any,  # noqa: ANN401 - of run_job
) -> Result:
    """Write all label distances of N labels to ``out/matrix.npy`` (N, N), float32 or float16 (half, three digits)."""
    # the lower triangle is copied at the end: written along with each strip it would take four times as long
    return run_job(MatrixWork(distance, labels, dtype), out, **how)


def write_neighbors(distance: LabelDistance, labels: Labels, out: Path, k: int, **how: Any) -> Result:  # noqa: ANN401
    """Write what ``distance.neighbors(labels, k)`` gives to ``out/ids.npy`` and ``out/distances.npy`` (N, k)."""
    return run_job(NeighborsWork(distance, labels, k), out, **how)


def run_job(
    work: Work,
    out: Path,
    runner: Runner | None = None,
    *,
    item_ids: Sequence[str] = (),
    about: Mapping[str, Any] | None = None,
) -> Result:
    """Do a job, in a folder that holds nothing else; ``about`` is added to job.json for people to read."""
    runner, began = runner or Runner(), time.perf_counter()
    pairs = 0
    with job_folder(out, work, wait=runner.wait) as job:
        if not job.is_finished:
            check_room(work, out)
            measure = runner.say is not None or (not job.strips and runner.strip_pairs is None)
            rate = pairs_a_second(work) if measure else 0.0
            if not job.strips:
                threads = CLUSTER_THREADS if runner.scheduler else runner.threads
                job.begin(cut(work, runner.strip_pairs or pairs_a_strip(work.all_pairs, rate, threads)))
            pairs = _compute(job, runner, rate)
            job.finish(about or {}, item_ids)
    path = out / "matrix.npy" if isinstance(work, MatrixWork) else out
    return Result(out, path, pairs, time.perf_counter() - began)


def _compute(job: JobFolder, runner: Runner, rate: float) -> int:
    """Do what is still to do; returns the number of pairs computed."""
    work = job.work
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
        with progress_bar(runner, work.kind, "pair", work.all_pairs, initial=work.all_pairs - pairs) as bar:

            def done(strip: Strip) -> None:
                bar.update(work.pairs(strip))

            if cluster is not None:
                cluster.strips(pending, job.store, done)
            else:
                on_threads(lambda strip: job.store(strip, work.compute(strip)), pending, runner.threads, done)
        bands = job.bands()
        with progress_bar(runner, "lower half", "row", TILE * len(bands)) as bar:
            on_threads(job.mirror, bands, runner.threads, lambda _: bar.update(TILE))
    return pairs


def progress_bar(runner: Runner, what: str, unit: str, total: int, *, initial: int = 0) -> ProgressBar:
    """A bar on stderr, if ``runner`` wants one."""
    how = {"disable": runner.bar_after is None, "delay": runner.bar_after or 0.0}
    return ProgressBar(total=total, initial=initial, desc=what, unit=unit, unit_scale=True, smoothing=0, **how)


def on_threads(run: Callable[[T], object], tasks: Sequence[T], threads: int, done: Callable[[T], object]) -> None:
    """Run every task, in any order; ``done`` is told of each in this thread, and an error ends them all."""
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(run, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                done(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def open_job(distance: LabelDistance, labels: Labels, folder: Path) -> Work:
    """What a finished job computed; ``UserError`` unless it is of these labels and this label distance."""
    if (record := read_record(folder))["items"] != len(labels):
        raise UserError(f"{folder} holds the job of {record['items']} items, but there are {len(labels)}.")
    work: Work
    if record.get("kind") == MatrixWork.kind:
        work = MatrixWork(distance, labels, record.get("dtype", ""))
    else:
        work = NeighborsWork(distance, labels, record.get("k", 0))
    check_finished(folder, work)
    return work


def verify(distance: LabelDistance, labels: Labels, folder: Path, *, seed: int | None = None) -> int:
    """Compute a random part of a finished job again and compare every bit; returns how many numbers that were."""
    work = open_job(distance, labels, folder)
    rng, n = np.random.default_rng(seed), len(labels)
    if isinstance(work, MatrixWork):
        rows, columns = (np.sort(rng.choice(n, min(n, VERIFIED_ROWS), replace=False)) for _ in range(2))
        with one_blas_thread():
            again = {"matrix.npy": work.stored(rows, columns)}
    else:
        rows = np.sort(rng.choice(n, min(n, VERIFIED_LISTS), replace=False))
        columns = np.arange(work.option[1])
        with one_blas_thread():
            lists = [work.compute(Strip(row, row + 1)) for row in rows.tolist()]
        again = {name: np.concatenate([one[name] for one in lists]) for name in work.forms}
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


def pairs_a_second(work: Work, seconds: float = SAMPLE_SECONDS) -> float:
    """Pairs of labels a second on one thread, from a sample that takes about ``seconds``."""
    order = np.random.default_rng(0).permutation(len(work.labels))
    with one_blas_thread():
        work.compute(Strip(len(order) - 1, len(order)))  # compiles what is compiled, reads what is read once
        start, size = 0, 1
        while True:
            began = time.perf_counter()
            if isinstance(work, MatrixWork):  # no pair twice: a row may take long, and a distance may keep its pairs
                pairs = work.stored(order[start:][:size], order[::-1][start:][:size]).size
            else:
                work.compute(strip := Strip(start, start + size))
                pairs = work.pairs(strip)
            took = max(time.perf_counter() - began, 1e-6)
            start += size
            size *= 4
            if took >= seconds / 2 or 2 * (start + size) > len(order) or 4 * pairs > MOST_PAIRS:
                return pairs / took


def pairs_a_strip(pairs: int, rate: float, threads: int) -> int:
    """Pairs to put into a strip of a job of ``pairs``, of which one thread computes ``rate`` a second."""
    seconds = min(MOST_SECONDS, max(LEAST_SECONDS, pairs / rate / (STRIPS_A_THREAD * threads)))
    return int(min(MOST_PAIRS, max(1, rate * seconds)))


def check_room(work: Work, folder: Path) -> None:
    """Raise ``FolderError`` unless the result fits on the disk of ``folder``, where a part of it may lie already."""
    there = sum(path.stat().st_blocks * 512 for path in folder.rglob("*.npy"))
    free = shutil.disk_usage(folder).free
    if work.size - there > free:
        smaller = ", --dtype float16" if work.option == ("dtype", "float32") else ""
        raise FolderError(
            f"The {work.kind} of {len(work.labels):,} items takes {format_bytes(work.size)} on the disk, and "
            f"{folder} has only {format_bytes(free)} free. Choose another folder{smaller} or fewer items; training "
            "needs no more than neighbour lists."
        )


def forecast(work: Work, strips: Sequence[Strip], folder: Path, rate: float, threads: int, where: str) -> str:
    """One line about ``strips`` to do at ``rate`` pairs a second and thread; ``where``: "2 threads"."""
    name, value = work.option
    pairs, free = sum(map(work.pairs, strips)), format_bytes(shutil.disk_usage(folder).free)
    if where.endswith("threads"):
        threads = min(threads, os.cpu_count() or 1)
    return (
        f"{work.kind} of {len(work.labels):,} items, {name} {value}: {format_bytes(work.size)} in {folder} "
        f"({free} free); {pairs:,} pairs in {len(strips)} strip{'s' if len(strips) > 1 else ''} on {where}: "
        f"{format_duration(pairs / rate / threads)} (a sample ran at {rate:,.0f} pairs/s a thread)"
    )
