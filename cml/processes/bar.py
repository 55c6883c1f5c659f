"""Progress bars, which all commands draw alike. Not for: what they count."""

from __future__ import annotations

import math
import sys
from typing import Any

from tqdm import tqdm

EVERY = 10.0  # seconds between two lines of a log
SILENT = 2.0  # seconds of work of which nothing is said


class Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
    """tqdm's bar on stderr; in a log or a pipe it is a line every ten seconds, its first and its last among them.

    Args:
        arguments: As tqdm takes them.
        settings: As tqdm takes them.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401 - tqdm's
        # a notebook is no terminal, but redraws a line as one does
        self._in_lines = not ("ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty()))
        self._next = -math.inf  # seconds on tqdm's clock until which nothing is said
        if self._in_lines:
            settings |= {"mininterval": EVERY, "ncols": 0, "disable": settings.get("disable") or sys.stderr is None}
        super().__init__(*arguments, **settings)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Show how far it is; says whether there is something to wipe away."""
        if not self._in_lines:
            return bool(super().display(msg, pos))
        now, closing = self._time(), self.disable
        if msg is None and (closing or now >= self._next):
            self._next = now + 0.9 * EVERY
            self.fp.write(f"{self}{'' if closing else chr(10)}")  # tqdm ends the last line itself
            self.fp.flush()
        return False

    def clear(self, nolock: bool = False) -> None:
        """Wipe the bar away, unless it is a line of a log."""
        if not self._in_lines:
            super().clear(nolock)
