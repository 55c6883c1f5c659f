"""What the methods of a leaderboard retrieve, as a page of pictures for each set, made from their ranks.

Not for: how a gallery looks (cml.reporting.gallery), the leaderboard itself (leaderboard.py).
"""

from pathlib import Path

import numpy as np

from cml import tasks
from cml.bench.result import place, read_ranks
from cml.bench.sets import open_set
from cml.bench.table import Board
from cml.data.prepared import open_dataset
from cml.errors import DataError
from cml.reporting.gallery import write_gallery
from cml.retrieval.evaluation import ORACLE
from cml.retrieval.rankers import ranked_columns
from cml.runs.gallery import BEHIND
from cml.runs.retrieved import Retrieved, shown_row

_FIRST = 5  # pictures of a method
_THUMBNAIL = 72


def write_set_gallery(one: Board, name: str, results: Path, page: Path, queries: int) -> None:
    """Write the gallery of a set: the first items that the first final run of each method retrieved.

    Args:
        one: The board.
        name: The set.
        results: Folder of the results.
        page: The HTML file.
        queries: Test queries to show, at most.

    Raises:
        DataError: ranks are not those of the result, or of another split than the set has here.
        UserError: the set cannot be had here.
    """
    data = open_set(name, one.version)
    dataset, (query, gallery) = open_dataset(data.folder), data.test(0, 0)
    splits = dataset.split("query"), dataset.split("gallery")
    places = [{item: row for row, item in enumerate(split.item_ids)} for split in splits]
    asked, held = (
        np.array([place_of[item] for item in part.item_ids])
        for place_of, part in zip(places, (query, gallery), strict=True)
    )
    tops = {ORACLE: ranked_columns(data.test_distances, _FIRST)[0]}
    for method in one.order:
        found = one.results[method].get(name)
        if found is None or found.failed or method == ORACLE:
            continue
        path = place(results, found.suite, name, found.track, found.method)
        ranks = read_ranks(path, found)
        fault = ranks.fault(len(ranks.top), data.test_distances)
        if fault or found.split != data.split:
            raise DataError(f"{path}: {fault or 'its split is not that of the set here'}. Run cml bench check.")
        tops[method] = ranks.top[0, :, :_FIRST].astype(np.int64)
    items = {method: np.full((len(splits[0]), _FIRST), -1) for method in tops}
    distances = {method: np.full(items[method].shape, np.inf, np.float32) for method in tops}
    for method, top in tops.items():
        items[method][asked] = held[top]
        distances[method][asked] = data.report[0] * np.take_along_axis(data.test_distances, top, axis=1)
    retrieved = Retrieved(items, distances)
    methods = [method for method in tops if method != ORACLE] or [ORACLE]  # all others may have failed
    behind = np.mean([retrieved.mean(method) - retrieved.mean(ORACLE) for method in methods], axis=0)
    task = tasks.get(dataset.info.task)
    write_gallery(
        page,
        [
            shown_row(task, dataset, retrieved, int(row), list(tops), size=2 * _THUMBNAIL, score=float(behind[row]))
            for row in asked[:queries]  # hashes have put them in a random order
        ],
        title=f"{name}, {one.version}, {one.track}",
        unit=data.report[1],
        summary=(
            f"The first {_FIRST} of {len(gallery)} test images that the first final run of each method retrieves. "
            f'"{BEHIND}" says how much larger the mean label distance of these is than that of the best possible, '
            "as the mean over all methods."
        ),
        legend=task.legend(dataset.info),
        thumbnail=_THUMBNAIL,
        measure=BEHIND,
    )
