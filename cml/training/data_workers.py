"""Data workers: the processes that make batches ahead, and the errors if one of them fails.

torch's DataLoader starts them. Here they leave Ctrl-C to the training process, end with it, and send errors as values,
so that they arrive as one line. A worker that hangs, dies or runs out of memory is an error of the training process,
and none outlives its run. They are forks that share the training process's memory until either writes to it. If they do
not start, since they inherited a lock, the training process reads the inputs itself.
"""

import ast
import contextlib
import ctypes
import functools
import gc
import multiprocessing
import pickle
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from cml.errors import MachineError, UserError
from cml.processes.memory import give_back_freed_memory, is_out_of_memory
from cml.training.callbacks import SIGNALS
from cml.training.randomness import take_turns

GIVE_BACK_EVERY = 32  # batches of a worker
START_LIMIT = 30.0  # seconds in which forks start, also on a busy machine

T = TypeVar("T")
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
_in_thread = threading.local()  # ``loaders`` of this thread's runs whose workers may run
_starting = threading.Lock()  # filters of warnings are the process's
_MEND = "Use smaller batches (batch_size in --sampler), fewer --workers or a machine with more memory."


class _ErrorsAsValues(Dataset[Any]):
    """The batches of ``source``, or their errors as values, of which torch would send a traceback."""

    def __init__(self, source: Dataset[Any]) -> None:
        self._source = source
        self._count = 0  # batches of this worker

    def __getitem__(self, step: int) -> Any:  # noqa: ANN401 - any batch
        self._count += 1
        if self._count % GIVE_BACK_EVERY == 0 and get_worker_info() is not None:
            give_back_freed_memory()
        try:
            return self._source[step]
        except (UserError, OSError, MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                return MemoryError()  # those of NumPy and torch may not be picklable
            if isinstance(error, UserError | OSError):
                return error
            raise


def prefetch(source: Dataset[T], steps: Iterable[Any], *, workers: int, timeout: float) -> Iterator[T]:
    """Make batches ahead in other processes."""
    with take_turns():  # other runs do not draw from the global generators meanwhile
        workers = count_safe_workers(workers)
        started = multiprocessing.get_context("fork").Semaphore(0) if workers and start_method() == "fork" else None
        batches = _start_loader(source, steps, workers, started)
    if started is not None and not _wait_for_start(started, workers):
        warnings.warn(
            f"Inputs are read in the training process: the workers did not start within {START_LIMIT:g} seconds, as "
            "where they inherit a lock that another thread holds.",
            stacklevel=2,
        )
        _shutdown_loader(batches)
        workers = 0
        batches = _start_loader(source, steps, workers)
    for step in steps:
        watch = threading.Timer(timeout, _kill_workers, (batches, timeout))  # torch's omits the transfer of a batch
        watch.daemon = True
        if workers and timeout:
            watch.start()
        try:
            batch = next(batches)
        finally:
            watch.cancel()
        if isinstance(batch, MemoryError):
            raise MachineError(f"The memory was full when the batch of step {step} was made. {_MEND}")
        if isinstance(batch, Exception):
            raise batch
        yield batch


def _start_loader(source: Dataset[T], steps: Iterable[Any], workers: int, started: Any = None) -> Any:  # noqa: ANN401
    """An iterator over the batches; its workers release the semaphore ``started``, if there is one."""
    method = start_method()
    loader = DataLoader(
        _ErrorsAsValues(source),
        batch_size=None,
        sampler=steps,
        collate_fn=_pass_on,  # torch's would make lists of tuples
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        prefetch_factor=4 if workers else None,
        worker_init_fn=functools.partial(_begin_worker, started),
        multiprocessing_context=method if workers else None,
        generator=torch.Generator(),  # its own, so that a loader does not advance the run's random numbers
    )
    if workers:
        _prepare_fork()
    with _quiet_start() if workers else contextlib.nullcontext():
        try:
            batches = iter(loader)
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # where workers are not forks
            if not workers or method == "fork":
                raise
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(
                f"The inputs cannot be sent to data workers ({first_line}). Define the data set and its functions at "
                "the top of a module, or read in the training process: workers=0."
            ) from None
    _running().append(batches)
    return batches


def _wait_for_start(started: Any, workers: int) -> bool:  # noqa: ANN401 - a semaphore of multiprocessing
    """Whether all workers have started before the limit."""
    end = time.monotonic() + START_LIMIT
    return all(started.acquire(timeout=max(0.0, end - time.monotonic())) for _ in range(workers))


@contextlib.contextmanager
def shutdown_workers() -> Iterator[None]:
    """Shut down all workers that ``prefetch`` started in the block, and turn their faults into one line."""
    running = _running()
    before = len(running)
    child_handler = _child_handler()
    fault = None
    try:
        yield
    except Exception as error:
        fault = _find_fault(error)
        if fault is None:
            raise
    finally:
        forked = [_shutdown_loader(running.pop()) for _ in running[before:]]
        if any(forked):
            gc.unfreeze()
            _restore_child_handler(child_handler)
    if fault is not None:
        raise MachineError(fault)


def _running() -> list[Any]:
    """The loaders of this thread's runs; another thread shuts its own down."""
    if not hasattr(_in_thread, "loaders"):
        _in_thread.loaders = []
    loaders: list[Any] = _in_thread.loaders
    return loaders


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Start workers without warnings that do not apply here."""
    with _starting, warnings.catch_warnings():
        # from Python 3.12 on. torch lets a worker use one thread, and it takes no lock that another thread may hold
        warnings.filterwarnings("ignore", "This process .* is multi-threaded, use of fork", DeprecationWarning)
        warnings.filterwarnings("ignore", "Got pickle error", UserWarning)  # the error says it
        yield


def _child_handler() -> Any:  # noqa: ANN401 - what signal.getsignal returns
    """The handler of the signal that a child process has ended, which torch replaces when it starts workers."""
    is_main = threading.current_thread() is threading.main_thread()
    return signal.getsignal(signal.SIGCHLD) if is_main and hasattr(signal, "SIGCHLD") else None


def _restore_child_handler(handler: Any) -> None:  # noqa: ANN401
    """Put the former handler back, and let torch set its own again with the next workers."""
    if handler is None or signal.getsignal(signal.SIGCHLD) is handler or _running():
        return
    signal.signal(signal.SIGCHLD, handler)
    vars(torch.utils.data._utils.signal_handling)["_SIGCHLD_handler_set"] = False


def _prepare_fork() -> None:
    """Prepare a fork, so that memory stays shared and free memory is not inherited.

    A full collection writes to every object that is not frozen, and so copies pages that forks would share. Forks
    inherit the free blocks of this process's heap and would fill them over hours.
    """
    gc.collect()
    gc.freeze()
    give_back_freed_memory()


def _pass_on(batch: Any) -> Any:  # noqa: ANN401 - any batch
    return batch


def _begin_worker(started: Any, worker: int) -> None:  # noqa: ANN401 - a semaphore of multiprocessing, or None
    for number in SIGNALS:  # a terminal sends them to all processes, but the training process may need another batch
        signal.signal(number, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if started is not None:
        started.release()


def _kill_workers(batches: Any, after: float) -> None:  # noqa: ANN401 - torch's iterator over a loader
    batches.hung_for = after
    for worker in batches._workers:
        worker.kill()


def _shutdown_loader(batches: Any) -> bool:  # noqa: ANN401 - torch's iterator over a loader
    """End the workers of a loader, if it has any; those that do not end are killed."""
    workers = getattr(batches, "_workers", ())
    try:
        if workers:
            batches._shutdown_workers()
    except RuntimeError as error:  # torch's signal handler reports a worker that was killed meanwhile
        if _describe_dead_worker(str(error)) is None:
            raise
    finally:  # also if a signal interrupts that
        for worker in workers:
            if worker.is_alive():
                worker.kill()
                worker.join()
    return bool(workers)


def _find_fault(error: BaseException | None) -> str | None:
    """A fault of the workers in one line; None if ``error`` is not due to one.

    torch reports a fault from a signal handler, amid other work, whose error then has torch's as its context. It
    reports nothing of a worker that dies while it sends a batch.
    """
    hung = [batches.hung_for for batches in _running() if hasattr(batches, "hung_for")]
    if hung:
        return (
            f"The data workers hang: no batch came for {hung[0]:g} seconds. Check the disk of the images, wait longer "
            "with --worker-timeout, or read in the training process with --workers 0."
        )
    if isinstance(error, ConnectionError | EOFError):
        for worker in [worker for batches in _running() for worker in getattr(batches, "_workers", ())]:
            try:
                worker.join(1)  # its connections close shortly before it ends
            except RuntimeError as report:  # from torch's signal handler, on the same worker
                return _describe_dead_worker(str(report))
            if not worker.is_alive():
                return _describe_dead_worker(f"DataLoader worker (pid {worker.pid}) exited")
    while error is not None:
        fault = _describe_dead_worker(str(error))
        if fault is not None:
            return fault
        error = error.__context__
    return None


def _describe_dead_worker(report: str) -> str | None:
    """The fault in torch's report of a dead worker; None if it is another text."""
    pattern = r"DataLoader worker \(pid\S* ([\d, ]+)\) (?:is killed by signal: ([\w ]+)|exited)"
    match = re.match(pattern, report)
    if match is None:
        return None
    process, signal_name = match.groups()
    end = f"killed by the signal {signal_name}" if signal_name else "gone"
    memory = " or its shared memory" if signal_name == "Bus error" else ""
    return f"A data worker (process {process}) was {end}, as when the machine's memory{memory} is full. {_MEND}"


_ADVICE = 'Call it below `if __name__ == "__main__":`, or set workers=0.'


def start_method() -> str:
    """The start method of new processes, without settling it for the rest of the program."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def count_safe_workers(workers: int) -> int:
    """Count the data workers that can be started."""
    if not workers:
        return 0
    if start_method() == "fork":
        if not is_another_thread_drawing():
            return workers
        warnings.warn(
            "Inputs are read in the training process: another thread draws random numbers, and workers may inherit a "
            "lock that it holds. Let it draw from a generator of its own, or set workers=0.",
            stacklevel=2,
        )
        return 0
    if _is_main_importable():
        return workers
    warnings.warn(
        f"Inputs are read in the training process: workers that start by {start_method()!r} would run this script from "
        f"its first line, with the training in it. {_ADVICE}",
        stacklevel=2,
    )
    return 0


def refuse_in_starting_worker() -> None:
    """End a worker that has come to the training while it imports the main script."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(f"error: a starting worker process has come to the training in the main script. {_ADVICE}")


def _is_main_importable() -> bool:
    """Whether a new process can import the main script without coming here, or need not import it."""
    main = sys.modules["__main__"]
    path, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if path is None or (spec is not None and spec.name.endswith("__main__")):  # an interpreter, or python -m package
        return True
    try:
        statements = ast.parse(Path(path).read_bytes()).body
    except (OSError, ValueError, SyntaxError):
        return True
    guards = [one for one in statements if isinstance(one, ast.If) and "'__main__'" in ast.unparse(one.test)]
    frame = sys._getframe()
    while frame.f_back is not None and not (frame.f_code.co_name == "<module>" and frame.f_globals is vars(main)):
        frame = frame.f_back
    if frame.f_globals is not vars(main):  # a thread, of whose start nothing is known
        return bool(guards)
    return any(guard.lineno <= frame.f_lineno <= (guard.end_lineno or 0) for guard in guards)


_LOOKS = 5
_PAUSE = 0.002  # seconds between two looks, in which other threads run


def is_another_thread_drawing() -> bool:
    """Tell whether another thread draws from torch's or NumPy's global generator at the moment.

    A thread that draws rarely is not noticed; it is as unlikely to hold a lock at the moment of a fork.
    """
    if threading.active_count() == 1:
        return False
    before = _states()
    for _ in range(_LOOKS):
        time.sleep(_PAUSE)
        if _states() != before:
            return True
    return False


def _states() -> tuple[Any, ...]:
    _, numbers, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global generator itself
    return torch.get_rng_state().numpy().tobytes(), np.asarray(numbers).tobytes(), *rest
