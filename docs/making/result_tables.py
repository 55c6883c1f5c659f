"""Tables of results pages: from records, and from the files of the benchmark. Figures are rounded here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import rankdata

from cml.comparing.bench.table import Board, read_board
from cml.retrieval.comparison import APART, apart, interval_text, over_seeds
from cml.retrieval.metrics import describe
from making import benchmark_tables
from making.records import ROOT, Cells, Record, read_record

PUBLISHED = "2026.3"  # the version of the benchmark whose results the pages show
DISTANCE = "label_distance@10"
IMAGES, VECTORS = "A-efficientnet-lite0", "A-none"  # the tracks of the benchmark's published results
HEADLINE_SETS = {
    "solar cells": (IMAGES, "elpv"),
    "places": (IMAGES, "earth"),
    "steering": (IMAGES, "steering"),
    "patients": (VECTORS, "diabetes"),
    "spectra": (VECTORS, "tablets"),
    "melting points": (VECTORS, "melting-points"),
    "substructures": (VECTORS, "structure"),
    "captions": (VECTORS, "sentences"),
    "vowels": (VECTORS, "vowels"),
}
HEADLINE_METHODS = {
    "log-ratio": "log-ratio",
    "tune": "`--tune`",
    "h-ap": "H-AP",
    "dense-triplet": "dense triplets",
    "rank-n-contrast": "Rank-N-Contrast",
    "cosent": "CoSENT",
    "binary-threshold": "triplets by a threshold",
    "regression": "regression",
    "frozen": "features, untrained",
}
FIRST = "log-ratio"  # the method that others are compared with


@functools.cache
def load(name: str) -> Record:
    """Read a record once."""
    return read_record(name)


@functools.cache
def load_board(track: str) -> Board:
    """Read the published results of a track of the benchmark, such as ``A-efficientnet-lite0``, once."""
    return read_board(ROOT / "results", PUBLISHED, track)


def comparison(name: str, methods: Sequence[str] = (), metrics: Sequence[str] = ()) -> Cells:
    """Make the table of a comparison.

    Args:
        name: Its record.
        methods: The rows; by default all.
        metrics: The columns; by default all that the record has.

    Returns:
        Header and rows.
    """
    record = load(name)
    if record.legacy:
        return record.table
    rows = record.values["trained"] | record.values["references"]
    columns = list(metrics or next(iter(rows.values())))
    return [["method", *columns], *([row, *(cell(name, row, metric) for metric in columns)] for row in methods or rows)]


def cell(name: str, method: str, metric: str = DISTANCE, first: str = "") -> str:
    """Write a figure of a comparison with its interval, and mark it where the interval of the first method is apart.

    Args:
        name: The record of the comparison.
        method: A row of it; "" is an empty cell.
        metric: A column of it.
        first: The method whose interval decides on the mark; by default that of the first row.
    """
    record = load(name)
    if not method:
        return ""
    if record.legacy:
        return cell_text(record, method, metric)
    rows = record.values["trained"] | record.values["references"]
    first = first or next(iter(rows))
    ours, theirs = _interval(rows[method][metric]), _interval(rows[first][metric])
    return interval_text(ours, describe(metric)) + APART * (method != first and apart(ours, theirs))


def cell_text(record: Record, row: str, column: str) -> str:
    """Look up a cell of the table of a legacy record.

    Args:
        record: The record.
        row: The first cell of its row.
        column: The header of its column.

    Raises:
        KeyError: There is no such cell, or more than one.
    """
    header, *lines = record.table
    columns = [position for position, text in enumerate(header) if text == column]
    rows = [line for line in lines if line[0] == row]
    if len(columns) != 1 or len(rows) != 1:
        raise KeyError(f"There are {len(rows)} rows {row!r} and {len(columns)} columns {column!r}.")
    return rows[0][columns[0]]


def table_cell(name: str, start: Sequence[str], column: str) -> float:
    """Look up the number at the beginning of a cell of a legacy record whose rows have several titles.

    Args:
        name: The record.
        start: The first cells of the row.
        column: The header of the column.
    """
    header, *rows = load(name).table
    (row,) = (row for row in rows if row[: len(start)] == list(start))
    return float(row[header.index(column)].split(" ")[0])


def _interval(figure: Mapping[str, Any]) -> tuple[float, float, float]:
    return figure["mean"], figure["low"], figure["high"]


def overview() -> Cells:
    """Make the table of label distances on all sets: header and rows."""
    header = ["label distance of the first 10", "log-ratio", "dense triplet", "binary triplet, threshold"]
    header += ["binary triplet, nearest", "frozen features", "random", "oracle"]
    methods = [*header[1:5], "frozen efficientnet-lite0", *header[6:]]
    return [header, *([title, *_overview_cells(name, column, methods)] for title, name, column in OVERVIEW)]


def _overview_cells(name: str, column: str, methods: Sequence[str]) -> list[str]:
    record = load(name)
    rows = (
        [row[0] for row in record.table] if record.legacy else [*record.values["trained"], *record.values["references"]]
    )
    return [cell(name, method if method in rows else "", column) for method in methods]


def joined(corner: str, columns: Sequence[tuple[str, str, str]], first: str = FIRST) -> Cells:
    """Make a table of columns from several comparisons of the same methods: header and rows.

    Args:
        corner: The title of the first column.
        columns: Title, record and metric of each column.
        first: The method of the first row, whose intervals decide on the marks.
    """
    values = load(columns[0][1]).values
    methods = [first, *(method for method in (*values["trained"], *values["references"]) if method != first)]
    header = [corner, *(title for title, _, _ in columns)]
    rows = ([method, *(cell(name, method, metric, first) for _, name, metric in columns)] for method in methods)
    return [header, *rows]


LOSSES = [
    ("steering", "losses_steering", DISTANCE),
    ("sports poses, px", "losses_sports", DISTANCE),
    ("rooms of one home", "losses_rooms", DISTANCE),
    ("COCO captions", "losses_captions", DISTANCE),
    ("drawn people, px", "losses_people", DISTANCE),
    ("drawn rooms", "losses_drawn_rooms", DISTANCE),
    ("drawn scenes", "losses_scenes", DISTANCE),
]
DRAWN = [
    ("people: px@10", "drawn_people", DISTANCE),
    ("ndcg@100", "drawn_people", "ndcg@100"),
    ("rooms: 1 - mIoU@10", "drawn_rooms", DISTANCE),
    ("ndcg@100", "drawn_rooms", "ndcg@100"),
    ("scenes: WMD@10", "drawn_scenes", DISTANCE),
    ("ndcg@100", "drawn_scenes", "ndcg@100"),
]

OVERVIEW = [  # title of the row, record, column
    ("drawn people, px", "drawn", "people: px@10"),
    ("drawn rooms, 1 - mIoU", "drawn", "rooms: 1 - mIoU@10"),
    ("drawn scenes, WMD", "drawn", "scenes: WMD@10"),
    ("steering angles", "steering", DISTANCE),
    ("sports poses, px", "sports", DISTANCE),
    ("rooms of one home, 1 - mIoU", "rooms", DISTANCE),
    ("COCO captions, WMD", "captions", DISTANCE),
]


def board(track: str) -> Cells:
    """Make the leaderboard of a track: header and rows."""
    return load_board(track).grid()


def headline() -> Cells:
    """Make the README's table: what people know, on the real data of the benchmark."""
    header, *rows = [["score", *HEADLINE_SETS], *([title] for title in HEADLINE_METHODS.values())]
    for track, name in HEADLINE_SETS.values():
        columns, *methods = board(track)
        cells = {method[0]: method[columns.index(name)] for method in methods}
        for row, method in zip(rows, HEADLINE_METHODS, strict=True):
            row.append(cells[method].replace("°", "").replace("not run", ""))
    return [header, *rows]


