"""Exact search: 1,000 queries in 100,000 x 128, against a matrix product and topk. Bars: 2 times, memory O(block).

    python tests/benchmarks/search.py [--items 100000] [--queries 1000] [--rounds 5]

Both sides have two threads and are measured in turn; the least time of each counts, because the machine may be shared.
The plain side holds all queries x items scores and answers in float32. It is run on random embeddings, and on
embeddings along a curve, as continuous labels make them, where neighbours are nearer together than float32 can tell:
the share of right answers is printed for both. The curve is stored in random order and in its own, as frames of a video
are, where each item may be nearer than all before it. Memory is measured on a gallery that is mapped from a file.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file

from cml.array_types import Float32, Int64
from cml.retrieval.search import nearest_embeddings

K, DIMENSION, BAR = 10, 128, 2.0


def embeddings(kind: str, count: int, rng: np.random.Generator) -> Float32:
    """Embeddings of length 1, (count, 128)."""
    if kind == "random":
        points = rng.normal(size=(count, DIMENSION))
    else:
        angle = rng.uniform(0, 2 * np.pi, (count, 1))
        angle = np.sort(angle, axis=0) if kind == "ordered curve" else angle
        points = np.cos(angle) * rng.normal(size=DIMENSION) + np.sin(angle) * rng.normal(size=DIMENSION)
    scaled: Float32 = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    return scaled


def right(positions: Int64, query: Float32, gallery: Float32) -> float:
    """Share of the answers to some queries that are among the K nearest by float64."""
    shares = []
    for row in range(0, len(query), max(1, len(query) // 50)):
        squared = np.square(gallery.astype(np.float64) - query[row]).sum(axis=1)
        shares.append(np.mean(squared[positions[row]] <= np.partition(squared, K - 1)[K - 1]))
    return float(np.mean(shares))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    torch.set_num_threads(2)
    rng = np.random.default_rng(0)
    ratios, figures = {}, {}
    for kind in ("curve", "ordered curve", "random"):
        both = embeddings(kind, options.items + options.queries, rng)
        drawn = np.isin(np.arange(len(both)), rng.choice(len(both), options.queries, replace=False))
        gallery, query = both[~drawn], both[drawn]
        gallery_tensor, query_tensor = torch.from_numpy(gallery), torch.from_numpy(query)

        def plain(query: torch.Tensor = query_tensor, gallery: torch.Tensor = gallery_tensor) -> Int64:
            return (query @ gallery.T).topk(K).indices.numpy()

        def ours(query: Float32 = query, gallery: Float32 = gallery) -> Int64:
            return nearest_embeddings(query, gallery, K)[1]

        def seconds(run: Callable[[], Int64]) -> tuple[float, Int64, float]:
            begin, used = time.perf_counter(), time.process_time()
            found = run()
            return time.perf_counter() - begin, found, time.process_time() - used

        seconds(ours)  # compiles
        rounds = [(seconds(plain), seconds(ours)) for _ in range(options.rounds)]
        least = [min(pair[side][0] for pair in rounds) for side in (0, 1)]
        shares = [right(rounds[0][side][1], query, gallery) for side in (0, 1)]
        processor = [min(pair[side][2] for pair in rounds) for side in (0, 1)]
        ratios[kind] = least[1] / least[0]
        print(
            f"{kind}: plain {least[0]:.2f} s, {shares[0]:.1%} right; cml {least[1]:.2f} s, {shares[1]:.1%} right; "
            f"ratio {ratios[kind]:.2f}"
        )
        seconds_of = {"plain_seconds": least[0], "seconds": least[1], "ratio": ratios[kind]}
        seconds_of["processor_ratio"] = processor[1] / processor[0]
        figures[kind] = {**seconds_of, "plain_right": shares[0], "right": shares[1]}

    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for items in (options.items, 4 * options.items):
            path = Path(folder) / f"{items}.npy"
            mapped = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(items, DIMENSION))
            for start in range(0, items, 10_000):
                mapped[start : start + 10_000] = embeddings("random", min(10_000, items - start), rng)
            mapped.flush()
            stored = np.load(path, mmap_mode="r", allow_pickle=False)
            tracemalloc.start()
            nearest_embeddings(query, stored, K)
            peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
            tracemalloc.stop()
            scores = 4e-6 * len(query) * items
            print(f"peak memory with {items:,} items: {peaks[-1]:.0f} MB (all scores at once: {scores:.0f} MB)")
    print(f"memory with four times the items: {peaks[1] / peaks[0]:.2f} times")
    listed = ", ".join(f"{kind} {ratio:.2f}" for kind, ratio in ratios.items())
    print(f"ratio to a plain matrix product and topk: {listed} (bar {BAR:.0f})")
    sizes = {"items": options.items, "queries": options.queries, "dimension": DIMENSION, "k": K}
    write_figures(options.json, {**sizes, "embeddings": figures, "peak_bytes": [1e6 * peak for peak in peaks]})


if __name__ == "__main__":
    main()
