"""The leaderboard as one page without scripts: a table a track, sorted and filtered by style rules alone.

Not for: what the table holds (table.py).
"""

import math
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cml.bench.galleries import write_set_gallery
from cml.bench.result import place, read_result, results_in
from cml.bench.sets import open_set
from cml.bench.table import BEST, Board, board, score_of
from cml.errors import UserError
from cml.reporting.gallery_style import write_html
from cml.reporting.visible_text import visible_text

_RULES = """
fieldset { border: 0; margin: 12px 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 4px 16px; }
legend { float: left; color: var(--quiet); padding: 0; margin-right: 8px; }
.lines { display: flex; flex-direction: column; width: max-content; }
.line { display: flex; border-bottom: 1px solid var(--line); }
.line span { flex: 0 0 116px; padding: 3px 0; text-align: right; }
.line span:not([class]) { flex-basis: 80px; }
.line .name { flex-basis: 168px; text-align: left; }
.head { order: -1; color: var(--quiet); }
.head a { text-decoration: underline; }
.best { font-weight: 600; }
"""


def write_leaderboard(results: Path, page: Path, queries: int = 0) -> list[str]:
    """Write the page of all versions and tracks of a folder of results.

    Args:
        results: The folder.
        page: The HTML file, which links to the files of results by their places relative to it.
        queries: Test queries of a gallery for each set, written beside the page; none for 0.

    Returns:
        A sentence for each set that cannot be had here and has no gallery.

    Raises:
        UserError: there are no results, or the number of queries is negative.
        DataError: a file is no result, or its ranks are not those of the set here.
    """
    if queries < 0:
        raise UserError(f"A gallery has 0 queries or more. Got {queries}.")
    kinds = sorted({(found.suite, found.track) for found in map(read_result, results_in(results))})
    boards = [board(results, *kind) for kind in kinds]
    rules = [_RULES]
    for number, one in enumerate(boards):
        rules.append(f"body:has(#t{number}:checked) .board:not(.b{number}){{display:none}}")
        rules += _sorted(number, one)
    shown, missing = [_view(one, results, page.parent) for one in boards], {}
    for one, view in zip(boards, shown, strict=True):
        for head in view["sets"] if queries else ():
            try:
                open_set(head["name"], one.version)
            except UserError as error:
                missing[head["name"]] = f"{head['name']} has no gallery: {error}"
                continue
            gallery = page.with_name(f"{page.stem}-galleries") / one.version / one.track / f"{head['name']}.html"
            gallery.parent.mkdir(parents=True, exist_ok=True)
            write_set_gallery(one, head["name"], results, gallery, queries)
            head["gallery"] = _link(gallery, page.parent)
    title = "Continuous metric learning: leaderboard"
    write_html(page, "cml.reporting", "leaderboard.html.j2", rules=["\n".join(rules)], title=title, boards=shown)
    return list(missing.values())


def _sorted(number: int, one: Board) -> list[str]:
    """Rules that order the lines of a board by the set that is chosen, and show its column alone."""
    rules = []
    for column, name in enumerate(one.sets):
        chosen = f"body:has(#b{number}s{column}:checked) .b{number}"
        rules.append(f"{chosen} .line{{order:var(--s{column})}}{chosen} .head{{order:-1}}")
        rules.append(f"{chosen} .line span:not(.s{column}):not(.name){{display:none}}")
        scores = [score_of(row[name]) if name in row else -math.inf for row in map(one.results.__getitem__, one.order)]
        for place_, row in enumerate(sorted(range(len(scores)), key=lambda row: -scores[row])):
            rules.append(f"#b{number}m{row}{{--s{column}:{place_}}}")
    return rules


def _view(one: Board, results: Path, folder: Path) -> dict[str, Any]:
    rows = []
    for method, (_, *texts) in zip(one.order, one.grid()[1:], strict=True):
        cells = [_cell(one, method, name, text, results, folder) for name, text in zip(one.sets, texts, strict=False)]
        rows.append({"method": visible_text(method), "cells": cells, "rest": texts[len(one.sets) :]})
    notes = one.notes().replace(f" {BEST} marks", " Bold marks")
    sets = [{"name": name, "gallery": ""} for name in one.sets]
    return {"title": f"{one.version}, {one.track}", "sets": sets, "rows": rows, "notes": notes}


def _cell(one: Board, method: str, name: str, text: str, results: Path, folder: Path) -> dict[str, Any]:
    found, link = one.results[method].get(name), ""
    if found is not None:
        link = _link(place(results, found.suite, found.set, found.track, found.method), folder)
    return {"text": text.removesuffix(BEST), "best": text.endswith(BEST), "file": link}


def _link(file: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(file, folder)).as_posix())
