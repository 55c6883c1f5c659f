"""What a distance job will take: its speed from a sample, the size of its strips, the room on the disk."""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cml.console.messages import format_bytes, format_duration
from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.work import MatrixWork, Strip, Work
from cml.processes.cores import CORES
from cml.storage.work_folder import FolderError

SAMPLE_SECONDS = 0.5  # a sample as long as this is believed
MOST_PAIRS = 1 << 22  # in a strip: 16 MiB of float32, and what the label distance needs to compute it
MOST_SECONDS = 30.0  # for a strip: what one thread loses when the process is killed
LEAST_SECONDS = 0.5
STRIPS_A_THREAD = 32  # at least, so that the progress bar moves and threads end together


def measure_rate(work: Work, seconds: float = SAMPLE_SECONDS) -> float:  # pairs of labels a second on one thread
    """Measure the speed of a job by a sample."""
    order = np.random.default_rng(0).permutation(len(work.labels))
    with one_blas_thread():
        work.compute(Strip(len(order) - 1, len(order)))  # compiles what is compiled, reads what is read once
        start, size = 0, 1
        while True:
            began = time.perf_counter()
            if isinstance(work, MatrixWork):  # no pair twice: a row may take long, and a distance may keep its pairs
                pairs = work.block(order[start:][:size], order[::-1][start:][:size]).size
            else:
                work.compute(strip := Strip(start, start + size))
                pairs = work.pairs(strip)
            took = max(time.perf_counter() - began, 1e-6)
            start += size
            size *= 4
            if took >= seconds / 2 or 2 * (start + size) > len(order) or 4 * pairs > MOST_PAIRS:
                return max(1, pairs) / took  # nothing may be known of the sample


def choose_strip_pairs(
    pairs: int,
    rate: float,  # pairs a second on one thread
    threads: int,
) -> int:  # pairs of labels for a strip, at least 1
    """Choose the size of a job's strips."""
    seconds = min(MOST_SECONDS, max(LEAST_SECONDS, pairs / rate / (STRIPS_A_THREAD * threads)))
    return int(min(MOST_PAIRS, max(1, rate * seconds)))


def check_disk_space(
    work: Work,
    folder: Path,  # the folder of the result, where a part of it may be already
) -> None:
    """Check that the result fits on the disk."""
    there = sum(path.stat().st_blocks * 512 for path in folder.rglob("*.npy"))
    free = shutil.disk_usage(folder).free
    if work.size - there > free:
        smaller = ", --dtype float16" if work.option == ("dtype", "float32") else ""
        raise FolderError(
            f"The {work.kind} of {len(work.labels):,} items takes {format_bytes(work.size)} on the disk, and "
            f"{folder} has only {format_bytes(free)} free. Choose another folder{smaller} or fewer items; training "
            "needs no more than neighbour lists."
        )


def forecast(
    work: Work,
    strips: Sequence[Strip],
    folder: Path,
    rate: float,  # pairs a second on one thread
    threads: int,
    where: str,
) -> str:
    """Describe in one line what is still to be computed."""
    name, value = work.option
    pairs, free = sum(map(work.pairs, strips)), format_bytes(shutil.disk_usage(folder).free)
    if where.endswith("threads"):
        threads = min(threads, CORES)
    return (
        f"{work.kind} of {len(work.labels):,} items, {name} {value}: {format_bytes(work.size)} in {folder} "
        f"({free} free); {pairs:,} pairs in {len(strips)} strip{'s' if len(strips) > 1 else ''} on {where}: "
        f"{format_duration(pairs / rate / threads)} (a sample ran at {rate:,.0f} pairs/s a thread)"
    )
