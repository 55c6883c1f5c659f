"""What belongs to the query in a gallery: all items of its own group, such as frames of one patient, or near copies."""

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float32, Int64
from cml.retrieval.search import nearest_embeddings

_COMPARED = 500  # queries whose neighbours tell whether a gallery holds near copies
_LOOKED_AT = 20  # of the nearest items of a query, after which a gap is looked for
_GAP = 4.0  # how much farther the next item is than the copies before it
_NEAR = 0.2  # share of the usual distance beyond which nothing is a copy
_COPY = 1e-3  # share below which everything is one


def find_other_groups(
    query: Float32,  # (Q, D) embeddings
    gallery: Float32,  # (G, D) embeddings
    k: int,
    groups: NDArray[np.generic],  # (Q,) numbers of groups
    gallery_groups: NDArray[np.generic],  # (G,) numbers, of the same groups
) -> tuple[Float32, Int64, Bools]:  # L2 distances (Q, k), positions (Q, k), and which of them are of other groups
    """Find the k nearest items that belong to another group than the query."""
    theirs = gallery_groups[np.isin(gallery_groups, groups)]
    largest = int(np.unique(theirs, return_counts=True)[1].max()) if len(theirs) else 0
    distances, positions = nearest_embeddings(query, gallery, min(len(gallery), k + largest))
    is_own = gallery_groups[positions] == groups[:, None]
    first = np.argsort(is_own, axis=1, kind="stable")[:, :k]
    distances, positions, is_own = (np.take_along_axis(part, first, 1) for part in (distances, positions, is_own))
    return distances, positions, ~is_own


def share_of_copies(
    query: Float32,  # (Q, D) vectors
    gallery: Float32 | None,  # (G, D) vectors; None where queries are the gallery
    *,
    gaps: bool,  # whether few items that are much nearer than all others count as copies
) -> float:
    """The share of queries with near copies in the gallery, such as other frames of the same scene.

    A copy is nearer than a thousandth of the usual distance; or it is one of few items that are far nearer than the
    next. Points that are spread evenly along a line have such a gap in a third of all cases, and fewer in more
    dimensions.
    """
    rng = np.random.default_rng(0)
    ranked = query if gallery is None else gallery
    chosen = np.sort(rng.permutation(len(query))[:_COMPARED])
    others = rng.permutation(len(ranked))[:_COMPARED]
    k = min(len(ranked), _LOOKED_AT + 1 + (gallery is None))
    if k < 2 + (gallery is None):
        return 0.0
    near, positions = nearest_embeddings(query[chosen], ranked, k)
    if gallery is None:  # the query itself, behind the others
        order = np.argsort(positions == chosen[:, None], axis=1, kind="stable")
        near = np.take_along_axis(near, order, 1)[:, :-1]
    usual = float(np.median(nearest_embeddings(query[chosen], ranked[others], len(others))[0]))
    if usual == 0:  # all embeddings are one, which says nothing about the items
        return 0.0
    is_copied = near[:, 0] <= _COPY * usual
    if gaps:
        is_gap = (near[:, 1:] > _GAP * near[:, :-1]) & (near[:, :-1] < _NEAR * usual)
        is_copied |= is_gap.any(axis=1)
    return float(is_copied.mean())
