"""Rankers: the scores by which the gallery is ranked for each query, block by block."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError
from cml.retrieval.metrics import Float64, Floats

Ranker = Callable[[slice], Floats]
"""Scores (R, G) of the queries in a slice against the whole gallery; a lower score is retrieved earlier.

Called from several threads at a time. NaN is an error."""


def embedding_ranker(query: Any, gallery: Any) -> Ranker:  # noqa: ANN401 - checked here
    """Rank by the squared L2 distance of embeddings.

    One matrix product a block, in float64 on embeddings shifted to the gallery's mean: its rounding, about 1e-16 of
    the squared norms, lies far below what float32 embeddings can tell apart, which a float32 product does not keep
    for near items. Equal gallery embeddings get equal scores, so that they tie exactly.

    Args:
        query: (Q, D) embeddings, an array or a tensor.
        gallery: (G, D) embeddings, likewise; a float64 copy of them is kept.

    Raises:
        UserError: the shapes do not fit, or an embedding is not finite.
    """
    query, gallery = as_array(query), as_array(gallery)
    for name, embeddings in (("query", query), ("gallery", gallery)):
        if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu" or not embeddings.size:
            raise UserError(
                f"The {name!r} embeddings must be numbers of shape (items, D), neither of them 0. "
                f"Got shape {embeddings.shape}, {embeddings.dtype} instead."
            )
        if not (finite := np.isfinite(embeddings).all(axis=1)).all():
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

    def scores(rows: slice) -> Float64:
        block = query[rows] - centre  # (R, D)
        squared: Float64 = block @ factors  # (R, G)
        squared += norms
        squared += np.square(block).sum(axis=1)[:, None]
        np.maximum(squared, 0, out=squared)
        # a matrix product may add up equal columns in another order, depending on where they stand
        squared[:, copies] = squared[:, originals]
        return squared

    return scores


def as_array(embeddings: Any) -> NDArray[Any]:  # noqa: ANN401 - a tensor, an array or a list
    """Embeddings as an array, a tensor in float64, whatever its type, its device or whether it has a gradient."""
    return np.asarray(embeddings.detach().double().cpu() if hasattr(embeddings, "detach") else embeddings)


def random_ranker(queries: int, gallery: int, seed: int = 0) -> Ranker:
    """Rank at random, as an untrained embedding would: each query by ``seed`` and its number alone."""
    draws = -(-gallery // 4)  # a step of Philox gives four numbers

    def scores(rows: slice) -> Float64:
        start, stop, _ = rows.indices(queries)
        stream = np.random.Philox(key=seed).advance(start * draws)
        return np.random.Generator(stream).random((stop - start, 4 * draws))[:, :gallery]

    return scores


def ranked_columns(
    scores: Floats, k: int, *, first: int = 0, seed: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The first k columns of each row (R, k), and which rows (R,) have a tie among these or at their end.

    Items with the same score are in random order, by ``seed`` and the number of the query, ``first`` in the first row:
    in that of a gallery sorted by label, a constant embedding could score like the best or the worst.
    """
    from cml.retrieval.top_k import top_columns

    columns = top_columns(scores, min(k + 1, scores.shape[1]))
    found = np.take_along_axis(scores, columns, axis=1)
    tied: NDArray[np.bool_] = (found[:, 1:] == found[:, :-1]).any(axis=1)
    for row in np.flatnonzero(tied).tolist():
        shuffled = np.random.default_rng((seed, first + row)).permutation(scores.shape[1])
        columns[row] = shuffled[top_columns(scores[row : row + 1, shuffled], columns.shape[1])[0]]
    return columns[:, :k], tied


def _repeated(points: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows that equal an earlier row, and the first row that each of them equals."""
    rows = np.ascontiguousarray(points + np.zeros(1, points.dtype))  # -0 becomes 0
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(whole, return_index=True, return_inverse=True)
    originals = first[group]
    copies = np.flatnonzero(originals != np.arange(len(points)))
    return copies, originals[copies]
