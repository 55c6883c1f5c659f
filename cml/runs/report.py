"""The report of a comparison: one page with table, verdict, figures and links to the runs.

Not for: the figures on it, which are drawn before (pictures.py).
"""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from cml.reporting.gallery_style import write_html
from cml.reporting.visible_text import visible_text
from cml.retrieval.comparison import Comparison
from cml.runs.gallery import GALLERY
from cml.runs.pictures import sheet_note
from cml.runs.planned import Planned

REPORT = "report.html"
_FIGURES: Mapping[str, str] = {
    "retrieval": (
        "The metrics over K. Whiskers are 95 % intervals over seeds; one that reaches the edge goes on beyond it. The "
        "grey references have intervals over queries, which the table shows."
    ),
    "dimension": "The metrics over the dimension of the embedding. Whiskers are 95 % intervals over seeds.",
    "vary": "What was reached over the options that varied. Whiskers are 95 % intervals over seeds.",
    "convergence": "The rank correlation on held-out training items over the budget: steps, and seconds of training.",
    "sheet": "What queries retrieve, from the worst to the best; numbers are label distances to the query.",
}
_FILES = ("config.json", "metrics.jsonl", "evaluation.json", "loss.png")  # of a run, as far as they are there
_WIDEST = 2200  # pixels of a picture


def write_report(comparison: Comparison, plan: Sequence[Planned], out: Path, *, title: str) -> Path:
    """Write report.html into the folder of a comparison, beside its figures.

    Args:
        comparison: The figures.
        plan: Its runs.
        out: The folder of the comparison.
        title: Heading of the page.
    """
    header, *lines = comparison.table()
    runs = [
        {
            "name": f"{visible_text(one.variant)}, {one.dimension} dimensions, seed {one.seed}",
            "files": [
                (name, quote((one.folder.relative_to(out) / name).as_posix()))
                for name in _FILES
                if (one.folder / name).exists()
            ],
        }
        for one in plan
    ]
    figures = [
        (_embedded(file), text, [kind for kind in ("png", "svg", "pdf") if (out / f"{name}.{kind}").exists()], name)
        for name, text in _FIGURES.items()
        if (file := next((f for k in ("svg", "png") if (f := out / f"{name}.{k}").exists()), None)) is not None
    ]
    write_html(
        out / REPORT,
        "cml.reporting",
        "report.html.j2",
        title=visible_text(title),
        header=[visible_text(cell) for cell in header],
        lines=[[visible_text(cell) for cell in line] for line in lines],
        notes=[
            visible_text(line, 2000)
            for line in [*comparison.notes().splitlines(), sheet_note(list(comparison.trained))]
            if line
        ],
        figures=figures,
        runs=runs,
        gallery=GALLERY if (out / GALLERY).exists() else "",
    )
    return out / REPORT


def _embedded(path: Path) -> str:
    """A figure as an address that holds it."""
    if path.suffix == ".svg":
        return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"
    with Image.open(path, formats=["PNG", "JPEG"]) as image:
        shown = image.convert("RGB")
    shown.thumbnail((_WIDEST, 4 * _WIDEST))
    file = io.BytesIO()
    shown.save(file, "WEBP", quality=85)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
