"""The explorer as what a call returns: its page, shown in a notebook."""

import html
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Explorer:
    """The explorer; as the last line of a notebook's cell it is shown in place.

    Attributes:
        path: The page.
    """

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    __fspath__ = __str__

    def _repr_html_(self) -> str:
        page = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        frame = 'sandbox="allow-scripts allow-downloads" width="100%" height="960" style="border:0" title="explorer"'
        return f'<iframe srcdoc="{page}" {frame}></iframe>'
