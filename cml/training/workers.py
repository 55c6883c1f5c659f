"""Data workers: forks that make batches ahead, leave signals to the training process, and whose faults are one line."""

import contextlib
import ctypes
import gc
import re
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from cml.errors import MachineError, UserError
from cml.processes.heap import give_back_freed_memory
from cml.training.stopping import SIGNALS

GIVE_BACK_EVERY = 32  # batches of a worker

T = TypeVar("T")
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
_running: list[Any] = []  # loaders whose workers may run
_MEND = "Use smaller batches (batch_size in --sampler), fewer --workers or a machine with more memory."


class _Carried(Dataset[Any]):
    """The batches of ``source``, or their errors as values, of which torch would send a traceback."""

    def __init__(self, source: Dataset[Any]) -> None:
        self._source, self._made = source, 0

    def __getitem__(self, step: int) -> Any:  # noqa: ANN401 - any batch
        self._made += 1
        if self._made % GIVE_BACK_EVERY == 0 and get_worker_info() is not None:
            give_back_freed_memory()
        try:
            return self._source[step]
        except (UserError, OSError) as error:
            return error
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and "can't allocate memory" not in str(error):
                raise
            return MemoryError()  # those of NumPy and torch may not be picklable


def made_ahead(source: Dataset[T], steps: range, *, workers: int, timeout: float) -> Iterator[T]:
    """The batches of ``steps``, made ahead by ``workers`` processes, which hang after ``timeout`` s, if it is not 0."""
    loader = DataLoader(
        _Carried(source),
        batch_size=None,
        sampler=steps,
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        prefetch_factor=4 if workers else None,
        worker_init_fn=_begin,
        generator=torch.Generator(),  # its own, so that a loader does not advance the run's random numbers
    )
    if workers:
        # a full collection writes to every object that is not frozen, and so copies pages that forks would share; they
        # inherit the free blocks of this process's heap, and would fill them over hours
        gc.collect()
        gc.freeze()
        give_back_freed_memory()
    batches = iter(loader)
    _running.append(batches)
    for step in steps:
        watch = threading.Timer(timeout, _kill, (batches, timeout))  # torch's own does not cover a batch's transfer
        watch.daemon = True
        if workers and timeout:
            watch.start()
        try:
            made = next(batches)
        finally:
            watch.cancel()
        if isinstance(made, MemoryError):
            raise MachineError(f"The memory was full when the batch of step {step} was made. {_MEND}")
        if isinstance(made, Exception):
            raise made
        yield made


def _kill(batches: Any, after: float) -> None:  # noqa: ANN401 - torch's iterator over a loader
    batches.hung_for = after
    for worker in batches._workers:
        worker.kill()


@contextlib.contextmanager
def ended() -> Iterator[None]:
    """End all workers that ``made_ahead`` started in the block, and turn their faults into one line."""
    before, fault = len(_running), None
    try:
        yield
    except Exception as error:
        if (fault := _fault(error)) is None:
            raise
    finally:
        forked = [_end(_running.pop()) for _ in _running[before:]]
        if any(forked):
            gc.unfreeze()
    if fault is not None:
        raise MachineError(fault)


def _fault(error: BaseException | None) -> str | None:
    """A fault of the workers in one line; None if ``error`` is not due to one."""
    # torch reports it from a signal handler, amid other work, whose error then has torch's as its context; of a worker
    # that dies while it sends a batch torch reports nothing
    if hung := [batches.hung_for for batches in _running if hasattr(batches, "hung_for")]:
        return (
            f"The data workers hang: no batch came for {hung[0]:g} seconds. Check the disk of the images, wait longer "
            "with --worker-timeout, or read in the training process with --workers 0."
        )
    if isinstance(error, ConnectionError | EOFError):
        for worker in [one for batches in _running for one in getattr(batches, "_workers", ())]:
            try:
                worker.join(1)  # its connections close shortly before it ends
            except RuntimeError as said:  # from torch's signal handler, on the same worker
                return _workers_fault(str(said))
            if not worker.is_alive():
                return _workers_fault(f"DataLoader worker (pid {worker.pid}) exited")
    while error is not None:
        if fault := _workers_fault(str(error)):
            return fault
        error = error.__context__
    return None


def _workers_fault(text: str) -> str | None:
    if found := re.match(r"DataLoader worker \(pid\S* ([\d, ]+)\) (?:is killed by signal: ([\w ]+)|exited)", text):
        how = f"killed by the signal {found[2]}" if found[2] else "gone"
        memory = " or its shared memory" if found[2] == "Bus error" else ""
        return f"A data worker (process {found[1]}) was {how}, as when the machine's memory{memory} is full. {_MEND}"
    return None


def _begin(worker: int) -> None:
    for number in SIGNALS:  # a terminal sends them to all processes, but the training process may need another batch
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(batches: Any) -> bool:  # noqa: ANN401 - torch's iterator over a loader
    """End the workers of a loader, if it has any; those that do not end are killed."""
    workers = getattr(batches, "_workers", ())
    try:
        if workers:
            batches._shutdown_workers()
    except RuntimeError as error:  # torch's signal handler reports a worker that was killed meanwhile
        if _workers_fault(str(error)) is None:
            raise
    finally:  # also if a signal interrupts that
        for worker in workers:
            if worker.is_alive():
                worker.kill()
                worker.join()
    return bool(workers)
