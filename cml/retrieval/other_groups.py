"""What belongs to the query in a gallery: all items of its own group, such as frames of one patient."""

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float32, Int64
from cml.retrieval.search import nearest_embeddings


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
