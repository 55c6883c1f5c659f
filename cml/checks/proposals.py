"""The items that a run proposes to label next, with their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cml.array_types import Float32, Int64
from cml.errors import UserError
from cml.items.labelled_items import Embedder
from cml.reporting.visible_text import visible_text
from cml.retrieval.search import nearest_embeddings
from cml.retrieval.text_table import align_columns
from cml.storage.atomic import write_csv

_SAME = 1e-5  # share of the length of features up to which two are of one item, whatever batches they were computed in


class Farthest(NamedTuple):
    """Chosen items."""

    items: Int64  # (count,) positions in the pool, in the order in which they were chosen
    # (count,) the distance of each to the nearest item that was known or chosen before it, which never increases
    distances: Float32


def choose_farthest(
    pool: Float32,  # (N, D) features or embeddings
    known: Float32,  # (M, D) those of known items, at least one
    count: int,
    groups: Int64 | None = None,  # (N,) numbers of groups of the pool, of each of which one item at most is chosen
) -> Farthest:
    """Choose items of a pool, each as far as possible from all that are known or chosen already; never known ones.

    The largest distance of an item of the pool to its nearest known or chosen item is at most twice what the best
    choice of as many items reaches (Gonzalez: Clustering to minimize the maximum intercluster distance, Theoretical
    Computer Science 1985). As a choice of what to label: Sener, Savarese: Active learning for convolutional neural
    networks, a core-set approach, ICLR 2018.
    """
    if not 1 <= count <= len(pool):
        raise UserError(f"The 'count' must be from 1 to the {len(pool)} items of the pool. Got {count} instead.")
    if not len(known):
        raise UserError("There must be at least one known item. Choose the first items to label at random.")
    away = nearest_embeddings(pool, known, 1)[0][:, 0].astype(np.float64)
    away[away <= _SAME * np.median(np.linalg.norm(known, axis=1))] = -1  # items that are known already
    if groups is not None:
        away[np.isin(groups, groups[away < 0])] = -1
    count = min(count, int((away >= 0).sum()) if groups is None else len(np.unique(groups[away >= 0])))
    points = pool.astype(np.float64)
    items = np.empty(count, np.int64)
    distances = np.empty(count, np.float32)
    for place in range(count):
        item = int(np.argmax(away))
        items[place], distances[place] = item, away[item]
        np.minimum(away, np.linalg.norm(points - points[item], axis=1), out=away)
        # an item is chosen once, also where others lie at the same point
        away[item if groups is None else groups == groups[item]] = -1
    return Farthest(items, distances)


_COLUMNS = ("rank", "item_id", "distance")


@dataclass(frozen=True, eq=False)
class ProposalList:
    """Items to label next, the first one first."""

    names: Sequence[str]  # their ids: paths below the folder, or ids of the dataset
    # the distance of each, by frozen features, to the nearest item that has a label or stands before it
    distances: Sequence[float]

    def rows(self) -> list[list[str]]:
        """The list as texts: rank, name and distance of each."""
        pairs = zip(self.names, self.distances, strict=True)
        return [[str(rank), name, f"{distance:.4g}"] for rank, (name, distance) in enumerate(pairs, 1)]

    def table(self, count: int) -> str:
        """Write the first items as lines of text."""
        cells = [[visible_text(name, 60), rank, distance] for rank, name, distance in self.rows()[:count]]
        return align_columns([["item", "rank", "distance to the nearest"], *cells])

    def save(self, path: Path | str) -> Path:
        """Write the list as a CSV file."""
        return write_csv(path, _COLUMNS, self.rows())


def propose_items(
    model: Embedder,
    pool: Any,  # noqa: ANN401 - N inputs without labels
    labelled: Any,  # noqa: ANN401 - inputs
    count: int,
    *,
    groups: Int64 | None = None,  # (N,) numbers of groups of the pool, of each of which one item at most is chosen
) -> Farthest:
    """Choose items of a pool by features that do not depend on the labels."""
    known = model.embed_by_reference(labelled, bar="features")
    return choose_farthest(model.embed_by_reference(pool, bar="features"), known, count, groups)
