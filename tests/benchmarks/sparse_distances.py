"""Label distances of some pairs: time and memory of millions of triples.

    python tests/benchmarks/sparse_distances.py [--items 1000000] [--triples 5000000] [--k 10] [--queries 200]

Wall-clock seconds to sort random triples, to read them from a file, to look up a batch of 64, to find the neighbours
that samplers draw from, to list the known pairs, and to evaluate random embeddings, and the growth of the process.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from cml.distances import SparseDistances, as_label_distance
from cml.retrieval import evaluate_embeddings

Result = TypeVar("Result")


def timed(step: str, run: Callable[[], Result]) -> Result:
    """The result of a step, whose seconds are printed."""
    began = time.perf_counter()
    result = run()
    print(f"{step:<24}{time.perf_counter() - began:9.3f} s")
    return result


def resident() -> float:
    """Megabytes of anonymous memory of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("RssAnon"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--triples", type=int, default=5_000_000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--queries", type=int, default=200)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, options.items, (2, options.triples))
    distances = np.abs(i - j).astype(np.float32)
    before = resident()
    sparse = timed("sort triples", lambda: SparseDistances.from_triples(i, j, distances, items=options.items))
    print(f"{sparse!r}: {sum(array.nbytes for array in sparse.arrays) / 1e6:,.0f} MB")
    with tempfile.TemporaryDirectory() as folder:
        sparse.save(Path(folder) / "triples.npz")
        timed("read a file", lambda: SparseDistances.read(Path(folder) / "triples.npz"))
    distance = as_label_distance(sparse)
    labels = distance.encode(np.arange(options.items))
    batch = labels[rng.integers(0, options.items, 64)]
    timed("a batch of 64", lambda: distance.pairwise(batch, batch))
    timed(f"{options.k} neighbours of each", lambda: distance.neighbors(labels, options.k))
    timed("list known pairs", lambda: distance.known_pairs(labels))
    print(f"memory grew by {resident() - before:,.0f} MB")
    points = rng.normal(size=(options.items, 16)).astype(np.float32)
    queries, gallery = labels[: options.queries], labels[options.queries :]
    timed(
        f"evaluate {options.queries} queries",
        lambda: evaluate_embeddings(
            points[: options.queries], queries, points[options.queries :], gallery, label_distance=distance
        ),
    )


if __name__ == "__main__":
    main()
