"""Making, styling and saving figures, without pyplot, so that no global state changes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml.reporting.visible_text import visible_text
from cml.storage.atomic import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOTS = 150  # an inch
# Okabe and Ito's colours without yellow, which is invisible on paper; order and marks distinguish them in grey print
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
QUIET, INK = "#6b6760", "#1d1c1a"


def new_figure(width: float, height: float, *, dots: int = DOTS) -> Figure:
    """Create an empty figure."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dots, facecolor="white", layout="constrained")


def dress(axis: Axes, *, ylabel: str) -> None:
    """The look of all axes."""
    axis.set_facecolor("white")
    axis.set_ylabel(visible_text(ylabel), parse_math=False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#b8b2a8")
    axis.tick_params(colors=QUIET, labelcolor=INK)
    axis.grid(True, color="#ebe7e0", linewidth=0.8)
    axis.set_axisbelow(True)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF by the path's suffix, atomically; the same figure gives the same bytes."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    kind = path.suffix[1:]
    dated = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}[kind]
    with atomic_file(path) as temporary, any_script(), rc_context({"svg.hashsalt": "cml", "pdf.fonttype": 42}):
        metadata: Any = {dated: None}  # matplotlib's own type leaves out None, which removes an entry
        FigureCanvasAgg(figure).figure.savefig(temporary, format=kind, metadata=metadata)


@contextlib.contextmanager
def any_script() -> Iterator[None]:
    """Draw characters that the font lacks as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*[Gg]lyph .* missing from", category=UserWarning)
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support", category=UserWarning)
        yield