# Sets on which the defaults of a loss were chosen by measurement; those of the others are published or derived.
CHOSEN_ON = {
    "log-ratio": "steering, sports poses, people, scenes; bound and zeros on captions, digits, rooms, drawn classes",
    "cosent": "drawn ages, drawn classes, heads, digits, solar cells",
    "sum": "steering, people, scenes, and the sets of its parts",
}
SET_TITLES = {"cancer": "tumours", "pixels": "digits, pixels", "earth": "places"}
FORMER = "log-ratio(zero_factor=1.0, largest_exponent=1000)"
ONE_VIEW = "augmentation"  # the row of views.py that others are compared with
UNSEEN = ("cancer", "melting", "structure", "earth")  # no default was chosen on them; some were on other digits


def defaults() -> Cells:
    """Make the table of losses by their default settings: header and rows, the best mean rank first."""
    by_set = load("defaults").values["defaults"]
    means = {name: {row: fmean(seeds) for row, seeds in rows.items()} for name, rows in by_set.items()}
    ranks = default_ranks()
    header = ["loss", "defaults chosen on", *(SET_TITLES.get(name, name) for name in means), "mean rank"]
    rows = []
    for row in [*sorted(ranks, key=lambda loss: ranks[loss]), "frozen"]:
        scores = [f"{means[name][row]:.3f}" for name in means]
        rank = f"{ranks[row]:.1f}" if row in ranks else ""
        rows.append([row, CHOSEN_ON.get(row, ""), *scores, rank])
    return [header, *rows]


