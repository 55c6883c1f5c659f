"""Neighbour lists and embeddings of drawn tracks from few calls of their label distance.

    python tests/benchmarks/distance_budget.py [--items 4000] [--budget 1%] [--starts own coordinates] [--json FILE]

Tracks of 32 steps run along random closed curves at uneven speed. Their distance is the least sum of the distances of
steps along an alignment. ``own`` starts from what ``cml.distances.get("dtw").start_vectors`` gives, each track at 32
places of its time and of its way, and ``coordinates`` from the coordinates alone.

Bars with 1 % of the calls: the true 10 within the 100 nearest of the embedding at least .97, and recall@10 of the lists
at least .80. "frozen" is the share of the true 10 within the 100 nearest of the vectors themselves. All distances are
known here, so that calls are looked up.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from threadpoolctl import threadpool_limits

import cml
from cml.array_types import Float32, Float64, Int64, Integer
from cml.distances.compile_loop import AS_WRITTEN, compile_loop

K, NEAR, STEPS = 10, 100, 32


def draw_tracks(items: int) -> Float64:
    """Closed curves of three waves (N, T, 2), at random times."""
    rng, drawn = np.random.default_rng(0), []
    for _ in range(items):
        times = np.sort(rng.uniform(0, 2 * np.pi, STEPS))
        phases, sizes = rng.uniform(0, 2 * np.pi, (3, 2)), rng.normal(0, [[1], [0.7], [0.4]], (3, 2))
        waves = np.sin(np.arange(1, 4)[:, None, None] * times[:, None] + phases[:, None])
        drawn.append((sizes[:, None] * waves).sum(axis=0))
    return np.stack(drawn)


@compile_loop(fastmath=AS_WRITTEN)
def warp_all(tracks: Float64, out: Float32) -> None:
    """Fill in the distances (N, N) of all tracks (N, T, 2)."""
    row = np.empty(tracks.shape[1] + 1)
    for a in range(len(tracks)):
        for b in range(a):
            row[:] = np.inf
            row[0] = 0.0
            for i in range(tracks.shape[1]):
                corner, left = row[0], np.inf
                row[0] = np.inf
                for j in range(tracks.shape[1]):
                    across, up = tracks[a, i, 0] - tracks[b, j, 0], tracks[a, i, 1] - tracks[b, j, 1]
                    left = np.sqrt(across * across + up * up) + min(corner, row[j + 1], left)
                    corner = row[j + 1]
                    row[j + 1] = left
            out[a, b] = out[b, a] = np.float32(left)


def find_nearest(matrix: Float32, k: int) -> Int64:
    """The k nearest others of each item, by a matrix of distances."""
    others = matrix.copy()
    np.fill_diagonal(others, np.inf)
    return np.argpartition(others, k, axis=1)[:, :k]


def share_found(truth: Int64, ids: Integer) -> float:
    """The share of the true neighbours that lists hold."""
    return float(np.mean([np.isin(wanted, row).mean() for wanted, row in zip(truth, ids, strict=True)]))


def square_distances(rows: Float32) -> Float32:
    """Squared distances of all rows."""
    lengths = np.square(rows).sum(axis=1)
    squared: Float32 = lengths[:, None] + lengths - 2 * rows @ rows.T
    return squared


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--budget", default="1%")
    parser.add_argument("--starts", nargs="+", choices=("own", "coordinates"), default=["own", "coordinates"])
    add_json_option(parser)
    options = parser.parse_args(arguments)
    tracks, items = draw_tracks(options.items), options.items
    matrix = np.zeros((items, items), np.float32)
    warp_all(tracks, matrix)
    k, near = min(K, items - 2), min(NEAR, items - 2)
    truth, figures = find_nearest(matrix, k), {}
    distance, sequences = cml.distances.as_label_distance(matrix), cml.distances.get("dtw")
    for start in options.starts:
        own = sequences.start_vectors(sequences.encode(tracks)) if start == "own" else None
        vectors = tracks.reshape(items, -1).astype(np.float32) if own is None else np.asarray(own, np.float32)
        with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
            began = time.process_time()
            out = Path(folder) / "out"
            found = cml.distances.approximate(distance, range(items), vectors, options.budget, k=k, out=out, quiet=True)
            took = time.process_time() - began
        figures[start] = {
            "share of calls": found.spent.calls / found.spent.pairs,
            "10 in 100, frozen": share_found(truth, find_nearest(square_distances(vectors), near)),
            "10 in 100": share_found(truth, find_nearest(square_distances(found.embeddings), near)),
            "10 in 100 candidates": share_found(truth, found.candidates(near)),
            "recall@10": share_found(truth, found.neighbors.ids),
            "processor seconds": took,
        }
        print(f"{start:12}", "  ".join(f"{name} {value:.4f}" for name, value in figures[start].items()), flush=True)
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
