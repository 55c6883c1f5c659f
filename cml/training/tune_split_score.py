"""The score of a split: how well an embedding of its held-out items follows their labels."""

from typing import NamedTuple

import numpy as np

from cml.array_types import Bools, Float32, Float64, Int64
from cml.distances.known_pairs import KnownPairs
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.training.linear_map import JoinedMaps, LinearMap
from cml.training.tune_pair_score import KnownPairsScore
from cml.training.tune_score import FirstItemsScore
from cml.training.tune_splits import SplitKind, near_in_order

_MOST_SCORED, _MOST_LINKED = 1000, 5000  # held-out items of a split, the second where few pairs are known


class SplitScore(NamedTuple):
    """The held-out items of a split that are scored, and their score.

    Attributes:
        items: (M,) their numbers.
        score: The score of embeddings (M, D) of these items.
    """

    items: Int64
    score: FirstItemsScore | KnownPairsScore

    def score_map(self, embedding: LinearMap | JoinedMaps, features: Float32) -> Float64:
        """Score a map of features.

        Args:
            embedding: The map.
            features: (N, F) of all items.

        Returns:
            (M,) the score of each item.
        """
        return self.score.score_items(embedding.embed(features[self.items]))


def make_split_score(held_out: Int64, labels: Labels, distance: LabelDistance, kind: SplitKind) -> SplitScore:
    """Choose the held-out items of a split that are scored.

    Args:
        held_out: The held-out items.
        labels: N encoded labels.
        distance: The label distance that encoded them.
        kind: How the splits were made. In blocks, near neighbours in the order of the items are not compared.

    Returns:
        The items, and their score.

    Raises:
        UserError: The labels of these items are all equally far from each other, or too few pairs of them are known.
    """
    most = _MOST_LINKED if distance.is_partial else _MOST_SCORED
    items = np.sort(np.random.default_rng(0).permutation(held_out)[:most])
    near = near_in_order(items, len(labels)) if kind == "blocks" else None
    score = _make_score(labels[items], distance, near)
    if not score.tells and distance.is_partial:
        raise UserError(
            f"'tune' holds out a fifth of the items at a time, and too few of the pairs of known label distance are of "
            f"two of the {len(items)} held-out ones. Give the distances of more pairs, or leave 'tune' out."
        )
    if not score.tells:
        mend = {
            "groups": "Make the groups smaller, or leave 'groups' out.",
            "blocks": "Shuffle the items, or give 'groups'.",
            "random": "Give more items with other labels.",
        }[kind]
        raise UserError(
            f"'tune' holds out a fifth of the items at a time, and the labels of {len(items)} held-out ones are all "
            f"equally far from each other. {mend}"
        )
    return SplitScore(items, score)


def _make_score(labels: Labels, distance: LabelDistance, near: Bools | None) -> FirstItemsScore | KnownPairsScore:
    """The score of items by their labels; pairs that are near in the order are left out."""
    if not distance.is_partial:
        return FirstItemsScore(distance.pairwise(labels, labels), near)
    pairs = distance.known_pairs(labels)
    if pairs is None:  # a distance made of others does not list them
        block = distance.pairwise(labels, labels)
        first, second = np.nonzero(np.triu(np.isfinite(block), 1))
        pairs = KnownPairs(first, second, block[first, second])
    if near is not None:
        is_kept = ~near[pairs.first, pairs.second]
        pairs = KnownPairs(pairs.first[is_kept], pairs.second[is_kept], pairs.distances[is_kept])
    return KnownPairsScore(pairs, len(labels))
