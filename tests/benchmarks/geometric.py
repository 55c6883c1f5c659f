"""Label distances of angles, rotations, places and shapes against a NumPy loop over pairs. Bar: 50 times faster.

Procrustes also against a batched ``numpy.linalg.svd`` by turns, which would replace its closed form within 2 times.

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
from cml.array_types import Bools, Float64
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
    _compare_with_svd(space[: min(n, 400)], options.rounds)


def _compare_with_svd(poses: Float64, rounds: int) -> None:
    """Print the time of Procrustes beside that of a batched SVD of all pairs' cross covariances."""
    distance = distances.get("procrustes")
    labels = distance.encode(poses)
    points = labels.arrays["points"]
    visible = labels.arrays["visible"]
    closed, batched = [], []
    for _ in range(rounds):
        start = time.process_time()
        ours = distance.pairwise(labels, labels)
        middle = time.process_time()
        by_svd = _batched_svd(points, visible)
        batched.append(time.process_time() - middle)
        closed.append(middle - start)
    np.testing.assert_allclose(ours, by_svd, atol=1e-6)
    print(f"a batched SVD takes {min(batched) / min(closed):.1f} times as long as procrustes in space (bar 2)")


def _batched_svd(points: Float64, visible: Bools, tile: int = 64) -> Float64:
    """Procrustes residuals (N, N) of all pairs of poses (N, J, 3), in tiles of rows."""
    result = np.empty((len(points), len(points)))
    for start in range(0, len(points), tile):
        both = (visible[start : start + tile, None] & visible[None])[..., None].astype(np.float64)  # (R, N, J, 1)
        shared = both.sum(axis=2, keepdims=True)
        y, x = points[start : start + tile, None] * both, points[None] * both
        y, x = ((side - side.sum(axis=2, keepdims=True) / shared) * both for side in (y, x))
        sizes = np.sqrt((y * y).sum(axis=(2, 3)) * (x * x).sum(axis=(2, 3)))
        covariance = np.matmul(x.swapaxes(2, 3), y) / sizes[..., None, None]
        singular = np.linalg.svd(covariance, compute_uv=False)
        singular[..., -1] *= np.where(np.linalg.det(covariance) < 0, -1, 1)
        result[start : start + tile] = 1 - singular.sum(axis=-1) ** 2
    return result


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
