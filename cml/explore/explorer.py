"""The explorer as what a call returns: its page, shown in a notebook."""

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Explorer:
    """The explorer; as the last line of a notebook's cell it is shown in place."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    __fspath__ = __str__

    def widget(self) -> Any:  # noqa: ANN401 - of the optional package anywidget
        """Make a notebook's widget of the page, which gives back the selection; needs the extra ``notebook``.

        Its attributes ``selection``, positions of items, and ``names`` follow what a click or the lasso selects; both
        are empty lists where nothing is selected.
        """
        from cml.explore.explorer_widget import make_explorer_widget

        return make_explorer_widget(self.path)

    def _repr_html_(self) -> str:
        page = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        frame = 'sandbox="allow-scripts allow-downloads" width="100%" height="960" style="border:0" title="explorer"'
        return f'<iframe srcdoc="{page}" {frame}></iframe>'
