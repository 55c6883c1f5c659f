"""The tables and the figure of the published benchmark: a row for each set, of images and of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import rankdata

from cml.comparing.bench.scores import LABEL_ERRORS
from cml.comparing.bench.suite import SETS
from cml.comparing.bench.table import Board, score_of
from making.benchmark_tables import significant
from making.gradients import INK, PULL, PUSH, plain, save
from making.records import Cells
from making.result_tables import IMAGES, VECTORS, load_board

METHODS = {  # the three answers first, then the other losses
    "log-ratio": "log-ratio",
    "tune": "`tune`",
    "regression": "regression",
    "frozen": "untrained",
    "rank-n-contrast": "Rank-N-Contrast",
    "h-ap": "H-AP",
    "dense-triplet": "dense triplets",
    "binary-threshold": "triplets by a threshold",
    "rkd-distance": "RKD",
    "cosent": "CoSENT",
}
RANKED = [method for method in METHODS if method != "regression"]  # those that are run on every set
DRAWN_METHODS = {"log-ratio": ("o", PULL), "tune": ("D", "#5aa35a"), "regression": ("s", PUSH), "frozen": ("|", INK)}
TITLES = {
    "elpv": "solar cells",
    "earth": "satellite tiles",
    "steering": "steering",
    "digits": "digits",
    "diabetes": "patients",
    "tablets": "spectra",
    "melting-points": "molecules",
    "structure": "molecules",
    "sentences": "sentences",
    "vowels": "spoken vowels",
    "waves": "waves",
    "search": "search",
    "people": "people",
    "rooms": "rooms",
    "scenes": "scenes",
    "heads": "heads",
}


def boards() -> list[Board]:
    """The boards of images and of vectors."""
    return [load_board(track) for track in (IMAGES, VECTORS)]


def list_sets() -> Iterator[tuple[Board, str]]:
    """Yield each published set with its board, the drawn ones last."""
    every = [(board, name) for board in boards() for name in board.sets]
    yield from sorted(every, key=lambda entry: SETS[entry[1]].drawn)


def describe_set(name: str) -> str:
    """A set and its kind of label, as tables name them."""
    drawn = "drawn " if SETS[name].drawn else ""
    return f"{drawn}{TITLES[name]}: {SETS[name].kind}"


def scores() -> Cells:
    """Make the table of scores: header and rows, the last of which has mean ranks."""
    rows = []
    for board, name in list_sets():
        header, *lines = board.grid()
        cells = {line[0]: line[header.index(name)] for line in lines}
        rows.append([describe_set(name), *(_plain(cells.get(method, "")) for method in METHODS)])
    ranks = mean_ranks()
    rows.append(["mean rank", *(f"{ranks[method]:.1f}" if method in ranks else "" for method in METHODS)])
    return [["set", *METHODS.values()], *rows]


def mean_ranks() -> dict[str, float]:
    """The mean rank of each method that was run on every set, 1 the best."""
    ranks = [
        rankdata([-score_of(board.results[method][name]) for method in RANKED]).tolist() for board, name in list_sets()
    ]
    return {method: fmean(row[place] for row in ranks) for place, method in enumerate(RANKED)}


def errors() -> Cells:
    """Make the table of mean absolute errors of predicted labels, by neighbours and by a probe."""
    methods = [method for method in METHODS if method not in ("dense-triplet", "binary-threshold", "rkd-distance")]
    rows = []
    for board, name in list_sets():
        for score, title in zip(LABEL_ERRORS, ("neighbours", "probe"), strict=True):
            means = [_mean(board, method, name, score) for method in methods]
            if means[0] is not None:
                rows.append(
                    [describe_set(name), title, *("" if mean is None else significant(mean, 3) for mean in means)]
                )
    return [["set", "predicted by", *(METHODS[method] for method in methods)], *rows]


def _mean(board: Board, method: str, name: str, score: str) -> float | None:
    result = board.results.get(method, {}).get(name)
    return None if result is None else result.mean(score)


def _plain(cell: str) -> str:
    return cell.replace("°", "").replace("not run", "")


def draw(path: Path) -> None:
    """Draw the scores of a few methods on every set, with their intervals."""
    every = list(list_sets())
    figure = Figure(figsize=(6.6, 0.6 + 0.32 * len(every)), layout="constrained")
    axes = figure.add_subplot()
    for place, (method, (marker, colour)) in enumerate(DRAWN_METHODS.items()):
        points = []
        for row, (board, name) in enumerate(every):
            result = board.results.get(method, {}).get(name)
            if result is not None and not result.failed:
                low, high = board.to_json()["intervals"][method][name]
                points.append((score_of(result), low, high, row + 0.14 * (place - 1.5)))
        score, low, high, heights = np.array(points).T
        axes.errorbar(
            score,
            heights,
            xerr=np.maximum([score - low, high - score], 0),
            fmt=marker,
            color=colour,
            markersize=5,
            linewidth=0,
            elinewidth=1,
            label=METHODS[method].strip("`"),
        )
    axes.set_yticks(range(len(every)), [describe_set(name) for _, name in every])
    axes.invert_yaxis()
    axes.set(xlabel="score: 0 for chance, 1 for the order of the labels")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=9, labelcolor=INK)
    plain(axes)
    axes.tick_params(axis="y", length=0)
    save(figure, path)


def count_best(method: str) -> int:
    """Count the sets on which a method is the best or does not differ from the best significantly."""
    return sum(best == method for board in boards() for best, _ in board.best)


def count_sets() -> int:
    """Count the published sets."""
    return len(list(list_sets()))


NAMES: dict[str, Any] = {"count_best": count_best, "count_sets": count_sets, "mean_ranks": mean_ranks}
"""The functions that sentences on pages may call."""
TABLES = {"benchmark": scores, "benchmark_errors": errors}
"""The tables by their names on pages."""
