"""Whether models may be downloaded: those that the user names may be, those that a run names only on request."""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from cml.errors import UserError

_allowed: ContextVar[bool] = ContextVar("allowed", default=True)


def may_download() -> bool:
    """Tell whether a model that is not in the cache may be downloaded here."""
    return _allowed.get()


@contextlib.contextmanager
def names_of_a_run(*, allow_download: bool) -> Iterator[None]:
    """Mark a block in which names of models come from a run, which may be a stranger's."""
    before = _allowed.set(allow_download and _allowed.get())
    try:
        yield
    finally:
        _allowed.reset(before)


def not_cached_error(model: str) -> UserError:
    """Make the error for a model that would have to be downloaded where that is not allowed."""
    return UserError(
        f"{model} is not in the cache, and opening a run downloads nothing by itself. To download it add "
        "--allow-download (in Python: allow_download=True)."
    )
