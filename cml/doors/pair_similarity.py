"""Rank correlation of embeddings with the similarity that people see in pairs of items (as in CxC): pair_spearman."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.console.messages import say
from cml.data_prep.row_files import cell, number, read_rows
from cml.doors.trained_run import Embeddings, Rows, TrainedRun
from cml.errors import DataError
from cml.retrieval.judgement_agreement import PAIR_SPEARMAN, summarize_spearman
from cml.retrieval.oracle_row import ORACLE
from cml.retrieval.random_row import RANDOM
from cml.retrieval.results import Evaluation
from cml.storage.safe_paths import look_up

PAIRS = "pairs.csv"  # in the folder of a prepared dataset that comes with such pairs


@dataclass(frozen=True)
class Pairs:
    """P pairs of items whose similarity people have judged."""

    first: NDArray[np.intp]  # (P,) places of one item of each pair among the queries and, behind them, the gallery
    second: NDArray[np.intp]  # (P,) places of the other
    similarity: Float64  # (P,) the similarity that people see


def read_pairs(path: Path, places: Mapping[str, int]) -> Pairs:
    """Read pairs from a CSV or JSONL file with the columns item, other and similarity."""
    rows: list[tuple[int, int, float]] = []
    total = 0
    for where, row in read_rows(path):
        if isinstance(row, DataError):
            raise row
        names = [str(cell(row, column, where, option="that name")) for column in ("item", "other")]
        similarity = number(cell(row, "similarity", where, option="that name"), "similarity", where)
        first, other = (look_up(name, places) for name in names)
        if names[0] == names[1] or (first is not None and first == other):
            raise DataError(f"{where}: {names[0]!r} is paired with itself; delete the line.")
        total += 1
        if first is not None and other is not None:
            rows.append((first, other, similarity))
    if not rows:
        raise DataError(f"{path}: of its {total} pairs none is of two items among queries and gallery, by item_id.")
    if len(rows) < total:
        say(f"{path}: {total - len(rows)} of {total} pairs are not of two items among queries and gallery, left out")
    places_of_first, places_of_other, similarities = zip(*rows, strict=True)
    return Pairs(np.array(places_of_first), np.array(places_of_other), np.array(similarities, np.float64))


def with_pairs(
    evaluation: Evaluation, trained: TrainedRun, embeddings: Mapping[str, Embeddings], path: Path, seed: int
) -> Evaluation:
    """Add pair_spearman to every row of an evaluation: a mean over resamples, with their 95 % interval."""
    splits = trained.splits[:1] if trained.dataset.info.queries_are_gallery else trained.splits
    ids = [item for split in splits for item in split.item_ids]
    labels = [label for split in splits for label in split.labels]
    pairs = read_pairs(path, {item: place for place, item in enumerate(ids)})

    rows = {}
    for name, metrics in evaluation.rows.items():
        if name == ORACLE:
            distances = _label_distances(trained, labels, pairs)
        elif name == RANDOM:
            distances = np.random.default_rng(seed).random(len(pairs.similarity))
        else:
            first, second = (_read_rows(embeddings[name][: len(splits)], side) for side in (pairs.first, pairs.second))
            distances = np.square(first - second).sum(axis=1)
        rows[name] = {
            **metrics,
            PAIR_SPEARMAN: summarize_spearman(pairs.first, distances, -pairs.similarity, seed=seed),
        }
    return replace(evaluation, rows=rows)


def _read_rows(parts: Sequence[Rows], items: Int64) -> Float64:
    """Rows (P, D) of some items (P,), which are numbered through all parts."""
    points = np.empty((len(items), parts[0].shape[1]))
    before = 0
    for part in parts:
        chosen = (items >= before) & (items < before + len(part))
        points[chosen] = part[items[chosen] - before]
        before += len(part)
    return points


def _label_distances(trained: TrainedRun, labels: Sequence[Any], pairs: Pairs) -> Float64:
    """Label distance (P,) of each pair."""
    distances = np.empty(len(pairs.similarity))
    for place in np.unique(pairs.first):
        at = np.flatnonzero(pairs.first == place)
        encoded = trained.distance.encode([labels[place], *(labels[other] for other in pairs.second[at])])
        distances[at] = trained.distance.pairwise(encoded[:1], encoded[1:])[0]
    return distances
