"""Ranking by the distance of embeddings."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Floating, Int64, UInt64
from cml.data.vectors import ComputedRows
from cml.errors import UserError

Ranker = Callable[[slice], Floating]
"""Scores (R, G) of the queries in a slice against the whole gallery; a lower score is retrieved earlier.

It is called from several threads at a time. NaN is an error."""


_PART = 1 << 19  # numbers of the gallery that are in memory as float64 at a time: 4 MB
_FEW_COLUMNS = 16
_ALIGNED = 64  # a part begins where a matrix kernel would begin anew, so that parts give the digits of the whole

Rows = NDArray[Any] | ComputedRows


def embedding_ranker(query: Any, gallery: Any) -> Ranker:  # noqa: ANN401 - checked here
    """Rank by the squared L2 distance of embeddings.

    One matrix product for each part of the gallery, in float64 on embeddings shifted to the gallery's mean: its
    rounding, about 1e-16 of the squared norms, lies far below what float32 embeddings can tell apart, which a float32
    product does not keep for near items. Equal gallery embeddings get equal scores, so that they tie exactly.

    Args:
        query: (Q, D) embeddings: an array, a tensor, or rows that are computed as they are read.
        gallery: (G, D) embeddings, likewise. They are not copied; a part at a time is converted to float64.

    Returns:
        The ranker, whose scores are squared distances.

    Raises:
        UserError: the shapes do not fit, or an embedding is not finite.

    Example:
        >>> ranker = embedding_ranker(np.zeros((1, 2)), np.array([[3.0, 4.0], [1.0, 0.0]]))
        >>> ranker(slice(0, 1))
        array([[25.,  1.]])
    """
    query, gallery = as_array(query), as_array(gallery)
    check_embeddings(query, gallery)
    distances = SquaredDistances(query, gallery, np.ones((1, gallery.shape[1])))
    copies, originals = find_duplicates(gallery)

    def scores(rows: slice) -> Float64:
        squared: Float64 = distances.compute(rows)[0]
        # a matrix product may add up equal columns in another order, depending on where they stand
        copy_columns(squared, copies, originals)
        return squared

    return scores


def check_embeddings(
    query: Rows,  # (Q, D) embeddings
    gallery: Rows,  # (G, D) embeddings
) -> None:
    """Check that embeddings can be compared."""
    for name, embeddings in (("query", query), ("gallery", gallery)):
        if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu" or 0 in embeddings.shape:
            raise UserError(
                f"The {name!r} embeddings must be numbers of shape (items, D), neither of them 0. "
                f"Got shape {embeddings.shape}, {embeddings.dtype} instead."
            )
    _check_finite("query", query)
    if gallery is not query:
        _check_finite("gallery", gallery)
    if query.shape[1] != gallery.shape[1]:
        raise UserError(
            "The 'query' and 'gallery' embeddings must have one dimension D. "
            f"Got {query.shape[1]} and {gallery.shape[1]} instead."
        )


class SquaredDistances:
    """Squared L2 distances of queries to the gallery, under several weights of the columns by one matrix product.

    They are computed in float64 of embeddings less the gallery's mean. The gallery is not copied.
    """

    def __init__(self, query: Rows, gallery: Rows, weights: Float64) -> None:
        self._query, self._gallery, self._weights = query, gallery, weights
        self._parts = split_rows(gallery)
        total = sum((gallery[part].sum(axis=0, dtype=np.float64) for part in self._parts), np.zeros(()))
        self._centre = total / len(gallery)
        self._norms = np.concatenate([self._sum_squares(gallery[part] - self._centre) for part in self._parts], axis=1)

    def compute(self, rows: slice) -> Float64:  # (W, R, G) float64, at least 0
        """Compute the distances of a block of queries."""
        block = self._query[rows] - self._centre  # (R, D) float64
        count, (different, width) = len(block), self._weights.shape
        block_norms = self._sum_squares(block)[..., None]  # (W, R, 1)
        factors = (-2 * block * self._weights[:, None]).reshape(different * count, width)
        squared = np.empty((different, count, len(self._gallery)))
        products = squared.reshape(different * count, len(self._gallery))  # a view
        for part in self._parts:
            points = self._gallery[part] - self._centre  # (part, D) float64
            np.matmul(factors, points.T, out=products[:, part])
            columns = squared[:, :, part]
            columns += self._norms[:, None, part]
            columns += block_norms
            np.maximum(columns, 0, out=columns)
        return squared

    def _sum_squares(self, rows: Float64) -> Float64:
        squares = np.square(rows)
        return np.stack([(squares * weights).sum(axis=1) for weights in self._weights])  # (W, N)


def copy_columns(
    scores: Float64,  # (R, G)
    copies: Int64,
    originals: Int64,  # the first position of each
) -> None:
    """Give items the scores of those that they equal, in place."""
    for row in scores:
        row[copies] = row[originals]


def as_array(embeddings: Any) -> Any:  # noqa: ANN401 - a tensor, an array, a list or rows that are computed
    """Embeddings as an array, a tensor in float64, whatever its type, its device or whether it has a gradient.

    Rows that are computed as they are read stay what they are.
    """
    if isinstance(embeddings, ComputedRows):
        return embeddings
    return np.asarray(embeddings.detach().double().cpu() if hasattr(embeddings, "detach") else embeddings)


def split_rows(
    rows: Rows,  # (N, D)
) -> list[slice]:
    """Split rows into slices of about 4 MB of float64 each, all of about the same size."""
    count, width = rows.shape
    pieces = max(1, min(count * width // _PART, count // (2 * _ALIGNED)))
    ends = [count * piece // pieces // _ALIGNED * _ALIGNED for piece in range(pieces)] + [count]
    return [slice(start, stop) for start, stop in itertools.pairwise(ends)]


def _check_finite(name: str, rows: Rows) -> None:
    bad = 0
    first = -1
    for part in split_rows(rows):
        finite = np.isfinite(rows[part])
        if not finite.all():
            broken = np.flatnonzero(~finite.all(axis=1))
            first = part.start + int(broken[0]) if first < 0 else first
            bad += len(broken)
    if bad:
        raise UserError(
            f"The {name!r} embeddings must be finite. Row {first} holds NaN or infinity, and so do {bad} of "
            f"{len(rows)} rows: was the training stable?"
        )


def find_duplicates(
    rows: Rows,  # (N, D)
) -> tuple[Int64, Int64]:  # their positions, and the position of the first row that each of them equals
    """Find rows that equal an earlier row."""
    count, width = rows.shape
    if width > 2 * _FEW_COLUMNS:  # rows that equal each other do so in a few columns, where others rarely do
        columns = np.linspace(0, width - 1, _FEW_COLUMNS).astype(np.int64)
        few = np.concatenate([np.ascontiguousarray(rows[part][:, columns]) for part in split_rows(rows)])
        alike = np.union1d(*_find_repeated(_hash_rows(_as_words(few))))
        if 4 * len(alike) < count:
            if not len(alike):
                return alike, alike
            copies, originals = _find_equal(rows[alike])
            return alike[copies], alike[originals]
    return _find_equal(rows)


def _find_equal(rows: Rows) -> tuple[Int64, Int64]:
    """``find_duplicates`` by all columns."""
    hashes = np.concatenate([_hash_rows(_as_words(rows[part])) for part in split_rows(rows)])  # (N,)
    copies, originals = _find_repeated(hashes)
    # rows with one hash are nearly always equal; those that are not are compared among themselves
    equal = np.ones(len(copies), np.bool_)
    step = max(1, _PART // rows.shape[1])
    for start in range(0, len(copies), step):
        part = slice(start, start + step)
        equal[part] = (_as_words(rows[copies[part]]) == _as_words(rows[originals[part]])).all(axis=1)
    collided = copies[~equal]
    if not len(collided):
        return copies, originals
    words = _as_words(rows[collided])
    again, firsts = _find_repeated(words.view(np.dtype((np.void, words.itemsize * words.shape[1]))).ravel())
    return (np.concatenate([copies[equal], collided[again]]), np.concatenate([originals[equal], collided[firsts]]))


def _find_repeated(values: NDArray[Any]) -> tuple[Int64, Int64]:
    """Positions of values that were there before, and the first position of each of them."""
    _, first, group = np.unique(values, return_index=True, return_inverse=True)
    originals = first[group]
    copies = np.flatnonzero(originals != np.arange(len(values)))
    return copies, originals[copies]


def _as_words(rows: NDArray[Any]) -> NDArray[np.unsignedinteger[Any]]:
    """The bits of rows (N, D), the same for 0 and -0."""
    words: NDArray[np.unsignedinteger[Any]] = np.ascontiguousarray(rows + np.zeros(1, rows.dtype)).view(
        f"u{min(4, rows.dtype.itemsize)}"
    )
    return words


def _hash_rows(words: NDArray[np.unsignedinteger[Any]]) -> UInt64:
    """Hash rows (N, D) of unsigned integers to (N,): the sum of what random odd factors of each column make of them."""
    one = np.uint64(1)
    factors = np.random.default_rng(0).integers(0, 1 << 63, words.shape[1], np.uint64) << one | one  # (D,)
    mixed = words * factors
    mixed ^= mixed >> np.uint64(32)  # the upper half, which depends on all bits, into the lower one
    mixed *= factors
    hashes: UInt64 = mixed.sum(axis=1, dtype=np.uint64)
    return hashes
