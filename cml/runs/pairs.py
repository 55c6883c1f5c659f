"""What people said of the similarity of pairs of a dataset's items, against embeddings and label distances.

Not for: the correlation itself (cml.retrieval.over_queries).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cml.command_line.options import say
from cml.data_prep.table import cell, number, read_rows
from cml.errors import DataError
from cml.retrieval.evaluation import ORACLE, Evaluation, Metric
from cml.retrieval.over_queries import pair_spearman

if TYPE_CHECKING:
    from cml.runs.trained_run import Embeddings, TrainedRun

NAME = "pair_spearman"
FILE = "pairs.csv"  # in the folder of a prepared dataset that comes with such pairs


@dataclass(frozen=True)
class Pairs:
    """P pairs: places of both items among queries and, behind them, gallery; and how similar they are said to be."""

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    given: NDArray[np.float64]


def read_pairs(path: Path, places: Mapping[str, int]) -> Pairs:
    """Read a CSV or JSONL file with the columns item, other and similarity.

    Pairs of other items are left out, and said.

    Raises:
        DataError: a row lacks a column or its similarity is no finite number, an item is paired with itself, or no
            pair is of two known items.
    """
    found: list[tuple[int, int, float]] = []
    total = 0
    for where, row in read_rows(path):
        if isinstance(row, DataError):
            raise row
        names = [str(cell(row, column, where, option="that name")) for column in ("item", "other")]
        similarity = number(cell(row, "similarity", where, option="that name"), "similarity", where)
        if names[0] == names[1]:
            raise DataError(f"{where}: {names[0]!r} is paired with itself; delete the line.")
        total += 1
        if all(name in places for name in names):
            found.append((places[names[0]], places[names[1]], similarity))
    if not found:
        raise DataError(f"{path}: of its {total} pairs none is of two items among queries and gallery, by item_id.")
    if len(found) < total:
        say(f"{path}: {total - len(found)} of {total} pairs are not of two items among queries and gallery, left out")
    first, second, given = zip(*found, strict=True)
    return Pairs(np.array(first), np.array(second), np.array(given, np.float64))


def with_pairs(
    evaluation: Evaluation, trained: TrainedRun, embeddings: Mapping[str, Embeddings], path: Path, seed: int
) -> Evaluation:
    """The evaluation with the metric "pair_spearman", the mean over resamples and their 95 % interval, in every row.

    ``embeddings`` are those of the rows but for the oracle and the random one.

    Raises:
        DataError: see ``read_pairs``.
    """
    shared = trained.dataset.info.queries_are_gallery
    splits = trained.splits[:1] if shared else trained.splits
    ids = [item for split in splits for item in split.item_ids]
    labels = [label for split in splits for label in split.labels]
    pairs = read_pairs(path, {item: place for place, item in enumerate(ids)})

    def apart(some: Embeddings) -> NDArray[np.float64]:
        rows = np.concatenate(some[: len(splits)]).astype(np.float64)
        return np.asarray(np.square(rows[pairs.first] - rows[pairs.second]).sum(axis=1))

    def by_label() -> NDArray[np.float64]:
        distances = np.empty(len(pairs.given))
        for place in np.unique(pairs.first):
            at = np.flatnonzero(pairs.first == place)
            some = trained.distance.encode([labels[place], *(labels[other] for other in pairs.second[at])])
            distances[at] = trained.distance.pairwise(some[:1], some[1:])[0]
        return distances

    rows = {}
    for name, metrics in evaluation.rows.items():
        if name == ORACLE:
            distances = by_label()
        elif name == "random":
            distances = np.random.default_rng(seed).random(len(pairs.given))
        else:
            distances = apart(embeddings[name])
        values = pair_spearman(pairs.first.tolist(), -distances, pairs.given, seed=seed)
        values = values[np.isfinite(values)]
        mean = float(values.mean()) if len(values) else float("nan")
        low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (mean, mean)
        rows[name] = {**metrics, NAME: Metric(NAME, np.empty(0), mean, float(low), float(high))}
    return replace(evaluation, rows=rows)
