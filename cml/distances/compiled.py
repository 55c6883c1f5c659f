"""Inner loops over pairs of labels, compiled by numba."""
# numba keeps compiled code on disk and looks only at the file of the outermost function: after an edit of an inner
# function in another file delete the __pycache__ of its callers.

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

AS_WRITTEN: frozenset[str] = frozenset()
ORDERED = frozenset({"nnan", "ninf", "nsz"})  # every sum keeps its order
FREE = ORDERED | {"reassoc", "contract"}  # sums in the machine's order, which is the same at every call


def compiled(*, fastmath: frozenset[str] = ORDERED, inline: bool = False) -> Callable[[F], F]:
    """Compile at the first call, ``inline`` into all callers; keep the code where numba finds a folder to write to."""

    def decorate(function: F) -> F:
        options: dict[str, Any] = {"fastmath": set(fastmath), "error_model": "numpy", "forceinline": inline}
        try:
            fast: F = numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no such folder
            fast = numba.njit(nogil=True, **options)(function)
        return fast

    return decorate
