"""Farthest-first traversal: the items of a pool that cover what known items do not."""

from typing import NamedTuple

import numpy as np

from cml.array_types import Float32, Int64
from cml.errors import UserError
from cml.retrieval.search import nearest_embeddings


class Farthest(NamedTuple):
    """Chosen items."""

    items: Int64  # (count,) positions in the pool, in the order in which they were chosen
    # (count,) the distance of each to the nearest item that was known or chosen before it, which never increases
    distances: Float32


def choose_farthest(
    pool: Float32,  # (N, D) features or embeddings
    known: Float32,  # (M, D) those of known items, at least one
    count: int,
) -> Farthest:
    """Choose items of a pool, each as far as possible from all that are known or chosen already.

    The largest distance of an item of the pool to its nearest known or chosen item is at most twice what the best
    choice of as many items reaches (Gonzalez: Clustering to minimize the maximum intercluster distance, Theoretical
    Computer Science 1985). As a choice of what to label: Sener, Savarese: Active learning for convolutional neural
    networks, a core-set approach, ICLR 2018.
    """
    if not 1 <= count <= len(pool):
        raise UserError(f"The 'count' must be from 1 to the {len(pool)} items of the pool. Got {count} instead.")
    if not len(known):
        raise UserError("There must be at least one known item: the first items to label are chosen at random.")
    away = nearest_embeddings(pool, known, 1)[0][:, 0].astype(np.float64)
    points = pool.astype(np.float64)
    items = np.empty(count, np.int64)
    distances = np.empty(count, np.float32)
    for place in range(count):
        item = int(np.argmax(away))
        items[place], distances[place] = item, away[item]
        np.minimum(away, np.linalg.norm(points - points[item], axis=1), out=away)
        away[item] = -1  # an item is chosen once, also where others lie at the same point
    return Farthest(items, distances)
