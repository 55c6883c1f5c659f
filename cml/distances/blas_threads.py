"""One BLAS thread while the matrix products of a block run.

Row blocks are what runs in parallel here, see ``LabelDistance.neighbors``. BLAS threads on top of them would wait for
each other: on a busy machine a small product on two BLAS threads takes ten times as long as on one. Not for: code that
hands BLAS one large product.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

_lock = threading.Lock()
_inside = 0
_restore: Any = None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread in this process until the last block that asked for it ends.

    The limit is the process's, so that overlapping blocks in several threads are counted: the first sets it and the
    last takes it back.
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
