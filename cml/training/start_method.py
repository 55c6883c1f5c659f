"""How data workers start, and where they cannot.

A spawned process imports the main script again: one that trains outside ``if __name__ == "__main__":`` would train
again in each worker, before it reads a batch. A forked process may hang if another thread draws random numbers: a fork
copies the locks of torch and NumPy as they are, and a lock that is held then is never released.
"""

import ast
import multiprocessing
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
