"""Whether neighbours in the order of a file are almost the same item, as the frames of a film are.

Then items that are held out at random have near copies among those that are trained on, and blocks of the order are
held out in their place.
"""

import numpy as np

from cml.array_types import Bools, Float32, Int64

NEAR = 0.02  # of the file: how far apart neighbours in its order are
MUCH = 0.5  # share of items with such a nearest neighbour, from which on the order counts; by chance it is 0.04
_PROBED = 1000  # items whose nearest neighbours are looked at


def share_of_near_neighbors(
    features: Float32,  # (N, F)
    *,
    seed: int = 0,  # random seed of the draw of the items that are looked at, 1,000 at most
) -> float:
    """Find how many items have their nearest neighbour close by in the order of the file."""
    count = len(features)
    probed = np.sort(np.random.default_rng(seed).permutation(count)[:_PROBED])
    centred = features - features.mean(axis=0)
    lengths = np.einsum("nf,nf->n", centred, centred)
    distances = lengths - 2 * (centred[probed] @ centred.T)  # squared, less what a row has in common
    distances[np.arange(len(probed)), probed] = np.inf
    nearest = distances.argmin(axis=1)
    return float((np.abs(nearest - probed) <= NEAR * count).mean())


def near_in_order(
    items: Int64,  # (M,) places in the order
    count: int,
) -> Bools:  # (M, M), true where two items are within 2 % of the order; each item and itself are
    """Find the pairs that are close by in the order of the file, as the next frames of a film are.

    Any features retrieve such an item, so that it does not tell good ones from bad ones.
    """
    near: Bools = np.abs(items[:, None] - items) <= NEAR * count
    return near
