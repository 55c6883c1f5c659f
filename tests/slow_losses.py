"""The losses written slowly, every triplet in a plain loop, as the formulas say."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    return ((a - b) ** 2).sum()


def usable(label_distances: Tensor, anchor: int, mask: Tensor | None) -> list[int]:
    return [
        item
        for item in range(label_distances.shape[1])
        if item != anchor
        and math.isfinite(label_distances[anchor, item])
        and (mask is None or bool(mask[anchor, item]))
    ]


def rank(label_distances: Tensor, anchor: int, item: int, items: list[int]) -> float:
    row = label_distances[anchor]
    nearer = sum(bool(row[other] < row[item]) for other in items)
    tied = sum(bool(row[other] == row[item]) for other in items)
    return nearer + (tied - 1) / 2


def unit(embeddings: Tensor) -> Tensor:
    return torch.stack([row / (row**2).sum().sqrt() for row in embeddings])


def log_ratio(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    label_exponent: float = 1.0,
    floor: float = 0.0,
    weights: str = "uniform",
    rank_offset: float = 5.0,
    normalize: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    of_anchors = []
    for a in range(len(label_distances)):
        items = usable(label_distances, a, mask)
        if floor == 0:
            items = [i for i in items if label_distances[a, i] > 0]
        total, weight = torch.zeros((), dtype=f.dtype), 0.0
        for i, j in itertools.combinations(items, 2):
            embedding_ratio = (squared_distance(f[a], f[i]) + eps) / (squared_distance(f[a], f[j]) + eps)
            label_ratio = max(float(label_distances[a, i]), floor) / max(float(label_distances[a, j]), floor)
            pair = 1.0
            if weights == "rank":
                for item in (i, j):
                    pair /= rank(label_distances, a, item, items) + rank_offset
            total = total + pair * (torch.log(embedding_ratio) - label_exponent * math.log(label_ratio)) ** 2
            weight += pair
        if weight > 0:
            of_anchors.append(total / weight)
    return torch.stack(of_anchors).mean()


def authors_log_ratio(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    """The authors' form: item 0 is the anchor, distances are not squared, and small constants stand where theirs do."""
    items, dimensions = embeddings.shape
    embedding_logs = [
        torch.log(torch.sqrt(squared_distance(embeddings[0], embeddings[i]) + 1e-4 / dimensions) + 1e-6)
        for i in range(1, items)
    ]
    label_logs = [math.log(float(label_distances[i]) + 1e-6) for i in range(1, items)]
    terms = [
        ((embedding_logs[i] - embedding_logs[j]) - (label_logs[i] - label_logs[j])) ** 2
        for i, j in itertools.combinations(range(items - 1), 2)
    ]
    return torch.stack(terms).mean()


def hinge(embeddings: Tensor, anchor: int, near: int, far: int, margin: float) -> Tensor:
    difference = squared_distance(embeddings[anchor], embeddings[near]) - squared_distance(
        embeddings[anchor], embeddings[far]
    )
    return (difference + margin).clamp(min=0)


def dense_triplet(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    margin: float = 0.03,
    normalize: bool = True,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    terms = [
        hinge(f, a, i, j, margin)
        for a in range(len(label_distances))
        for i, j in itertools.permutations(usable(label_distances, a, mask), 2)
        if label_distances[a, i] < label_distances[a, j]
    ]
    return torch.stack(terms).mean()


def binary_triplet(
    embeddings: Tensor, positives: Tensor, negatives: Tensor, margin: float = 0.2, normalize: bool = True
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    anchors, items = positives.shape
    terms = [
        hinge(f, a, p, n, margin)
        for a in range(anchors)
        for p in range(items)
        for n in range(items)
        if a not in (p, n) and positives[a, p] and negatives[a, n]
    ]
    return torch.stack(terms).mean()
