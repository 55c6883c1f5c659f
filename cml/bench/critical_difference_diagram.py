"""The critical-difference diagram of a benchmark: which mean ranks differ significantly."""

import math
from pathlib import Path

from cml.bench.table import Board
from cml.errors import UserError
from cml.storage.atomic import atomic_file


def draw_critical_difference_diagram(board: Board, path: Path, *, ink: str = "") -> None:
    """Draw mean ranks on a line, with bars over methods that do not differ significantly (Demsar, JMLR 2006).

    Args:
        board: The results of a version and track.
        path: The picture; its suffix says the format.
        ink: The colour of everything, on a transparent ground; "" draws in black on white.

    Raises:
        UserError: fewer than 3 methods were run on all of at least 3 sets.
    """
    if math.isnan(board.critical):
        raise UserError("A critical-difference diagram needs 3 methods that were run on all of at least 3 sets.")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    black, grey = ink or "black", ink or "0.4"
    placed = sorted(board.means.items(), key=lambda pair: pair[1])
    half = (len(placed) + 1) // 2
    figure = Figure(figsize=(8, 1.2 + 0.22 * half), dpi=150)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    first, last = 1.0, float(len(placed))
    aside = 0.35 * (last - first)
    axes.set(xlim=(first - aside, last + aside), ylim=(-half - 2.5, 2))
    axes.plot([first, last], [0, 0], color=black, linewidth=1)
    for tick in range(1, len(placed) + 1):
        axes.plot([tick, tick], [0, 0.25], color=black, linewidth=1)
        axes.text(tick, 0.4, str(tick), ha="center", va="bottom", fontsize=8, color=black)
    for place, (method, rank) in enumerate(placed):
        left = place < half
        depth = -(place + 2.5 if left else len(placed) - place + 1.5)
        edge = first - 0.03 * (last - first) if left else last + 0.03 * (last - first)
        axes.plot([rank, rank, edge], [0, depth, depth], color=grey, linewidth=0.8)
        side = "right" if left else "left"
        axes.text(edge, depth, f" {method} {rank:.2f} ", ha=side, va="center", fontsize=8, color=black)
    bars = [(rank, max(other for _, other in placed if other - rank < board.critical)) for _, rank in placed]
    ends = [end for _, end in bars]
    shown = [(start, end) for place, (start, end) in enumerate(bars) if end > start and end not in ends[:place]]
    for place, (start, end) in enumerate(shown):
        height = -0.35 - 1.6 * place / max(1, len(shown))
        axes.plot([start, end], [height, height], color=black, linewidth=2.5, solid_capstyle="round")
    axes.text(first, 1.5, f"critical difference {board.critical:.2f}", fontsize=8, va="center", color=black)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.removeprefix(".") or "png"
    with atomic_file(path) as temporary, rc_context({"svg.hashsalt": "cml"}):
        figure.savefig(
            temporary, format=kind, transparent=bool(ink), metadata={"Date": None} if kind == "svg" else None
        )
