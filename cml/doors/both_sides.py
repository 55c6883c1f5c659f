"""Queries and gallery as a user gives them: label distances, labels and groups, and what a query is not to find."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cml import distances
from cml.array_types import Bools, Int64
from cml.distances import LabelDistance
from cml.distances.cross_matrix import CrossMatrix
from cml.errors import UserError
from cml.items.names import align_cross_matrix, is_cross_matrix


@dataclass(frozen=True)
class BothSides:
    """Queries and gallery of a call."""

    inputs: Any
    labels: Any
    gallery: Any
    gallery_labels: Any
    groups: Any
    gallery_groups: Any

    def with_rows(self, label_distance: Any) -> tuple[Self, LabelDistance | None]:  # noqa: ANN401 - any form
        """The label distance of a call; of a matrix (Q, G) with the row and column of each item as its label."""
        if label_distance is None:
            return self, None
        if self.gallery is None or not is_cross_matrix(label_distance, len(self.inputs), len(self.gallery)):
            return self, distances.as_label_distance(label_distance)
        if self.labels is not None or self.gallery_labels is not None:
            raise UserError("A matrix of queries and gallery items needs no labels: leave 'labels' out.")
        queries, gallery = len(self.inputs), len(self.gallery)
        matrix = align_cross_matrix(label_distance, self.inputs, self.gallery)
        rows = {"labels": range(queries), "gallery_labels": range(queries, queries + gallery)}
        return replace(self, **rows), CrossMatrix(matrix)


def check_both_groups(groups: object, gallery_groups: object) -> None:
    """Refuse groups of one side alone."""
    if (groups is None) != (gallery_groups is None):
        raise UserError("'groups' and 'gallery_groups' are given together: the names on both sides are compared.")


def read_excluded(
    exclude: Any,  # noqa: ANN401 - a position, or a list of positions, for each query
    queries: int,
    is_live: Bools,  # (G,), the items of the gallery that can be found
    k: int,
) -> list[Int64]:
    """The positions in the gallery that each query is not to find; k items have to be left for each."""
    if len(exclude) != queries:
        raise UserError(f"'exclude' must name positions for each of {queries} queries. Got {len(exclude)} instead.")
    hidden = []
    for query, named in enumerate(exclude):
        positions = np.unique(np.asarray(named))
        outside = (
            positions[(positions < 0) | (positions >= len(is_live))] if positions.dtype.kind in "iu" else positions
        )
        if outside.size:
            raise UserError(
                f"'exclude' must name positions in the gallery, whole numbers from 0 to {len(is_live) - 1}. Got "
                f"{outside[0]} for query {query} instead."
            )
        positions = positions.astype(np.int64)
        left = int(is_live.sum() - is_live[positions].sum())
        if k > left:
            raise UserError(
                f"'k' must be at most the {left} items that 'exclude' leaves for query {query}. Got {k} instead."
            )
        hidden.append(positions)
    return hidden
