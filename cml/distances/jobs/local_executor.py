"""Strips of a distance job on threads of this process."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.work import Arrays, Strip, Work

T = TypeVar("T")


class LocalExecutor:
    """Computes the strips of a job on threads of this process.

    Args:
        work: What the job computes.
        threads: Strips computed at a time.

    Attributes:
        threads: As given.
        description: As in "2 threads", for the forecast.
    """

    def __init__(self, work: Work, threads: int) -> None:
        self._work, self.threads = work, threads
        self.description = f"{threads} threads"

    def compute_strips(
        self, strips: Sequence[Strip], store: Callable[[Strip, Arrays], object], on_done: Callable[[Strip], object]
    ) -> None:
        """Compute strips in any order.

        Args:
            strips: The strips to compute.
            store: Called with each strip and its arrays, on the thread that computed it.
            on_done: Called with each stored strip, on the calling thread.
        """
        run_on_threads(lambda strip: store(strip, self._work.compute(strip)), strips, self.threads, on_done)


def run_on_threads(
    run: Callable[[T], object], tasks: Sequence[T], threads: int, on_done: Callable[[T], object]
) -> None:
    """Run a function for every task, in any order. After an error no further task begins.

    Args:
        run: Called with each task, on one of the threads.
        tasks: The tasks.
        threads: Tasks at a time.
        on_done: Called with each finished task, on the calling thread.
    """
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(run, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                on_done(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
