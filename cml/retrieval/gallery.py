"""A gallery that is searched many times: exact answers, for which all but the query was computed before.

``nearest_embeddings`` takes the centre and the norms of a gallery in each call. Here they are kept, and for single
queries a copy of the gallery in 8 bits; the gallery itself may be mapped into memory.
"""

from typing import TYPE_CHECKING

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.errors import UserError
from cml.retrieval.search import check_size, nearest_embeddings

if TYPE_CHECKING:
    from cml.retrieval.coded_rows import CodedRows

_FEW = 24  # queries up to which each by itself is faster than blocks of them
_BLOCK = 8192


class Gallery:
    """Embeddings (N, D) float32 to search, whose centre and norms are computed once.

    Args:
        embeddings: The embeddings, which may be a memory map; they are not copied, and must not change.
        room: Rows that there is to be room for, if more will be appended.

    Raises:
        UserError: They are not (N, D), not finite, or too large to be compared.

    Example:
        >>> import numpy as np
        >>> gallery = Gallery(np.eye(3, dtype=np.float32))
        >>> distances, positions = gallery.search(np.array([[0, 0.5, 1]], np.float32), k=2)
        >>> positions
        array([[2, 1]])
    """

    def __init__(self, embeddings: Float32, *, room: int = 0) -> None:
        if embeddings.ndim != 2:
            raise UserError(f"A gallery must be embeddings (N, D). Got {embeddings.shape} instead.")
        # a plain view: memory maps are slower to slice
        self._room = np.asarray(embeddings, np.float32)
        self._size = self._live = len(embeddings)
        if room > len(embeddings):
            self._room = np.empty((room, embeddings.shape[1]), np.float32)
            self._room[: len(embeddings)] = embeddings
        self._norms: Float32 = np.empty(0, np.float32)
        self._coded: CodedRows | None = None  # once one query is searched
        self._measure()

    def __len__(self) -> int:
        return self._live

    @property
    def embeddings(self) -> Float32:
        """All rows (N, D), removed ones included."""
        return self._room[: self._size]

    @property
    def is_live(self) -> Bools:
        """Whether each row (N,) was not removed."""
        return np.isfinite(self._norms[: self._size])

    def append(self, rows: Float32) -> None:
        """Append rows. Room is doubled, so that n appended rows are copied O(n) times together.

        Args:
            rows: (n, D).
        """
        start, end = self._size, self._size + len(rows)
        if end > len(self._room):
            room = np.empty((max(end, 2 * start), self._room.shape[1]), np.float32)
            room[:start] = self._room[:start]
            norms = np.empty(len(room), np.float32)
            norms[:start] = self._norms[:start]
            self._room, self._norms, self._coded = room, norms, None
        self._room[start:end] = rows
        self._norms[start:end] = 0  # new memory holds anything, and what is not finite there counts as removed
        self._size, self._live = end, self._live + len(rows)
        if end > 2 * self._measured:  # the centre of few rows may be far from that of many
            self._measure()
        else:
            self._norms[start:end] = self._squared_norms(start, end)

    def remove(self, positions: Int64) -> None:
        """Leave rows out of all searches; the others keep their positions.

        Args:
            positions: (n,) of the rows.
        """
        self._live -= int(np.isfinite(self._norms[positions]).sum())
        self._norms[positions] = np.inf

    def search(self, query: Float32, k: int, among: Bools | None = None) -> tuple[Float32, Int64]:
        """Find the k rows nearest to each query, exactly; ties go to the lower position.

        Distances are computed in float64 and rounded, as by ``nearest_embeddings``. The two may add up the dimensions
        in another order: of rows that are equally far but for the rounding of float64, either may come first.

        Args:
            query: (Q, D) embeddings, finite.
            k: Rows per query, 1 <= k <= the number of rows that may be found.
            among: Whether each row (N,) may be found; None for all.

        Returns:
            L2 distances (Q, k), nearest first, and positions (Q, k).

        Raises:
            UserError: ``k`` is out of range, or queries have another D, are not finite, or are too large.
        """
        query = np.ascontiguousarray(query, np.float32)
        norms = self._norms[: self._size]
        total = self._live
        if among is not None:
            norms = np.where(among, norms, np.float32(np.inf))
            total = int(np.isfinite(norms).sum())
        if query.ndim != 2 or query.shape[1] != self._room.shape[1]:
            raise UserError(
                f"Queries and gallery must be (items, D) with one D. Got {query.shape[1:]} and "
                f"{self._room.shape[1:]} instead."
            )
        if not 1 <= k <= total:
            raise UserError(
                f"k must be at least 1 and at most the number of gallery items, {total}. Got k={k} instead."
            )
        if len(query) > _FEW:
            if total == self._size:
                return nearest_embeddings(query, self.embeddings, k)
            positions = np.flatnonzero(np.isfinite(norms))
            distances, found = nearest_embeddings(query, self.embeddings[positions], k)
            return distances, positions[found]
        distances, places = np.empty((len(query), k), np.float32), np.empty((len(query), k), np.int64)
        for row in range(len(query)):
            distances[row], places[row] = self._nearest(query[row], k, norms)
        return distances, places

    def _nearest(self, query: Float32, k: int, norms: Float32) -> tuple[Float32, Int64]:
        """The rows nearest to one query (D,) among those with finite norms (N,)."""
        from cml.retrieval.coded_rows import CodedRows

        offset = query - self._centre
        squared = float(np.square(offset, dtype=np.float64).sum())
        if not squared < np.inf:
            raise UserError("The query embeddings must be finite, but one holds NaN or infinity.")
        check_size(squared)
        embeddings = self._room[: self._size]
        coded = self._coded or CodedRows(*self._room.shape)
        coded.extend(embeddings, self._centre)  # of several threads, each writes the same
        self._coded = coded
        near = coded.find_near(offset, norms, k)
        blocks = (embeddings[near[start : start + _BLOCK]] for start in range(0, len(near), _BLOCK))
        parts = [np.square(rows - query.astype(np.float64)).sum(axis=1) for rows in blocks]
        distances = parts[0] if len(parts) == 1 else np.concatenate(parts)
        order = distances.argsort(kind="stable")[:k]
        return np.sqrt(distances[order]).astype(np.float32), near[order]

    def _measure(self) -> None:
        """Compute centre and norms of all rows."""
        self._measured = self._size
        rows, live = self._room[: self._size], None
        if self._live < self._size:
            live = self.is_live
        centre = np.zeros(self._room.shape[1]) if not self._size else rows.mean(axis=0, dtype=np.float64)
        if not np.isfinite(centre).all():
            raise UserError("The gallery embeddings must be finite, but one holds NaN or infinity.")
        self._centre = centre.astype(np.float32)
        self._coded = None
        norms = np.empty(len(self._room), np.float32)
        norms[: self._size] = self._squared_norms(0, self._size)
        if live is not None:
            norms[: self._size][~live] = np.inf
        self._norms = norms

    def _squared_norms(self, start: int, end: int) -> Float32:
        """Squared distances to the centre of some rows, rounded from float64."""
        norms = np.empty(end - start, np.float64)
        for first in range(start, end, _BLOCK):
            offsets = self._room[first : min(end, first + _BLOCK)] - self._centre.astype(np.float64)
            norms[first - start : first - start + len(offsets)] = np.einsum("nd,nd->n", offsets, offsets)
        if len(norms):
            if not np.isfinite(norms).all():
                raise UserError("The gallery embeddings must be finite, but one holds NaN or infinity.")
            check_size(float(norms.max()))
        return norms.astype(np.float32)
