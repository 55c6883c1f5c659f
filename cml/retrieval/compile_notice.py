"""Says that code is being compiled, which takes seconds once an installation; it imports numba: import it late."""

import contextlib
import importlib
import sys
import time
from collections.abc import Iterator
from typing import Any

from cml.console.messages import say

_EVENTS: Any = importlib.import_module("numba.core.event")  # some versions of numba have types, and others none
_PATIENCE = 1.0  # seconds of compiling before it is said
_Listener: Any = _EVENTS.Listener


class _Notice(_Listener):  # type: ignore[misc]
    """Hears of each function that is compiled, not of those that are read from the disk."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_said = False

    def on_start(self, event: object) -> None:
        """Say it once, when compiling has taken long enough to wait for it."""
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not self._is_said and now - self._since >= _PATIENCE:
            self._is_said = True
            say("Compiling the measures of rankings once, about 10 s.")

    def on_end(self, event: object) -> None:
        """Nothing: the next function says it."""


@contextlib.contextmanager
def say_what_compiles() -> Iterator[None]:
    """Say so to a person who waits."""
    with _EVENTS.install_listener("numba:compile", _Notice()) if _is_watched() else contextlib.nullcontext():
        yield


def _is_watched() -> bool:
    """Whether messages go to a terminal or to a notebook."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
