"""What a distance job will take: pairs a second from a measured sample, time, room on the disk, size of a strip.

Not for: doing the job (run.py).
"""

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cml.command_line.amounts import size_text, time_text
from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.work import MatrixWork, Strip, Work
from cml.storage.work_folder import FolderError

SAMPLE_SECONDS = 0.5  # a sample as long as this is believed
MOST_PAIRS = 1 << 22  # in a strip: 16 MiB of float32, and what the label distance needs to compute it
MOST_SECONDS = 30.0  # for a strip: what one thread loses when the process is killed
LEAST_SECONDS = 0.5
STRIPS_A_THREAD = 32  # at least, so that the progress bar moves and threads end together


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
            f"The {work.kind} of {len(work.labels):,} items takes {size_text(work.size)} on the disk, and {folder} has "
            f"only {size_text(free)} free. Choose another folder{smaller} or fewer items; training needs no more than "
            "neighbour lists."
        )


def forecast(work: Work, strips: Sequence[Strip], folder: Path, rate: float, threads: int, where: str) -> str:
    """One line about a job before its start: ``strips`` are still to do, at ``rate`` pairs a second and thread.

    ``where`` says what computes them: "2 threads".
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
