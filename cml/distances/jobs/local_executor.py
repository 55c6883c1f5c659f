"""Strips of a distance job on threads of this process."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from cml.distances.blas_threads import one_blas_thread
from cml.distances.jobs.work import Arrays, Strip, Work

T = TypeVar("T")


class LocalExecutor:
    """Computes the strips of a job on threads of this process."""

    def __init__(self, work: Work, threads: int) -> None:
        self._work, self.threads = work, threads
        self.description = f"{threads} threads"

    def compute_strips(
        self, strips: Sequence[Strip], store: Callable[[Strip, Arrays], object], on_done: Callable[[Strip], object]
    ) -> None:
        """Compute strips in any order."""
        run_on_threads(lambda strip: store(strip, self._work.compute(strip)), strips, self.threads, on_done)


def run_on_threads(
    run: Callable[[T], object], tasks: Sequence[T], threads: int, on_done: Callable[[T], object]
) -> None:
    """Run a function for every task, in any order. After an error no further task begins."""
    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        futures = {pool.submit(run, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                future.result()
                on_done(futures[future])
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
