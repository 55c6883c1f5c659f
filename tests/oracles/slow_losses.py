"""The losses written slowly, every triplet in a plain loop, as the formulas say."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torch.nn import functional


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
    zero_factor: float = 0.5,
    published_offsets: bool = False,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    of_anchors = []
    for a in range(len(label_distances)):
        items = usable(label_distances, a, mask)
        if floor == 0 and not published_offsets:
            items = [i for i in items if label_distances[a, i] > 0]
        total, weight = torch.zeros((), dtype=f.dtype), 0.0
        for i, j in itertools.combinations(items, 2):
            if published_offsets:
                roots = [torch.sqrt(squared_distance(f[a], f[item]) + 1e-4 / f.shape[1]) for item in (i, j)]
                embedding_ratio = ((roots[0] + 1e-6) / (roots[1] + 1e-6)) ** 2
                published = [float(label_distances[a, item]) ** (label_exponent / 2) + 1e-6 for item in (i, j)]
                log_label_ratio = 2 * math.log(published[0] / published[1])
            else:
                embedding_ratio = (squared_distance(f[a], f[i]) + eps) / (squared_distance(f[a], f[j]) + eps)
                raised = [
                    max(float(label_distances[a, item]), floor) if label_distances[a, item] > 0 else zero_factor * floor
                    for item in (i, j)
                ]
                log_label_ratio = label_exponent * math.log(raised[0] / raised[1])
            pair = 1.0
            if weights == "rank":
                for item in (i, j):
                    pair /= rank(label_distances, a, item, items) + rank_offset
            total = total + pair * (torch.log(embedding_ratio) - log_label_ratio) ** 2
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


def distance(a: Tensor, b: Tensor) -> Tensor:
    return squared_distance(a, b).sqrt()


def rank_n_contrast(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    temperature: float = 2.0,
    normalize: bool = False,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    terms = []
    for a in range(len(label_distances)):
        items = usable(label_distances, a, mask)
        if len(items) < 2:
            continue
        score = {k: -distance(f[a], f[k]) / temperature for k in items}
        for j in items:
            farther = [score[k] for k in items if label_distances[a, k] >= label_distances[a, j]]
            terms.append(torch.stack(farther).logsumexp(0) - score[j])
    return torch.stack(terms).mean()


def rkd_distance(
    embeddings: Tensor, label_distances: Tensor, mask: Tensor | None = None, normalize: bool = False
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    pairs = [(a, j) for a in range(len(label_distances)) for j in usable(label_distances, a, mask)]
    of_embeddings = torch.stack([distance(f[a], f[j]) for a, j in pairs])
    of_labels = torch.stack([label_distances[a, j].to(f.dtype) for a, j in pairs])
    total = torch.zeros((), dtype=f.dtype)
    for x in of_embeddings / of_embeddings.mean() - of_labels / of_labels.mean():
        total = total + (x**2 / 2 if abs(x.item()) <= 1 else abs(x) - 0.5)
    return total / len(pairs)


def relaxed_contrastive(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    label_scale: float = 1.0,
    sigma: float = 1.0,
    delta: float = 1.0,
    normalize: bool = False,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    of_anchors = []
    for a in range(len(label_distances)):
        items = usable(label_distances, a, mask)
        if len(items) < 2:
            continue
        mean = sum((distance(f[a], f[k]) for k in items), torch.zeros((), dtype=f.dtype)) / len(items)
        total = torch.zeros((), dtype=f.dtype)
        for j in items:
            relative = distance(f[a], f[j]) / mean
            w = math.exp(-((float(label_distances[a, j]) / label_scale) ** 2) / sigma)
            total = total + w * relative**2 + (1 - w) * (delta - relative).clamp(min=0) ** 2
        of_anchors.append(total)
    return torch.stack(of_anchors).mean()


def graded_contrastive(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    label_scale: float = 1.0,
    margin: float = 0.5,
    normalize: bool = True,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    terms = []
    for a in range(len(label_distances)):
        for j in usable(label_distances, a, mask):
            psi = max(0.0, 1 - float(label_distances[a, j]) / label_scale)
            apart = distance(f[a], f[j])
            terms.append(psi * apart**2 / 2 + (1 - psi) * (margin - apart).clamp(min=0) ** 2 / 2)
    return torch.stack(terms).mean()


def cross_entropy(wanted: list[float], scores: list[Tensor]) -> Tensor:
    total = sum(wanted)
    log_sum = torch.stack(scores).logsumexp(0)
    return torch.stack([-w / total * (s - log_sum) for w, s in zip(wanted, scores, strict=True)]).sum()


def soft_target(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    label_temperature: float = 0.1,
    temperature: float = 0.2,
    normalize: bool = True,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    of_anchors = []
    for a in range(len(label_distances)):
        items = usable(label_distances, a, mask)
        if len(items) >= 2:
            wanted = [math.exp(-float(label_distances[a, j]) / label_temperature) for j in items]
            of_anchors.append(cross_entropy(wanted, [-squared_distance(f[a], f[j]) / temperature for j in items]))
    return torch.stack(of_anchors).mean()


def generalised_contrastive(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None,
    label_reach: float,
    weights: str = "linear",
    temperature: float = 0.2,
    normalize: bool = True,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    of_pairs = []
    for a in range(len(label_distances)):
        items = usable(label_distances, a, mask)
        scores = [-squared_distance(f[a], f[j]) / temperature for j in items]
        for j, score in zip(items, scores, strict=True):
            own = float(label_distances[a, j])
            rank = 1 + sum(float(label_distances[a, k]) < own for k in items)
            share = 1 - own / label_reach if weights == "linear" else 1 / rank
            if len(items) >= 2 and own < label_reach:
                of_pairs.append(share * (torch.logsumexp(torch.stack(scores), 0) - score))
    return torch.stack(of_pairs).mean()


def kernel_supcon(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    bandwidth: float = 1.0,
    temperature: float = 0.1,
) -> Tensor:
    f = unit(embeddings)
    of_anchors = []
    for a in range(len(label_distances)):
        items = usable(label_distances, a, mask)
        if len(items) >= 2:
            wanted = [math.exp(-(float(label_distances[a, j]) ** 2) / (2 * bandwidth**2)) for j in items]
            of_anchors.append(cross_entropy(wanted, [(f[a] * f[j]).sum() / temperature for j in items]))
    return torch.stack(of_anchors).mean()


def cosent(embeddings: Tensor, label_distances: Tensor, mask: Tensor | None = None, scale: float = 2.0) -> Tensor:
    f = unit(embeddings)
    pairs = [(a, j) for a in range(len(label_distances)) for j in usable(label_distances, a, mask) if j > a]
    cosine = {(a, j): (f[a] * f[j]).sum() for a, j in pairs}
    terms = [torch.zeros((), dtype=f.dtype)]  # the 1 in log(1 + ..)
    for p, q in itertools.permutations(pairs, 2):
        if label_distances[p] > label_distances[q]:
            terms.append(scale * (cosine[p] - cosine[q]))
    return torch.stack(terms).logsumexp(0)


def regression(predictions: Tensor, targets: Tensor, penalty: str = "squared") -> Tensor:
    terms = []
    for prediction, target in zip(predictions.flatten(), targets.flatten(), strict=True):
        x = (prediction - target).abs()
        terms.append({"squared": x**2, "absolute": x, "huber": x**2 / 2 if x.item() <= 1 else x - 0.5}[penalty])
    return torch.stack(terms).mean()


def gains(label_distances: Tensor, anchor: int, items: list[int], neighbors: int) -> dict[int, float]:
    near = sorted(float(label_distances[anchor, item]) for item in items)[:neighbors]
    labels = {item: float(label_distances[anchor, item]) for item in items}
    return {item: math.exp(-label / near[-1]) if near[-1] else float(label == 0) for item, label in labels.items()}


def h_ap(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    temperature: float = 0.1,
    neighbors: int = 10,
    normalize: bool = True,
) -> Tensor:
    points = unit(embeddings) if normalize else embeddings
    rows = []
    for anchor in range(len(label_distances)):
        items = usable(label_distances, anchor, mask)
        gain = gains(label_distances, anchor, items, neighbors) if items else {}
        if len({float(label_distances[anchor, item]) for item in items}) < 2:
            continue
        score = {item: -squared_distance(points[anchor], points[item]) / 2 for item in items}
        total = embeddings.new_zeros(())
        for k in items:
            h, r = gain[k], embeddings.new_ones(())
            for j in items:
                above = j != k and bool(score[j] > score[k])
                h += min(gain[j], gain[k]) if above else 0
                if gain[j] < gain[k]:
                    r = r + torch.sigmoid((score[j] - score[k]) / temperature)
                elif above:
                    r = r + 1
            total = total + h / r
        rows.append(1 - total / sum(gain.values()))
    return torch.stack(rows).mean() if rows else 0 * embeddings.sum()


def lambda_ndcg(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None = None,
    temperature: float = 0.1,
    neighbors: int = 10,
    normalize: bool = True,
) -> Tensor:
    points = unit(embeddings) if normalize else embeddings
    rows = []
    for anchor in range(len(label_distances)):
        items = usable(label_distances, anchor, mask)
        gain = gains(label_distances, anchor, items, neighbors) if items else {}
        if len({float(label_distances[anchor, item]) for item in items}) < 2:
            continue
        score = {item: -squared_distance(points[anchor], points[item]) / 2 for item in items}
        order = sorted(items, key=lambda item: -float(score[item].detach()))
        discount = {item: 1 / math.log2(1 + place) for place, item in enumerate(order, 1)}
        ideal = sum(g / math.log2(1 + place) for place, g in enumerate(sorted(gain.values(), reverse=True), 1))
        total = embeddings.new_zeros(())
        for i in items:
            for j in items:
                if gain[i] > gain[j]:
                    weight = (gain[i] - gain[j]) * abs(discount[i] - discount[j]) / ideal
                    total = total + weight * functional.softplus(-(score[i] - score[j]) / temperature)
        rows.append(total)
    return torch.stack(rows).mean() if rows else 0 * embeddings.sum()


def pair_log_ratio(
    embeddings: Tensor,
    label_distances: Tensor,
    label_exponent: float,
    floor: float,
    normalize: bool = True,
    eps: float = 1e-6,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    residuals = []
    for a in range(len(label_distances)):
        for i in usable(label_distances, a, None):
            if i > a:  # once
                label = float(label_distances[a, i])
                label = 0.5 * floor if label == 0 else max(label, floor)
                residuals.append(torch.log(squared_distance(f[a], f[i]) + eps) - label_exponent * math.log(label))
    terms = [(one - other) ** 2 for one, other in itertools.combinations(residuals, 2)]
    return torch.stack(terms).mean() if terms else 0 * embeddings.sum()


def logistic_triplet(
    embeddings: Tensor,
    triplets: Tensor,
    scale: Tensor | float,
    flip_rate: Tensor | float,
    normalize: bool = False,
    eps: float = 1e-4,
) -> Tensor:
    f = unit(embeddings) if normalize else embeddings
    total, judgements = torch.zeros((), dtype=f.dtype), 0
    for anchor, nearer, farther, count in triplets.tolist():
        far, near = squared_distance(f[anchor], f[farther]) + eps, squared_distance(f[anchor], f[nearer]) + eps
        agrees = 1 / (1 + (near / far) ** (2 * scale))
        total = total - count * torch.log(flip_rate + (1 - 2 * flip_rate) * agrees)
        judgements += count
    return total / judgements
