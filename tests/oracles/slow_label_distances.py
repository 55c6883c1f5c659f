"""Label distances between two labels, written slowly with loops: what the fast ones are held against."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation as Turn


def circular(a: Sequence[float], b: Sequence[float], period: float, largest: bool) -> float:
    ways = [abs((x - y + period / 2) % period - period / 2) for x, y in zip(a, b, strict=True)]
    return max(ways) if largest else math.sqrt(sum(way * way for way in ways) / len(ways))


def rotation(a: Turn, b: Turn, group: Turn) -> float:
    return math.degrees(min(float(((a * one).inv() * b).magnitude()) for one in group))


def haversine(a: Sequence[float], b: Sequence[float]) -> float:
    """By the angle between two vectors, not by the haversine formula."""
    u, v = (
        np.array([math.cos(p) * math.cos(q), math.cos(p) * math.sin(q), math.sin(p)])
        for p, q in (map(math.radians, a), map(math.radians, b))
    )
    return 6_371_008.8 * math.atan2(float(np.linalg.norm(np.cross(u, v))), float(u @ v))


def procrustes(a: Any, b: Any, *, reflection: bool, mpjpe: bool) -> float:  # noqa: ANN401 - arrays (J, D)
    y, x = a - a.mean(axis=0), b - b.mean(axis=0)
    size_y, size_x = np.linalg.norm(y), np.linalg.norm(x)
    left, singular, right = np.linalg.svd((x / size_x).T @ (y / size_y))
    signs = np.ones(len(singular))
    if not reflection and np.linalg.det(left) * np.linalg.det(right) < 0:
        signs[-1] = -1
    value = float((singular * signs).sum())
    if not mpjpe:
        return 1 - value * value
    moved = value * size_y / size_x * x @ ((left * signs) @ right)
    return float(np.linalg.norm(moved - y, axis=1).mean())


def oks(a: Any, b: Any, sigmas: Sequence[float], area: float) -> float:  # noqa: ANN401 - arrays (J, 3)
    shared = [k for k in range(len(sigmas)) if a[k][2] and b[k][2]]
    squares = [(a[k][0] - b[k][0]) ** 2 + (a[k][1] - b[k][1]) ** 2 for k in shared]
    terms = [math.exp(-d / (2 * area * (2 * sigmas[k]) ** 2)) for d, k in zip(squares, shared, strict=True)]
    return 1 - sum(terms) / len(terms)


def place(a: Sequence[float], b: Sequence[float], metres: float, degrees: float, steps: int = 400) -> float:
    """By counting points of a grid that lie in the sectors."""
    low = [min(p, q) - metres for p, q in zip(a[:2], b[:2], strict=True)]
    high = [max(p, q) + metres for p, q in zip(a[:2], b[:2], strict=True)]
    x, y = np.meshgrid(*(np.linspace(p, q, steps) for p, q in zip(low, high, strict=True)))
    inside = []
    for east, north, heading in (a, b):
        away = np.hypot(x - east, y - north)
        turned = (np.degrees(np.arctan2(x - east, y - north)) - heading + 180) % 360 - 180
        inside.append((away <= metres) & (np.abs(turned) <= degrees / 2))
    return 1 - float((inside[0] & inside[1]).sum() / (inside[0] | inside[1]).sum())


def boxes(a: Sequence[Any], b: Sequence[Any]) -> float:
    """By trying every matching."""
    small, large = sorted((a, b), key=len)
    if not large:
        return 0.0
    best = max(
        sum(_iou(one, other) for one, other in zip(small, chosen, strict=True))
        for chosen in itertools.permutations(large, len(small))
    )
    return 1 - best / len(large)


def _iou(a: Sequence[Any], b: Sequence[Any]) -> float:
    if a[0] != b[0]:
        return 0.0
    width, height = (min(a[k + 2], b[k + 2]) - max(a[k], b[k]) for k in (1, 2))
    shared = max(width, 0) * max(height, 0)
    sizes = [(box[3] - box[1]) * (box[4] - box[2]) for box in (a, b)]
    return float(shared / (sum(sizes) - shared))
