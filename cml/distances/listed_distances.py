"""Label distances of listed pairs, such as of queries to their hits."""

import numpy as np

from cml.array_types import Float32, Int64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels


def listed_distances(
    distance: LabelDistance,
    labels: Labels,  # Q encoded labels
    others: Labels,  # encoded labels that the lists name
    positions: Int64,  # (Q, k) positions among them
) -> Float32:  # (Q, k); infinite where two labels cannot be compared
    """Compute the label distances of items to those that are listed for each."""
    rows = [distance.pairwise(labels[row : row + 1], others[listed])[0] for row, listed in enumerate(positions)]
    return np.stack(rows) if rows else np.empty(positions.shape, np.float32)
