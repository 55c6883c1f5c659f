"""re-identification: whether the first gallery items are of the query's class, seen by another camera."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.array_types import Bools, Float64, Int64
from cml.distances import LabelDistance
from cml.errors import UserError
from cml.protocols.figures import ProtocolResult, draw_parts, summarize
from cml.protocols.protocol import EmbeddedItems, Protocol, read_class_numbers
from cml.retrieval.metric_result import GIVEN_GALLERY
from cml.retrieval.search import nearest_embeddings
from cml.settings import check_whole

_QUERIES = 256  # at a time, whose whole rankings are in memory


@dataclass(frozen=True)
class ReIdentification(Protocol):
    """Rankings of a gallery by class, as people and vehicles are found again (Zheng et al., Market-1501, ICCV 2015).

    A query ranks all gallery items but those of its own class and its own group, which is the camera: they are neither
    right nor wrong. Without a gallery it ranks the other queries. A query without an item to find is left out. Figures:
    ``cmc@R``, the share of queries with an item of their class among the first R; ``map``, the mean over queries of the
    average precision; ``minp``, the mean inverse negative penalty, the share of right items among those up to the last
    right one (Ye et al., Deep Learning for Person Re-identification, TPAMI 2021).

    Attributes:
        ranks: The R of ``cmc@R``.
        seed: Random seed of the blocks of the intervals.

    Example:
        >>> import numpy as np
        >>> from cml import distances
        >>> distance = distances.get("classes")
        >>> rows = np.repeat(np.eye(5, dtype=np.float32), 4, axis=0)
        >>> items = EmbeddedItems(rows, distance.encode(list("aaaabbbbccccddddeeee")), np.arange(20) % 2)
        >>> ReIdentification().measure(distance, items).figures["embedding"]["map"].value
        1.0
    """

    ranks: tuple[int, ...] = (1, 5, 10)
    name: ClassVar[str] = "re-identification"

    def __post_init__(self) -> None:
        super().__post_init__()
        for rank in self.ranks:
            check_whole("ranks", rank)

    def measure(
        self, distance: LabelDistance, queries: EmbeddedItems, gallery: EmbeddedItems | None = None
    ) -> ProtocolResult:
        """Rank the gallery for each query."""
        other = queries if gallery is None else gallery
        own, *rest = read_class_numbers(self.name, distance, [queries] if gallery is None else [queries, gallery])
        theirs = rest[0] if rest else own
        names = [*(f"cmc@{rank}" for rank in self.ranks), "map", "minp"]
        parts = draw_parts(int(own.max()) + 1, self.seed)  # of classes
        blocks: list[list[Float64]] = [[] for _ in parts]
        for start in range(0, len(queries), _QUERIES):
            rows = np.arange(start, min(start + _QUERIES, len(queries)))
            _, order = nearest_embeddings(queries.embeddings[rows], other.embeddings, len(other))
            is_right = theirs[order] == own[rows, None]
            is_left_out = order == rows[:, None] if gallery is None else np.zeros(order.shape, bool)
            if queries.groups is not None and other.groups is not None:
                is_left_out |= is_right & (other.groups[order] == queries.groups[rows, None])
            values = _measure_rankings(is_right, is_left_out, self.ranks)
            for part, found in zip(parts, blocks, strict=True):
                if gallery is None and not part.all():  # classes are left out as queries and as what is ranked
                    values = _measure_rankings(is_right, is_left_out | ~part[theirs[order]], self.ranks)
                found.append(values[part[own[rows]]])
        values = np.concatenate(blocks[0])  # (Q, figures), NaN for queries without an item to find
        known = ~np.isnan(values[:, 0])
        if not known.any():
            raise UserError(
                "No query has a gallery item of its class to find. With groups, which are cameras, it has to be of "
                "another group."
            )
        means = [np.nanmean(np.concatenate(found), axis=0).tolist() for found in blocks]
        figures = summarize([dict(zip(names, mean, strict=True)) for mean in means], lowest=0, highest=1)
        left_out, classes = int((~known).sum()), len(np.unique(own[known]))
        note = (
            f"{known.sum()} queries of {classes} classes rank {len(other)} items"
            f"{', without those of their own class and group' if queries.groups is not None else ''}"
            f"{f'; {left_out} queries have no item to find' if left_out else ''}. 95 % intervals over classes of "
            f"queries{'' if gallery is None else GIVEN_GALLERY}."
        )
        return ProtocolResult(self.name, {"embedding": figures}, note)


def _measure_rankings(is_right: Bools, is_left_out: Bools, ranks: tuple[int, ...]) -> Float64:
    """Values (R, figures) of rankings (R, G), nearest first: cmc@R, average precision, inverse negative penalty."""
    is_right = is_right & ~is_left_out
    place = np.cumsum(~is_left_out, axis=1)  # 1 for the first item that counts
    found: Int64 = np.cumsum(is_right, axis=1)
    total = found[:, -1]
    at_least_one = np.maximum(total, 1)
    precision = np.where(is_right, found / np.maximum(place, 1), 0).sum(axis=1) / at_least_one
    first = np.where(is_right, place, np.iinfo(np.int64).max).min(axis=1)
    last = np.where(is_right, place, 1).max(axis=1)
    columns = [*(first <= rank for rank in ranks), precision, total / last]
    values = np.column_stack(columns).astype(np.float64)
    values[total == 0] = np.nan
    return values
