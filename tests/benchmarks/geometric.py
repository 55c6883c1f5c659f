"""Label distances of angles, rotations, places and shapes against a NumPy loop over pairs. Bar: 50 times faster.

    python tests/benchmarks/geometric.py [--items 2000] [--loop-pairs 4000] [--rounds 3]

All pairs of the items on one thread, against the formula for one pair in NumPy, called for a sample of pairs. Both
sides run alternately and minima are compared. The first call, which compiles, is left out.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation as Turn

from cml import distances
from cml.distances.poses.oks import COCO_SIGMAS

BAR = 50.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--loop-pairs", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    n = options.items
    flags = np.ones((n, 17, 1))
    plane, space = (np.concatenate([rng.normal(50, 20, (n, 17, size)), flags], axis=2) for size in (2, 3))
    cases: list[tuple[str, Any, Callable[[Any, Any], float]]] = [
        ("circular", rng.uniform(0, 360, n), _circular),
        ("rotation", Turn.random(n, rng=rng).as_quat(), _rotation),
        ("haversine", np.column_stack([rng.uniform(-90, 90, n), rng.uniform(-180, 180, n)]), _haversine),
        ("procrustes", plane, _procrustes),
        ("procrustes", space, _procrustes),
        ("procrustes(error=mpjpe)", space, lambda a, b: _procrustes(a, b, mpjpe=True)),
        ("oks(area=900.0)", plane, _oks),
    ]
    for choice, rows, pair in cases:
        distance = distances.get(choice)
        labels = distance.encode(rows)
        distance.pairwise(labels[:2], labels[:2])
        chosen = rng.integers(0, n, (options.loop_pairs, 2)).tolist()
        block, loop = [], []
        for _ in range(options.rounds):
            start = time.perf_counter()
            distance.pairwise(labels, labels)
            middle = time.perf_counter()
            for i, j in chosen:
                pair(rows[i], rows[j])
            block.append((middle - start) / (n * n))
            loop.append((time.perf_counter() - middle) / len(chosen))
        size = f"{rows.shape[2] - 1}-D" if rows.ndim == 3 else ""
        print(
            f"{choice:24} {size:4} {min(block) * 1e9:8.0f} ns a pair, loop {min(loop) * 1e6:6.1f} us, "
            f"{min(loop) / min(block):7.0f} times faster (bar {BAR:.0f})"
        )


def _circular(a: float, b: float) -> float:
    return float(np.abs(np.mod(a - b + 180.0, 360.0) - 180.0))


def _rotation(a: Any, b: Any) -> float:  # noqa: ANN401 - arrays
    return float(np.degrees(2 * np.arccos(np.minimum(np.abs(np.dot(a, b)), 1.0))))


def _haversine(a: Any, b: Any) -> float:  # noqa: ANN401
    up, along = np.radians(a - b) / 2
    square = np.sin(up) ** 2 + np.cos(np.radians(a[0])) * np.cos(np.radians(b[0])) * np.sin(along) ** 2
    return float(2 * 6_371_008.8 * np.arcsin(np.sqrt(square)))


def _procrustes(a: Any, b: Any, mpjpe: bool = False) -> float:  # noqa: ANN401
    both = (a[:, -1] > 0) & (b[:, -1] > 0)
    y, x = a[both, :-1], b[both, :-1]
    y, x = y - y.mean(axis=0), x - x.mean(axis=0)
    size_y, size_x = math.sqrt((y * y).sum()), math.sqrt((x * x).sum())
    left, singular, right = np.linalg.svd((x / size_x).T @ (y / size_y))
    if np.linalg.det(left) * np.linalg.det(right) < 0:
        singular[-1] *= -1
        left[:, -1] *= -1
    value = float(singular.sum())
    if not mpjpe:
        return 1 - value * value
    return float(np.linalg.norm(value * size_y / size_x * x @ (left @ right) - y, axis=1).mean())


def _oks(a: Any, b: Any) -> float:  # noqa: ANN401
    both = (a[:, 2] > 0) & (b[:, 2] > 0)
    square = ((a[both, :2] - b[both, :2]) ** 2).sum(axis=1)
    return float(1 - np.exp(-square / (2 * 900.0 * (2 * np.array(COCO_SIGMAS)[both]) ** 2)).mean())


if __name__ == "__main__":
    main()
