"""The losses over classes written slowly, in plain loops, as the formulas say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    return ((a - b) ** 2).sum()


def distance(a: Tensor, b: Tensor) -> Tensor:
    return squared_distance(a, b).sqrt()


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum() / ((a**2).sum().sqrt() * (b**2).sum().sqrt())


def number(value: Tensor) -> float:
    return float(value.detach())


def unit(points: Tensor) -> Tensor:
    return torch.stack([point / (point**2).sum().sqrt() for point in points])


def mean(terms: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(terms)).mean()


def mean_above_zero(terms: Iterable[Tensor]) -> Tensor:
    active = [term for term in terms if term > 0]
    return torch.stack(active).mean() if active else torch.zeros((), dtype=torch.float64)


def triplets(classes: list[int]) -> Iterable[tuple[int, int, int]]:
    for a, p, n in itertools.permutations(range(len(classes)), 3):
        if classes[a] == classes[p] != classes[n]:
            yield a, p, n


def contrastive(f: Tensor, classes: list[int], margin: float, squared: bool) -> Tensor:
    power = 2 if squared else 1
    positive, negative = [], []
    for i, j in itertools.permutations(range(len(f)), 2):
        if classes[i] == classes[j]:
            positive.append(distance(f[i], f[j]) ** power)
        else:
            negative.append((margin - distance(f[i], f[j])).clamp(min=0) ** power)
    return mean_above_zero(positive) + mean_above_zero(negative)


def contrastive_pairs(f: Tensor, positives: Tensor, negatives: Tensor, margin: float) -> Tensor:
    """``positives`` and ``negatives`` (A, B) bool; distances are squared."""
    near = [squared_distance(f[a], f[i]) for a, i in positives.nonzero().tolist()]
    far = [(margin - distance(f[a], f[i])).clamp(min=0) ** 2 for a, i in negatives.nonzero().tolist()]
    return mean_above_zero(near) + mean_above_zero(far)


def ranked_list(
    f: Tensor,
    classes: list[int],
    alpha: float,
    margin: float,
    temperature: float,
    weigh: Callable[[int, int], float] | None = None,  # the weight of a negative, before they are made to sum to 1
) -> Tensor:
    weigh = weigh or (lambda a, n: math.exp(temperature * (alpha - number(distance(f[a], f[n])))))
    terms = []
    for a in range(len(f)):
        far = [distance(f[a], f[p]) for p in range(len(f)) if p != a and classes[p] == classes[a]]
        near = {n: distance(f[a], f[n]) for n in range(len(f)) if classes[n] != classes[a]}
        positives = [d - (alpha - margin) for d in far if d > alpha - margin]
        negatives = {n: alpha - d for n, d in near.items() if d < alpha}
        whole = sum(weigh(a, n) for n in negatives)
        term = mean(positives) if positives else torch.zeros((), dtype=torch.float64)
        for n, value in negatives.items():
            term = term + weigh(a, n) / whole * value
        terms.append(term)
    return mean(terms) / 2


def triplet(f: Tensor, classes: list[int], margin: float, mining: str, squared: bool) -> Tensor:
    measure: Callable[[Tensor, Tensor], Tensor] = squared_distance if squared else distance
    found = []
    for a, p, n in triplets(classes):
        near, far = measure(f[a], f[p]), measure(f[a], f[n])
        if mining == "semi-hard" and not near < far <= near + margin:
            continue
        others = [i for i in range(len(f)) if i != a]
        if mining == "batch-hard" and (
            any(classes[i] == classes[a] and measure(f[a], f[i]) > near for i in others)
            or any(classes[i] != classes[a] and measure(f[a], f[i]) < far for i in others)
        ):
            continue
        found.append((near - far + margin).clamp(min=0))
    return mean_above_zero(found)


def n_pair(f: Tensor, classes: list[int]) -> Tensor:
    pairs = []
    for one in sorted(set(classes)):
        members = [i for i, other in enumerate(classes) if other == one]
        if len(members) > 1:
            pairs.append((members[0], members[1]))
    terms = []
    for a, p in pairs:
        total = torch.ones((), dtype=f.dtype)
        for _, other in pairs:
            if other != p:
                total = total + torch.exp((f[a] * f[other]).sum() - (f[a] * f[p]).sum())
        terms.append(total.log())
    return mean(terms)


def lifted_structure(f: Tensor, classes: list[int], margin: float) -> Tensor:
    terms = []
    for i, j in itertools.permutations(range(len(f)), 2):
        if classes[i] == classes[j]:
            total = torch.zeros((), dtype=f.dtype)
            for end in (i, j):
                for n in range(len(f)):
                    if classes[n] != classes[i]:
                        total = total + torch.exp(margin - distance(f[end], f[n]))
            terms.append((distance(f[i], f[j]) + total.log()).clamp(min=0) ** 2 / 2)
    return mean(terms)


def multi_similarity(
    f: Tensor,
    classes: list[int],
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    epsilon: float | None = 0.1,
    gamma: float = 0.0,
) -> Tensor:
    terms = []
    for i in range(len(f)):
        positives = [p for p in range(len(f)) if p != i and classes[p] == classes[i]]
        negatives = [n for n in range(len(f)) if classes[n] != classes[i]]
        least = min((number(cosine(f[i], f[p])) for p in positives), default=math.inf)
        most = max((number(cosine(f[i], f[n])) for n in negatives), default=-math.inf)
        hardest = [p for p in positives if number(cosine(f[i], f[p])) == least]
        pull = push = torch.ones((), dtype=f.dtype)
        for p in positives:
            s = cosine(f[i], f[p])
            if epsilon is None or s - epsilon < most:
                pull = pull + torch.exp(-alpha * (s - base))
        for n in negatives:
            s = cosine(f[i], f[n])
            if epsilon is None or s + epsilon > least:
                turn = gamma * cosine(f[n] - f[i], f[hardest[0]] - f[i]) if hardest else 0.0
                push = push + torch.exp(beta * (s - base) - turn)
        terms.append(pull.log() / alpha + push.log() / beta)
    return mean(terms)


def direction_triplet(f: Tensor, classes: list[int], margin: float, gamma: float) -> Tensor:
    terms = []
    for a, p, n in triplets(classes):
        turn = cosine(f[n] - f[a], f[p] - f[a])
        gap = squared_distance(f[a], f[p]) - squared_distance(f[a], f[n])
        terms.append((gap + margin - gamma * turn).clamp(min=0))
    return mean_above_zero(terms)


def proxy_nca(f: Tensor, proxies: Tensor, classes: list[int], scale: float) -> Tensor:
    terms = []
    for i, y in enumerate(classes):
        total = torch.zeros((), dtype=f.dtype)
        for proxy in proxies:
            total = total + torch.exp(-scale * squared_distance(f[i], proxy))
        terms.append(-torch.log(torch.exp(-scale * squared_distance(f[i], proxies[y])) / total))
    return mean(terms)


def direction_proxy_nca(f: Tensor, proxies: Tensor, classes: list[int], gamma: float) -> Tensor:
    terms = []
    for i, y in enumerate(classes):
        total = torch.zeros((), dtype=f.dtype)
        for k, proxy in enumerate(proxies):
            if k != y:
                turn = cosine(proxy - f[i], proxies[y] - f[i])
                total = total + torch.exp(-squared_distance(f[i], proxy) - gamma * turn)
        terms.append(-torch.log(torch.exp(-squared_distance(f[i], proxies[y])) / total))
    return mean(terms)


def soft_triple(f: Tensor, centers: Tensor, classes: list[int], scale: float, gamma: float, margin: float) -> Tensor:
    """``centers`` (C, M, D)."""
    terms = []
    for i, y in enumerate(classes):
        similarity = []
        for of_class in centers:
            weights = [torch.exp(cosine(f[i], center) / gamma) for center in of_class]
            parts = [w * cosine(f[i], center) for w, center in zip(weights, of_class, strict=True)]
            similarity.append(sum(parts, torch.zeros(())) / sum(weights, torch.zeros(())))
        total = torch.zeros((), dtype=f.dtype)
        for k, s in enumerate(similarity):
            total = total + torch.exp(scale * (s - (margin if k == y else 0)))
        terms.append(-torch.log(torch.exp(scale * (similarity[y] - margin)) / total))
    return mean(terms)


def spread_of_centers(centers: Tensor) -> Tensor:
    """``centers`` (C, M, D): the term that SoftTriple adds for them, at weight 1."""
    classes, per_class, _ = centers.shape
    total = torch.zeros((), dtype=centers.dtype)
    for of_class in centers:
        for first in range(per_class):
            for second in range(first + 1, per_class):
                total = total + torch.sqrt(2 + 1e-5 - 2 * cosine(of_class[first], of_class[second]))
    return total / (classes * per_class * (per_class - 1))


def proxy_anchor(f: Tensor, proxies: Tensor, classes: list[int], alpha: float, delta: float) -> Tensor:
    pulls, pushes = [], []
    for k, proxy in enumerate(proxies):
        pull = push = torch.ones((), dtype=f.dtype)
        for i, y in enumerate(classes):
            if y == k:
                pull = pull + torch.exp(-alpha * (cosine(f[i], proxy) - delta))
            else:
                push = push + torch.exp(alpha * (cosine(f[i], proxy) + delta))
        if k in classes:
            pulls.append(pull.log())
        pushes.append(push.log())
    return mean(pulls) + mean(pushes)


def proxy_gml(
    f: Tensor, proxies: Tensor, classes: list[int], per_class: int, kept: int, regularization: float
) -> Tensor:
    count = len(proxies) // per_class
    owner = [j // per_class for j in range(len(proxies))]

    def cross_entropy(point: Tensor, y: int, chosen: list[int]) -> Tensor:
        sums = {}
        for j in chosen:
            sums[owner[j]] = sums.get(owner[j], torch.zeros((), dtype=f.dtype)) + cosine(point, proxies[j])
        total = torch.zeros((), dtype=f.dtype)
        for z in sums.values():
            total = total + torch.exp(z)
        return -torch.log(torch.exp(sums[y]) / total)

    terms = []
    for i, y in enumerate(classes):
        own = [j for j in range(len(proxies)) if owner[j] == y]
        others = sorted(
            (j for j in range(len(proxies)) if owner[j] != y), key=lambda j: -number(cosine(f[i], proxies[j]))
        )
        terms.append(cross_entropy(f[i], y, own + others[: kept - per_class]))
    loss = mean(terms)
    assert count == len(set(owner))
    everything = list(range(len(proxies)))
    return loss + regularization * mean(cross_entropy(proxies[j], owner[j], everything) for j in everything)


def language_guidance(f: Tensor, texts: Tensor, classes: list[int], gamma: float, temperature: float) -> Tensor:
    terms = []
    for i, y in enumerate(classes):
        seen = [torch.exp(cosine(f[i], f[j]) / temperature) for j in range(len(f))]
        read = [
            math.exp((number(cosine(texts[y], texts[other])) + (gamma if other == y else 0)) / temperature)
            for other in classes
        ]
        divergence = torch.zeros((), dtype=f.dtype)
        for s, r in zip(seen, read, strict=True):
            p, q = s / sum(seen, torch.zeros(())), r / sum(read)
            divergence = divergence + p * torch.log(p / q)
        terms.append(divergence)
    return mean(terms)


def pairs_by_graph(label_distances: Tensor, k: int) -> tuple[list[list[bool]], list[list[bool]]]:
    """Positives and negatives by DrLIM's graph, anchors A <= B."""
    anchors, items = label_distances.shape

    def near(a: int, i: int) -> bool:
        row = sorted(float(label_distances[a, j]) for j in range(items) if j != a and label_distances[a, j] < math.inf)
        return a != i and bool(label_distances[a, i] < math.inf) and float(label_distances[a, i]) <= row[:k][-1]

    positives = [
        [
            a != i and bool(label_distances[a, i] < math.inf) and (near(a, i) or (i < anchors and near(i, a)))
            for i in range(items)
        ]
        for a in range(anchors)
    ]
    negatives = [
        [a != i and bool(label_distances[a, i] < math.inf) and not positives[a][i] for i in range(items)]
        for a in range(anchors)
    ]
    return positives, negatives