def default_ranks() -> dict[str, float]:
    """Compute the mean rank of each loss by its default settings, over the sets that no default was chosen on."""
    by_set = load("defaults").values["defaults"]
    rows = next(iter(by_set.values()))
    losses = [row for row in rows if row != "frozen" and not row.startswith("log-ratio(")]  # a former form is no loss
    scores = [[-fmean(by_set[name][loss]) for loss in losses] for name in UNSEEN]
    return dict(zip(losses, rankdata(scores, axis=1).mean(axis=0).tolist(), strict=True))


def equal_labels() -> Cells:
    """Make the table of log-ratio on equal labels, beside its form without them: header and rows."""
    by_set = load("equal_labels").values["equal_labels"]["sets"]
    header = ["dataset", "frozen features", "log-ratio without equal labels", "log-ratio", "log-ratio(weights=uniform)"]
    rows = []
    for name, scores in by_set.items():
        cells = [f"{fmean(scores[row]):.3f}" if row in scores else "fails" for row in ("frozen", FORMER, *header[3:])]
        rows.append([name, *cells])
    return [header, *rows]


def views() -> Cells:
    """Make the table of views and projectors: means, and gains over one view, paired by seed."""
    by_set = load("views").values["views"]["sets"]
    titles = [title.partition(",")[0] for title in by_set]
    rows = []
    for row in next(iter(by_set.values())):
        cells = []
        for scores in by_set.values():
            gain, low, high = over_seeds(np.subtract(scores[row], scores[ONE_VIEW]))
            text = f" ({gain:+.3f} ± {(high - low) / 2:.3f})" if row != ONE_VIEW else ""
            cells.append(f"{fmean(scores[row]):.3f}{text}")
        rows.append([row, *cells])
    return [["batches of 32 items", *titles], *rows]


def drlim() -> Cells:
    """Make the table of maps of shifted digits: header and rows."""
    figures = load("drlim").values["drlim"]["figures"]
    measures = list(next(iter(figures.values())))
    rows = [[method, *(interval_text(row[measure]) for measure in measures)] for method, row in figures.items()]
    return [["map", *measures], *rows]


PROBES = {"probe": "probe", "nearest": "nearest"}


def self_supervision() -> Cells:
    """Make the table of features learned with and without labels: accuracies with intervals over seeds."""
    by_row = load("self_supervision").values["self_supervision"]["rows"]
    counts = list(next(iter(by_row.values())))
    header = ["features", *(f"{count} a class, {title}" for title in PROBES.values() for count in counts)]
    rows = []
    for row, by_count in by_row.items():
        rows.append([row, *(interval_text(over_seeds(by_count[count][key])) for key in PROBES for count in counts)])
    return [header, *rows]


def self_supervision_gains() -> Cells:
    """Make the table of what training without labels gains over its start, paired by seed."""
    by_row = load("self_supervision").values["self_supervision"]["rows"]
    counts = list(next(iter(by_row.values())))
    learned = [row for row in by_row if row.startswith("self-supervised")]
    rows = []
    for row in [*learned, "supervised"]:
        for other in ("untrained", "pixels") if row in learned else (learned[-1],):
            cells = []
            for count in counts:
                gain, low, high = over_seeds(np.subtract(by_row[row][count]["probe"], by_row[other][count]["probe"]))
                cells.append(f"{gain:+.3f} ± {(high - low) / 2:.3f}" + APART * (low > 0 or high < 0))
            rows.append([f"{row} - {other}", *cells])
    return [["probe", *(f"{count} a class" for count in counts)], *rows]


def means_by_set(corner: str, name: str) -> Cells:
    """Make a table of mean scores over seeds: a row for each choice, a column for each set.

    Args:
        corner: The title of the first column.
        name: The record, of the script of the same name.

    Returns:
        Header and rows.
    """
    by_set = load(name).values[name]
    rows = [[row, *(f"{fmean(by_set[key][row]):.3f}" for key in by_set)] for row in next(iter(by_set.values()))]
    return [[corner, *by_set], *rows]


TABLES: dict[str, Callable[[], Cells]] = {
    "equal_labels": equal_labels,
    "views": views,
    "drlim": drlim,
    "self_supervision": self_supervision,
    "self_supervision_gains": self_supervision_gains,
    "hard_mining": lambda: means_by_set("pairs or anchors kept", "hard_mining"),
    "cosent_scale": lambda: means_by_set("scale", "cosent_scale"),
    "defaults": defaults,
    "overview": overview,
    "headline": headline,
    "losses": lambda: joined("loss", LOSSES),
    "speed": benchmark_tables.speed,
    "loss_times": benchmark_tables.loss_times,
    "scale": benchmark_tables.scale,
    "limits": benchmark_tables.limits,
    "vectors": benchmark_tables.vectors,
}
