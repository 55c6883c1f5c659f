"""How complete neighbour lists are that come from few label distances, by pairs that were drawn at random.

A random pair that belongs into a list is as likely to be any of the true neighbours. Half of the random pairs are kept
from the maps that choose what to ask for, until these maps choose them too: the share of them that is chosen is the
share of all neighbours that is. No further call of the label distance is needed.

The estimate is cautious. What belongs into a list is judged by the mean recall of all lists, so that too much seems to
belong into those that are less complete than others.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cml.distances.nearest import Neighbors

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
_Z = 1.96  # of a 95 % interval
_ITERATIONS = 12  # until the share and what follows from it agree


@dataclass(frozen=True)
class RecallEstimate:
    """The share of the true nearest neighbours that are in the lists.

    Attributes:
        value: The estimate, from 0 to 1.
        low: Lower end of its 95 % interval.
        high: Upper end.
        neighbors: The neighbours among random pairs that it rests on; 0 if all pairs were asked for.
    """

    value: float
    low: float
    high: float
    neighbors: int


def estimate_recall(
    lists: Neighbors, pairs: Int64, distances: Float32, is_chosen: NDArray[np.bool_], *, drawn_share: float
) -> RecallEstimate | None:
    """Estimate which share of the true neighbours is in the lists.

    Args:
        lists: The nearest of each item among the pairs that were asked for.
        pairs: (P, 2) random pairs that the maps did not know.
        distances: (P,) their label distances.
        is_chosen: (P,) which of them the maps chose to ask for.
        drawn_share: The share of all pairs that were drawn at random, and so are in the lists whatever was chosen.

    Returns:
        The estimate with Wilson's interval; None if no such pair belongs into a list.
    """
    known = np.isfinite(distances)
    pairs, distances, is_chosen = pairs[known], distances[known], is_chosen[known]

    def count(share: float) -> tuple[int, int]:
        belongs = distances <= _distances_at(lists, share)[pairs.T]  # (2, P): into the list of either item
        return int(belongs.sum()), int(belongs[:, is_chosen].sum())

    # the last items of lists are farther than the last true neighbours: too much belongs, and the share is too low
    total, chosen = count(1.0)
    if not total:
        return None
    lowest = share = chosen / total
    for _ in range(_ITERATIONS):
        nearer, found = count(share)
        if not nearer or found / nearer < lowest:  # too few to tell by
            break
        total, share = nearer, found / nearer
    width = 1 + _Z**2 / total
    centre = (share + _Z**2 / (2 * total)) / width
    half = _Z * np.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2)) / width
    value, low, high = (float(drawn_share + (1 - drawn_share) * part) for part in (share, centre - half, centre + half))
    return RecallEstimate(value, min(low, value), max(high, value), total)


def _distances_at(lists: Neighbors, share: float) -> Float32:
    """The distance of each item to its k-th true neighbour, (N,), if lists hold a share of the true ones.

    They hold share * k of the k true ones, so that the k-th of these lies between the items at that place of the list
    and the next, and not where the last one does. Infinite of a list that is too short.
    """
    k = lists.distances.shape[1]
    place = min(max(0.0, share * k - 0.5), k - 1.0)  # from 0
    lower = int(place)
    upper = min(lower + 1, k - 1)
    near, far = lists.distances[:, lower], lists.distances[:, upper]
    if place == lower:
        return near
    with np.errstate(invalid="ignore"):  # infinite of both
        between = near + (place - lower) * (far - near)
    return np.where(np.isnan(between), np.inf, between).astype(np.float32)
