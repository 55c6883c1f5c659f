"""The leaderboard as one page without scripts, a table a track, and beside it for each set a page of pictures."""

import base64
import math
import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from cml import tasks
from cml.bench.critical_difference_diagram import draw_critical_difference_diagram
from cml.bench.result import Result, read_ranks, read_result, result_path, results_in
from cml.bench.sets import BenchSet, open_set
from cml.bench.suite import SUITES
from cml.bench.table import BEST, UNCHECKED, Board, read_board, score_of
from cml.data.prepared import open_dataset
from cml.doors.retrieved import ORACLE_GAP, RetrievalRows, Retrieved
from cml.errors import DataError, UserError
from cml.reporting.html_escaping import write_html
from cml.reporting.retrieval_report import write_retrieval_page
from cml.reporting.visible_text import visible_text
from cml.retrieval import text_table
from cml.retrieval.oracle_row import ORACLE
from cml.retrieval.ranking_ties import rank_columns
from cml.storage.atomic import atomic_file
from cml.storage.csv_file import write_csv

_FIRST = 5  # pictures of a method in a retrieval report
_THUMBNAIL = 72
_INK = "#808890"  # of the diagram: readable on white and on black
_BARS = 20  # lengths of the bars behind scores

_RULES = """
fieldset { border: 0; margin: 12px 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: 4px 16px; }
legend { float: left; color: var(--quiet); padding: 0; margin-right: 8px; }
.lines { display: flex; flex-direction: column; width: max-content; }
.line { display: flex; border-bottom: 1px solid var(--line); }
.line span { flex: 0 0 138px; padding: 3px 0 3px 10px; text-align: right; }
.line span:not([class]) { flex-basis: 92px; }
.line .own { overflow-wrap: anywhere; }
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


def write_leaderboard(results: Path, page: Path, queries: int = 0, *, checks: bool = True) -> list[str]:
    """Write the page of all versions and tracks, with a retrieval report for each set, and each table as CSV and LaTeX.

    Args:
        results: Folder of the results.
        page: The page; tables are written beside it, and the retrieval reports into a folder beside it.
        queries: Number of test queries in each retrieval report; 0 writes no reports.
        checks: Whether results that were not checked on this computer are marked.

    Returns:
        A sentence for each set without a retrieval report, which says why.

    Raises:
        UserError: the number of queries is negative, or there are no results.
    """
    if queries < 0:
        raise UserError(f"A retrieval report shows 0 queries or more. Got {queries}.")
    places = {version: place for place, version in enumerate(SUITES)}  # the latest comes first
    kinds = sorted(
        {(result.suite, result.track) for result in map(read_result, results_in(results))},
        key=lambda kind: (places.get(kind[0], len(places)), kind),
    )
    boards = [read_board(results, *kind, checks=checks) for kind in kinds]
    rules = [_RULES, "".join(f".bar{length}{{--part:{100 * length // _BARS}%}}" for length in range(_BARS + 1))]
    for number, board in enumerate(boards):
        rules += [f"body:has(#t{number}:checked) .board:not(.b{number}){{display:none}}", *_sort_rules(number, board)]
    shown = [_view(board, results, page.parent) | {"files": _write_tables(board, page)} for board in boards]
    missing = {}
    for board, view in zip(boards, shown, strict=True):
        for head in view["sets"] if queries else ():
            try:
                data = open_set(head["name"], board.version)
            except UserError as error:
                missing[head["name"]] = f"{head['name']} has no retrieval report: {error}"
                continue
            report = page.with_name(f"{page.stem}-reports") / board.version / board.track / f"{head['name']}.html"
            report.parent.mkdir(parents=True, exist_ok=True)
            _write_retrieval_page(board, data, results, report, queries)
            head["report"] = _link(report, page.parent)
    title = "Continuous metric learning: leaderboard"
    write_html(page, "cml.reporting", "leaderboard.html.j2", rules=["\n".join(rules)], title=title, boards=shown)
    return list(missing.values())


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


def _view(board: Board, results: Path, folder: Path) -> dict[str, Any]:
    rows = []
    own = [visible_text(f"{name} {column}") for name, column in board.own_columns]
    own_end = len(board.sets) + len(own)
    header, *lines = board.grid()
    for method, (_, *texts) in zip(board.order, lines, strict=True):
        cells = []
        for name, text in zip(board.sets, texts, strict=False):
            result = board.results[method].get(name)
            link = "" if result is None else _link(_file(results, result), folder)
            figure = text.removesuffix(UNCHECKED)
            mark = text[len(figure) :]
            score = -math.inf if result is None else score_of(result)
            bar = "" if math.isinf(score) else f"bar{round(_BARS * min(1.0, max(0.0, score)))}"
            cells.append(
                {"text": figure.removesuffix(BEST) + mark, "best": figure.endswith(BEST), "file": link, "bar": bar}
            )
        measured, rest = texts[len(board.sets) : own_end], texts[own_end:]
        rows.append({"method": visible_text(method), "cells": cells, "own": measured, "rest": rest})
    notes = board.notes().replace(f" {BEST} marks", " Bold marks")
    sets = [{"name": name, "report": ""} for name in board.sets]
    return {
        "title": f"{board.version}, {board.track}",
        "sets": sets,
        "own": own,
        "summary": header[own_end + 1 :],
        "rows": rows,
        "notes": notes,
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


def _write_tables(board: Board, page: Path) -> list[tuple[str, str]]:
    """Write the table beside the page, as CSV and LaTeX; what each is called, and the link to it."""
    page.parent.mkdir(parents=True, exist_ok=True)
    header, *rows = board.grid()
    stem = f"{page.stem}-{board.version}-{board.track}"
    csv = write_csv(page.with_name(f"{stem}.csv"), ["method", *header[1:]], rows)
    tex = page.with_name(f"{stem}.tex")
    with atomic_file(tex) as temporary:
        temporary.write_text(text_table.latex([["method", *header[1:]], *rows]), encoding="utf-8")
    return [("CSV", _link(csv, page.parent)), ("LaTeX", _link(tex, page.parent))]


def _file(results: Path, result: Result) -> Path:
    return result_path(results, result.suite, result.set, result.track, result.method)


def _link(file: Path, folder: Path) -> str:
    return quote(Path(os.path.relpath(file, folder)).as_posix())


def _write_retrieval_page(board: Board, data: BenchSet, results: Path, page: Path, queries: int) -> None:
    """Write the retrieval report of a set: the first items that the first final run of each method retrieved."""
    dataset, (query, gallery) = open_dataset(data.folder), data.test(0, 0)
    splits = dataset.split("query"), dataset.split("gallery")
    places = [{item: row for row, item in enumerate(split.item_ids)} for split in splits]
    asked, held = (
        np.array([place_of[item] for item in part.item_ids])
        for place_of, part in zip(places, (query, gallery), strict=True)
    )
    tops = {ORACLE: rank_columns(data.test_distances, _FIRST)[0]}
    for method in board.order:
        result = board.results[method].get(data.name)
        if result is None or result.failed or method == ORACLE:
            continue
        path = _file(results, result)
        if result.split != data.split:
            raise DataError(f"{path}: its split is not that of the set here. Run cml bench check.")
        ranks = read_ranks(path, result, data)
        tops[method] = ranks.top[0, :, :_FIRST].astype(np.int64)
    items = {method: np.full((len(splits[0]), _FIRST), -1) for method in tops}
    distances = {method: np.full(items[method].shape, np.inf, np.float32) for method in tops}
    for method, top in tops.items():
        items[method][asked] = held[top]
        distances[method][asked] = data.reported_unit.factor * np.take_along_axis(data.test_distances, top, axis=1)
    retrieved = Retrieved(items, distances)
    methods = [method for method in tops if method != ORACLE] or [ORACLE]  # all others may have failed
    oracle_gap = np.mean([retrieved.mean(method) - retrieved.mean(ORACLE) for method in methods], axis=0)
    task = tasks.get(dataset.info.task)
    rows = RetrievalRows(task, dataset, retrieved, list(tops), 2 * _THUMBNAIL)
    shown = asked[:queries]  # hashes have put them in a random order
    write_retrieval_page(
        page,
        [rows.build(int(row), score=float(oracle_gap[row])) for row in shown],
        title=f"{data.name}, {board.version}, {board.track}",
        unit=data.reported_unit.unit,
        summary=(
            f"The first {_FIRST} of {len(gallery)} test images that the first final run of each method retrieves. "
            f'The "{ORACLE_GAP}" is their mean label distance minus that of the best possible ranking, averaged over '
            "all methods."
        ),
        legend=task.legend(dataset.info),
        thumbnail=_THUMBNAIL,
        measure=ORACLE_GAP,
    )
