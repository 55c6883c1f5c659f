"""One BLAS thread while blocks are computed: blocks run in parallel, and BLAS threads on top wait for each other."""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

_lock = threading.Lock()
_inside = 0  # overlapping blocks of several threads: the first sets the process's limit, the last takes it back
_restore: Any = None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in this process until the last block that asked for it ends.

    On a busy machine a small product on two BLAS threads takes ten times as long as on one.
    """
    global _inside, _restore
    with _lock:
        if _inside == 0:
            _restore = _controller().limit(limits=1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _restore.restore_original_limits()


@functools.cache
def _controller() -> Any:  # noqa: ANN401 - threadpoolctl has no types
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
