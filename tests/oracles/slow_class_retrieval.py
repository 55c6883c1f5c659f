"""Retrieval of classes measured slowly, query by query, as the definitions say."""

from __future__ import annotations

import math
from collections.abc import Sequence

import slow_retrieval

from cml.array_types import Float64


def ranking(query: Float64, gallery: Float64, number: int, left_out: int | None) -> list[int]:
    """Gallery items by rising distance, ties in the random order that the query's number gives."""
    distances = [float(((query - item) ** 2).sum()) for item in gallery]
    return [item for item in slow_retrieval.ranking(distances, number) if item != left_out]


def measures(
    ranked: Sequence[int], query_class: object, gallery_classes: Sequence[object], ks: Sequence[int]
) -> dict[str, float]:
    relevant = sum(gallery_classes[item] == query_class for item in ranked)
    if relevant == 0:
        return dict.fromkeys([*(f"recall@{k}" for k in ks), "map@r", "r_precision"], math.nan)
    found = {}
    for k in ks:
        found[f"recall@{k}"] = float(any(gallery_classes[item] == query_class for item in ranked[:k]))
    hits, total = 0, 0.0
    for rank, item in enumerate(ranked[:relevant], start=1):
        if gallery_classes[item] == query_class:
            hits += 1
            total += hits / rank
    return {**found, "map@r": total / relevant, "r_precision": hits / relevant}
