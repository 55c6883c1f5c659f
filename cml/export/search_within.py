"""Searches of an index by distance: all items that lie within a radius of a query."""

from cml.array_types import Float32
from cml.export.index import Index
from cml.searching.hit import Hit

_FIRST = 64  # items that are looked for at first


def search_within(index: Index, query: Float32, radius: float, *, exact: bool = False) -> list[list[Hit]]:
    """Find all items within an embedding distance of queries.

    Args:
        index: The index.
        query: Embeddings (Q, D) of the queries.
        radius: The largest embedding distance.
        exact: Compare with every item, even if the index is approximate.

    Returns:
        The hits of each query, nearest first; an approximate index may miss some.
    """
    k = min(_FIRST, len(index))
    while True:
        results = index.search(query, k, exact=exact)
        is_ended = all(len(hits) < k or hits[-1].distance > radius for hits in results)
        if is_ended or k == len(index):
            return [[hit for hit in hits if hit.distance <= radius] for hits in results]
        k = min(4 * k, len(index))
