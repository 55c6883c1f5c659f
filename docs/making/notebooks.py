"""The notebooks that the tutorials offer for download, without the download link, which works only on the page."""

from __future__ import annotations

import json
from pathlib import Path

MARK = "{nb-download}"


def clean(folder: Path) -> None:
    """Remove the paragraph with the download link from each notebook below a folder."""
    for path in sorted(folder.rglob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown" and MARK in source:
                kept = [part for part in source.split("\n\n") if MARK not in part]
                cell["source"] = "\n\n".join(kept).splitlines(keepends=True)
        path.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
