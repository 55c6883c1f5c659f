"""Near copies of queries in a gallery, such as other frames of the same scene, that flatter an evaluation."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from cml.array_types import Float32, Int64
from cml.distances import LabelDistance, Labels
from cml.retrieval.embedding_ranker import Rows, split_rows
from cml.retrieval.search import nearest_embeddings

_COMPARED = 200  # queries whose neighbours tell whether a gallery holds near copies
_LOOKED_AT = 20  # of the nearest items of a query, after which a gap is looked for
_GAP = 4.0  # how much farther the next item is than the copies before it
_NEAR = 0.2  # share of the usual distance beyond which nothing is a copy
_MOST_READ = 1 << 26  # numbers, which have to be read into memory
_COPY = 1e-3  # share below which everything is one
_MOST = 0.5  # of the queries, beyond which near copies are said
GROUPS_OPTION = "--group-column or --group-rows of cml prepare"  # that gives the groups of a prepared dataset
_CHANCE = 0.25  # of the way from chance to the oracle, below which a ranking is near chance


@dataclass(frozen=True)
class NearLists:
    """The nearest items of some queries, the query itself left out, beside the usual distance of two items."""

    queries: Int64  # (P,) positions
    distances: Float32  # (P, K) nearest first
    positions: Int64  # (P, K) in the gallery
    usual: float
    same_items: bool  # whether the queries are the gallery

    @classmethod
    def search(
        cls,
        query: Rows,  # (Q, D)
        gallery: Rows | None,  # (G, D); None where every query ranks all other queries
    ) -> Self | None:  # None where there are too few rows, too many to be read, or numbers that float32 does not hold
        """Find the nearest items of a sample of the queries."""
        sides = [query] if gallery is None else [query, gallery]
        if sum(rows.shape[0] * rows.shape[1] for rows in sides) > _MOST_READ:
            return None
        read = [_read(rows) for rows in sides]
        asked, ranked, same_items = read[0], read[-1], gallery is None
        k = min(len(ranked), _LOOKED_AT + 1 + same_items)
        if k < 2 + same_items or not all(np.isfinite(rows).all() for rows in read):
            return None
        rng = np.random.default_rng(0)
        chosen = np.sort(rng.permutation(len(asked))[:_COMPARED])
        others = rng.permutation(len(ranked))[: len(chosen)]
        near, positions = nearest_embeddings(asked[chosen], ranked, k)
        if same_items:  # the query itself goes behind the others
            order = np.argsort(positions == chosen[:, None], axis=1, kind="stable")[:, :-1]
            near, positions = np.take_along_axis(near, order, 1), np.take_along_axis(positions, order, 1)
        usual = float(np.median(np.linalg.norm(asked[chosen[: len(others)]] - ranked[others], axis=1)))
        # all embeddings may be one, which says nothing about the items
        return cls(chosen, near, positions, usual, same_items) if usual > 0 else None

    def share_of_copies(
        self,
        *,
        gaps: bool,  # whether few items that are much nearer than all others count as copies
    ) -> float:
        """The share of queries with an item nearer than a thousandth of the usual distance."""
        is_copied = self.distances[:, 0] <= _COPY * self.usual
        return float((is_copied | (self.count_copies() > 0) if gaps else is_copied).mean())

    def count_copies(self) -> Int64:  # (P,)
        """Count the items before the last gap: few that are far nearer than the next. 0 where there is no gap.

        Points that are spread evenly along a line have such a gap in a third of all cases, and fewer in more
        dimensions.
        """
        near, farther = self.distances[:, :-1], self.distances[:, 1:]
        is_gap = (farther > _GAP * near) & (near < _NEAR * self.usual)
        last = near.shape[1] - np.argmax(is_gap[:, ::-1], axis=1)
        return np.where(is_gap.any(axis=1), last, 0)

    def score_behind_copies(self, distance: LabelDistance, query_labels: Labels, gallery_labels: Labels) -> float:
        """Score what lies behind the copies: 0 for chance, 1 for the nearest by label among all but the copies.

        A good embedding of labels that take few values has gaps as well: behind one value, the next begins.
        """
        found, best, chance = 0.0, 0.0, 0.0
        for query, positions, copies in zip(self.queries, self.positions, self.count_copies(), strict=True):
            left_out = [*positions[:copies], query] if self.same_items else positions[:copies]
            apart = distance.pairwise(query_labels[[query]], gallery_labels)[0].astype(np.float64)
            behind = apart[positions[copies:]]
            apart[left_out] = np.inf
            behind, apart = behind[np.isfinite(behind)], np.sort(apart[np.isfinite(apart)])
            if copies and len(behind):
                found += behind.mean()
                best += apart[: len(behind)].mean()
                chance += apart.mean()
        return (chance - found) / (chance - best) if chance > best else 1.0

    def name_copies(
        self,
        option: str,  # that gives groups
        *,
        gaps: bool,
    ) -> str:
        """A sentence of a verdict where most queries have copies; "" where they have none."""
        share = self.share_of_copies(gaps=gaps)
        if share <= _MOST:
            return ""
        return (
            f"But {share:.0%} of the queries have near copies in the gallery, such as frames of the same subject, so "
            f"the figures say little about new ones. Give {describe_groups(option)}"
        )

    def name_chance_behind_copies(
        self,
        distance: LabelDistance,
        query_labels: Labels,
        gallery_labels: Labels,
        option: str,  # that gives groups
    ) -> str:
        """A sentence of a verdict where an embedding finds nothing but what may be near copies; "" elsewhere.

        Embeddings may lie near each other because their labels do. Then the ranking behind them is better than chance,
        unless a loss for classes has put each value of the labels into a place of its own.
        """
        share = float((self.count_copies() > 0).mean())
        if share <= _MOST or self.score_behind_copies(distance, query_labels, gallery_labels) > _CHANCE:
            return ""
        return (
            f"But {share:.0%} of the queries find a few items far nearer than all others, and behind these the ranking "
            "is near chance. If these are near copies, such as frames of the same subject, "
            f"give {describe_groups(option)}"
        )


def describe_groups(option: str) -> str:
    """What to give where items belong together, to the end of the sentence."""
    return f"the groups of items that belong together ({option}), so that queries are compared with other groups only."


def describe_larger_groups(option: str) -> str:
    """What to give where groups have near copies in each other, to the end of the sentence."""
    return f"larger groups ({option}), so that the items of other groups are no near copies."


def _read(rows: Rows) -> Float32:  # (N, D)
    """Read all rows part by part."""
    read = np.empty(rows.shape, np.float32)
    for part in split_rows(rows):
        read[part] = rows[part]
    return read
