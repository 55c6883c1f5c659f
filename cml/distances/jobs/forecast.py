"""What a distance job will take: pairs a second from a measured sample, time, room on the disk, size of a strip.

Not for: doing the job (jobs.py).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cml.command_line.amounts import size_text, time_text
from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.work import FolderError, Strip, Work

SAMPLE_SECONDS = 0.5  # a sample as long as this is believed
MOST_PAIRS = 1 << 22  # in a strip: 16 MiB of float32, and what the label distance needs to compute it
MOST_SECONDS = 30.0  # for a strip: what one thread loses when the process is killed
LEAST_SECONDS = 0.5
STRIPS_A_THREAD = 32  # at least, so that the progress bar moves and threads end together


def pairs_a_second(work: Work) -> float:
    """Pairs of labels a second on one thread, from a sample of rows that takes about ``SAMPLE_SECONDS``."""
    n = len(work.labels)
    rng = np.random.default_rng(0)
    rows = 1
    with one_blas_thread():
        work.compute(Strip(n - 1, n))  # compiles what is compiled, reads what is read once
        while True:
            start = int(rng.integers(0, (n - rows) // 2 + 1))
            strip = Strip(start, start + rows)
            began = time.perf_counter()
            work.compute(strip)
            seconds = max(time.perf_counter() - began, 1e-6)
            if 2 * rows > n or seconds >= SAMPLE_SECONDS / 2 or 4 * work.pairs(strip) > MOST_PAIRS:
                return work.pairs(strip) / seconds
            rows = min(4 * rows, n)


def pairs_a_strip(pairs: int, rate: float, threads: int) -> int:
    """Pairs to put into a strip of a job of ``pairs``, of which one thread computes ``rate`` a second."""
    seconds = min(MOST_SECONDS, max(LEAST_SECONDS, pairs / rate / (STRIPS_A_THREAD * threads)))
    return int(min(MOST_PAIRS, max(1, rate * seconds)))


def check_room(work: Work, folder: Path) -> None:
    """Check that the result fits on the disk of ``folder``, where a part of it may lie already.

    Raises:
        FolderError: it does not.
    """
    there = sum(path.stat().st_blocks * 512 for path in folder.glob("*.npy*"))
    free = shutil.disk_usage(folder).free
    if work.size - there > free:
        smaller = ", --dtype float16" if work.option == ("dtype", "float32") else ""
        raise FolderError(
            f"The {work.kind} of {len(work.labels):,} items takes {size_text(work.size)} on the disk, and {folder} has "
            f"only {size_text(free)} free. Choose another folder{smaller} or fewer items; training needs no more than "
            "neighbour lists."
        )


def forecast(work: Work, strips: Sequence[Strip], folder: Path, rate: float, threads: int, where: str) -> str:
    """One line about a job before its start.

    Args:
        work: The job.
        strips: What is still to do.
        folder: Where the result goes.
        rate: Pairs a second on one thread.
        threads: Strips under way at a time.
        where: What computes them: "2 threads".
    """
    name, value = work.option
    pairs = sum(map(work.pairs, strips))
    if where.endswith("threads"):
        threads = min(threads, os.cpu_count() or 1)
    return (
        f"{work.kind} of {len(work.labels):,} items, {name} {value}: {size_text(work.size)} in {folder} "
        f"({size_text(shutil.disk_usage(folder).free)} free); {pairs:,} pairs in {len(strips)} "
        f"strip{'s' if len(strips) > 1 else ''} on {where}: {time_text(pairs / rate / threads)} "
        f"(a sample ran at {rate:,.0f} pairs/s a thread)"
    )
