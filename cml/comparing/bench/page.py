"""The leaderboard as one page without scripts, a table a track, and the critical-difference diagram."""

import base64
import math
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cml.comparing.bench.result import Result, read_result, result_path, results_in
from cml.comparing.bench.suite import SUITES
from cml.comparing.bench.table import BEST, Board, read_board, score_of
from cml.errors import UserError
from cml.reporting.visible_text import visible_text, write_html
from cml.storage.atomic import atomic_file, write_csv

_INK = "#808890"  # of the diagram: readable on white and on black
_BARS = 20  # lengths of the bars behind scores

_RULES = """
fieldset { border: 0; margin: 12px 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 4px 16px; }
legend { float: left; color: var(--quiet); padding: 0; margin-right: 8px; }
.lines { display: flex; flex-direction: column; width: max-content; }
.line { display: flex; border-bottom: 1px solid var(--line); }
.line span { flex: 0 0 130px; padding: 3px 0 3px 10px; text-align: right; }
.line span:not([class]) { flex-basis: 92px; }
.line .name {
  flex-basis: 168px; text-align: left; position: sticky; left: 0; z-index: 1; padding-left: 0; background: var(--paper);
}
.line [class*="bar"] {
  background: linear-gradient(var(--mark), var(--mark)) left bottom / var(--part) 3px content-box no-repeat;
}
.head { order: -1; color: var(--quiet); }
.head a { text-decoration: underline; }
.best { font-weight: 600; }
.board figure { margin: 16px 0; max-width: 900px; overflow-x: auto; }
.board figure img { width: 100%; min-width: 640px; }
.files a { text-decoration: underline; }
@media (max-width: 700px) { .line .name { flex-basis: 132px; overflow-wrap: anywhere; } }
"""


def write_leaderboard(results: Path, page: Path) -> None:
    """Write the page of all versions and tracks, and each table as CSV beside it."""
    places = {version: place for place, version in enumerate(SUITES)}  # the latest comes first
    kinds = {(result.suite, result.track) for result in map(read_result, results_in(results))}
    boards = [read_board(results, *kind) for kind in sorted(kinds, key=lambda kind: (places[kind[0]], kind))]
    rules = [_RULES, "".join(f".bar{length}{{--part:{100 * length // _BARS}%}}" for length in range(_BARS + 1))]
    for number, board in enumerate(boards):
        rules += [f"body:has(#t{number}:checked) .board:not(.b{number}){{display:none}}", *_sort_rules(number, board)]
    shown = [_view(board, results, page) for board in boards]
    title = "Continuous metric learning: leaderboard"
    write_html(page, "cml.reporting", "leaderboard.html.j2", rules=["\n".join(rules)], title=title, boards=shown)


def _sort_rules(number: int, board: Board) -> list[str]:
    """Rules that order the lines of a board by the set that is chosen, and show its column alone."""
    rules = []
    for column, name in enumerate(board.sets):
        chosen = f"body:has(#b{number}s{column}:checked) .b{number}"
        rules.append(f"{chosen} .line{{order:var(--s{column})}}{chosen} .head{{order:-1}}")
        rules.append(f"{chosen} .line span:not(.s{column}):not(.name){{display:none}}")
        results = [board.results[method].get(name) for method in board.order]
        scores = [-math.inf if result is None else score_of(result) for result in results]
        for place_, row in enumerate(sorted(range(len(scores)), key=lambda row: -scores[row])):
            rules.append(f"#b{number}m{row}{{--s{column}:{place_}}}")
    return rules


def _view(board: Board, results: Path, page: Path) -> dict[str, Any]:
    header, *lines = board.grid()
    rows = []
    for method, (_, *texts) in zip(board.order, lines, strict=True):
        cells = []
        for name, text in zip(board.sets, texts, strict=False):
            result = board.results[method].get(name)
            link = "" if result is None else _link(_file(results, result), page.parent)
            score = -math.inf if result is None else score_of(result)
            bar = "" if math.isinf(score) else f"bar{round(_BARS * min(1.0, max(0.0, score)))}"
            cells.append({"text": text.removesuffix(BEST), "best": text.endswith(BEST), "file": link, "bar": bar})
        rows.append({"method": visible_text(method), "cells": cells, "rest": texts[len(board.sets) :]})
    csv = page.with_name(f"{page.stem}-{board.version}-{board.track}.csv")
    csv.parent.mkdir(parents=True, exist_ok=True)
    write_csv(
        csv, ["method", *header[1:]], [[method, *texts] for method, (_, *texts) in zip(board.order, lines, strict=True)]
    )
    return {
        "title": f"{board.version}, {board.track}",
        "sets": board.sets,
        "summary": header[len(board.sets) + 1 :],
        "rows": rows,
        "notes": board.notes().replace(f" {BEST} marks", " Bold marks"),
        "csv": _link(csv, page.parent),
        "diagram": _embed_diagram(board),
    }


def _embed_diagram(board: Board) -> str:
    """The critical-difference diagram as the source of a picture; "" where there are too few methods or sets."""
    if math.isnan(board.critical):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "diagram.svg"
        draw_critical_difference_diagram(board, path, ink=_INK)
        return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _file(results: Path, result: Result) -> Path:
    return result_path(results, result.suite, result.set, result.track, result.method)


def _link(file: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(file, folder)).as_posix())


def draw_critical_difference_diagram(board: Board, path: Path, *, ink: str = "") -> None:
    """Draw mean ranks on a line, with bars over methods that do not differ significantly (Demsar, JMLR 2006).

    The suffix of the path says the format; ``ink`` is the colour of everything on a transparent ground, "" draws in
    black on white.
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
