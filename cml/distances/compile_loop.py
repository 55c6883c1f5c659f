"""Inner loops over pairs of labels, compiled by numba.

numba keeps compiled code on disk and looks only at the file of the outermost function: after an edit of an inner
function in another file delete the ``__pycache__`` of its callers.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

AS_WRITTEN: frozenset[str] = frozenset()
ORDERED = frozenset({"nnan", "ninf", "nsz"})  # every sum keeps its order
FREE = ORDERED | {"reassoc", "contract"}  # sums in the machine's order, which is the same at every call


def compile_loop(
    *,
    # what LLVM may assume of floating-point numbers: ``AS_WRITTEN``, ``ORDERED`` or ``FREE``
    fastmath: frozenset[str] = ORDERED,
    inline: bool = False,
) -> Callable[[F], F]:
    """Create the decorator that compiles a function at its first call.

    The code is kept where numba finds a folder to write to.
    """

    def decorate(function: F) -> F:
        def build(cache: bool) -> F:
            jit: Any = numba.njit(
                nogil=True, cache=cache, fastmath=set(fastmath), error_model="numpy", forceinline=inline
            )
            fast: F = jit(function)
            return fast

        try:
            return build(cache=True)
        except RuntimeError:  # no folder to write to
            return build(cache=False)

    return decorate
