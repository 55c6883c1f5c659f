"""Ranking by the distance of embeddings."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError
from cml.retrieval.array_types import Float64
from cml.retrieval.ranker import Ranker

_ROWS = 1 << 16  # whose squares are in memory at a time


def embedding_ranker(query: Any, gallery: Any) -> Ranker:  # noqa: ANN401 - checked here
    """Rank by the squared L2 distance of embeddings.

    One matrix product a block, in float64 on embeddings shifted to the gallery's mean: its rounding, about 1e-16 of
    the squared norms, lies far below what float32 embeddings can tell apart, which a float32 product does not keep
    for near items. Equal gallery embeddings get equal scores, so that they tie exactly.

    Args:
        query: (Q, D) embeddings, an array or a tensor.
        gallery: (G, D) embeddings, likewise; a float64 copy of them is kept.

    Returns:
        The ranker, whose scores are squared distances.

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
        finite = np.isfinite(embeddings).all(axis=1)  # (items,)
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
    norms = np.concatenate([np.square(part).sum(axis=1) for part in np.array_split(points, -(-len(points) // _ROWS))])
    copies, originals = _find_duplicates(gallery)

    def scores(rows: slice) -> Float64:
        block = query[rows] - centre  # (R, D)
        squared: Float64 = (-2 * block) @ points.T  # (R, G)
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


def _find_duplicates(points: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows that equal an earlier row, and the first row that each of them equals."""
    rows = np.ascontiguousarray(points + np.zeros(1, points.dtype))  # -0 becomes 0
    whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(whole, return_index=True, return_inverse=True)
    originals = first[group]
    copies = np.flatnonzero(originals != np.arange(len(points)))
    return copies, originals[copies]
