"""The progress bar of all commands."""

import contextlib
import math
import sys
from typing import Any

from tqdm import tqdm

from cml.errors import escape_controls

LOG_INTERVAL = 10.0  # seconds between two lines of a log
BAR_DELAY = 2.0  # seconds of work before a bar is shown


class ProgressBar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """tqdm's bar on stderr; in a log or a pipe, a line at the start, every ten seconds and at the end."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 - tqdm's
        # a notebook is not a terminal, but redraws a line like one
        self._in_lines = not ("ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()))
        self._next = -math.inf  # the next line is due at this time of tqdm's clock
        if self._in_lines:
            settings |= {
                "mininterval": LOG_INTERVAL,
                "ncols": 0,
                "disable": settings.get("disable") or sys.stderr is None,
            }
        if settings.get("desc"):  # such as the name of a stranger's dataset
            settings["desc"] = escape_controls(settings["desc"])
        super().__init__(*arguments, **settings)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Show the progress; tqdm calls it."""
        if not self._in_lines:
            return bool(super().display(msg, pos))
        now, closing = self._time(), self.disable
        if msg is None and (closing or now >= self._next):
            self._next = now + 0.9 * LOG_INTERVAL
            self.fp.write(f"{self}{'' if closing else chr(10)}")  # tqdm ends the last line itself
            self.fp.flush()
        return False

    def refresh(self, nolock: bool = False, lock_args: tuple[Any, ...] | None = None) -> bool | None:
        """Show the progress now. Where that fails, tqdm's own keeps its lock, and bars of other threads wait for it."""
        if nolock or self.disable:
            return bool(super().refresh(nolock=True))
        if not self._lock.acquire(*lock_args or ()) and lock_args:
            return False
        try:
            return bool(super().refresh(nolock=True))
        finally:
            self._lock.release()

    def clear(self, nolock: bool = False) -> None:
        """Clear the bar, unless it is a line of a log; the lock is given back as in ``refresh``."""
        if self._in_lines:
            return
        with contextlib.nullcontext() if nolock else self._lock:
            super().clear(nolock=True)
