"""How a distance job is run, and what it gives. The numbers depend on none of these options."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cml.console.progress_bar import ProgressBar
from cml.errors import UserError
from cml.processes.cores import CORES


@dataclass(frozen=True)
class JobOptions:
    """How a job is run. The result does not depend on it."""

    threads: int = CORES  # strips computed at a time in this process
    # address of a Dask scheduler, ``tcp://host:port``, whose workers compute; "" for threads of this process
    scheduler: str = ""
    # pairs of labels in a strip. None: as many as take up to half a minute, at most 4 million
    strip_pairs: int | None = None
    wait: bool = False  # True to wait for another process that works on the same job; otherwise that is an error
    # called with one line that says what the job will take. None for no such line
    say: Callable[[str], object] | None = None
    bar_after: float | None = 1.0  # seconds until a progress bar appears on stderr. None for no bar

    def check(self) -> None:
        """Refuse options that are out of range, with a UserError."""
        if self.threads < 1 or (self.strip_pairs is not None and self.strip_pairs < 1):
            raise UserError(
                f"'threads' and 'strip_pairs' must be at least 1. Got {self.threads} and {self.strip_pairs} instead."
            )

    def progress_bar(
        self, title: str, unit: str, total: int, *, initial: int = 0
    ) -> ProgressBar:  # the bar, which is silent if ``bar_after`` is None
        """Create the progress bar of a part of the job, on stderr."""
        return ProgressBar(
            total=total,
            initial=initial,
            desc=title,
            unit=unit,
            unit_scale=True,
            smoothing=0,
            disable=self.bar_after is None,
            delay=self.bar_after or 0.0,
        )


@dataclass(frozen=True)
class JobResult:
    """A finished job."""

    folder: Path  # the folder of the job
    path: Path  # what ``precomputed`` reads: the file of the matrix, or the folder of the lists
    pairs: int  # pairs of labels that this call computed; 0 if the result was there
    seconds: float  # how long that took
