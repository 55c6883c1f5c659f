"""Rankers: give the scores by which the gallery of some queries is ranked, block by block.

Not for: indexes of large galleries, and not for measuring a ranking (metrics.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError

Ranker = Callable[[slice], NDArray[np.floating[Any]]]
"""Scores (R, G) of the queries in a slice against the whole gallery; a lower score is retrieved earlier.

Called from several threads at a time. Ties go to the lower gallery item, NaN is an error."""


def embedding_ranker(query: NDArray[Any], gallery: NDArray[Any]) -> Ranker:
    """Rank by the squared L2 distance of embeddings.

    One matrix product a block, in float64 on embeddings shifted to the gallery's mean: its rounding, about 1e-16 of
    the squared norms, lies far below what float32 embeddings can tell apart, which a float32 product does not keep
    for near items. Equal gallery embeddings get equal scores, so that they tie exactly.

    Args:
        query: (Q, D) embeddings.
        gallery: (G, D) embeddings; a float64 copy of them is kept.

    Raises:
        UserError: the shapes do not fit, or an embedding is not finite.
    """
    for name, embeddings in (("query", query), ("gallery", gallery)):
        if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu" or not embeddings.size:
            raise UserError(
                f"The {name!r} embeddings must be numbers of shape (items, D), neither of them 0. "
                f"Got shape {embeddings.shape}, {embeddings.dtype} instead."
            )
        finite = np.isfinite(embeddings).all(axis=1)
        if not finite.all():
            raise UserError(
                f"The {name!r} embeddings must be finite. Row {int(np.argmin(finite))} holds NaN or infinity, and so "
                f"do {int((~finite).sum())} of {len(finite)} rows: was the training stable?"
            )
    if query.shape[1] != gallery.shape[1]:
        raise UserError(
            "The 'query' and 'gallery' embeddings must have one dimension D. "
            f"Got {query.shape[1]} and {gallery.shape[1]} instead."
        )
    centre = gallery.mean(axis=0, dtype=np.float64)
    points = gallery - centre  # (G, D) float64
    norms = np.square(points).sum(axis=1)  # (G,)
    factors = -2 * points.T  # (D, G)
    copies, originals = _repeated(gallery)

    def scores(rows: slice) -> NDArray[np.float64]:
        block = query[rows] - centre  # (R, D)
        squared: NDArray[np.float64] = block @ factors  # (R, G)
        squared += norms
        squared += np.square(block).sum(axis=1)[:, None]
        np.maximum(squared, 0, out=squared)
        # a matrix product may add up equal columns in another order, depending on where they stand
        squared[:, copies] = squared[:, originals]
        return squared

    return scores


def random_ranker(queries: int, gallery: int, seed: int = 0) -> Ranker:
    """Rank at random: what an embedding that has learnt nothing would reach.

    Args:
        queries: Q.
        gallery: G.
        seed: The order of query q depends on ``seed`` and q alone, not on the block it is asked in.
    """
    draws = -(-gallery // 4)  # a step of Philox gives four numbers

    def scores(rows: slice) -> NDArray[np.float64]:
        start, stop, _ = rows.indices(queries)
        stream = np.random.Philox(key=seed).advance(start * draws)
        return np.random.Generator(stream).random((stop - start, 4 * draws))[:, :gallery]

    return scores


def _repeated(points: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows that equal an earlier row, and the first row that each of them equals."""
    rows = np.ascontiguousarray(points + np.zeros(1, points.dtype))  # -0 becomes 0
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(whole, return_index=True, return_inverse=True)
    originals = first[group]
    copies = np.flatnonzero(originals != np.arange(len(points)))
    return copies, originals[copies]
