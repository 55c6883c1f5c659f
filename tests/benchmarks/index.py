"""``cml.Index`` with a million trained embeddings, approximate and exact. Bar: recall@10 at least .99 of exact search.

    python tests/benchmarks/index.py [--items 1000000] [--queries 1000] [--methods ivf hnsw] [--single 20]

A linear head of 128 dimensions is trained on drawn vectors: 12 normal variables, which are the label, 64 curved
functions of them, and noise. All items are such vectors, embedded by the trained model; their intrinsic dimension is
estimated from the distances of the 20 nearest neighbours (Levina and Bickel, "Maximum Likelihood Estimation of
Intrinsic Dimension", 2004). An index is made by additions of up to 250,000 items, and saved. Printed for each method:
the time to build it, the share of the 10 nearest items that it finds, the time of a search of all queries at once and
of one query at a time, as of exact search, and the memory that the opened index takes. Equal distances count as equal.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

import cml
from cml.array_types import Float32, Float64
from cml.export.approximate import METHODS
from cml.retrieval.search import nearest_embeddings

LATENT, CURVED, NOISE = 12, 64, 0.05
K, NEIGHBORS, AN_ADDITION, BAR = 10, 20, 250_000, 0.99


def draw(count: int, seed: int) -> tuple[Float32, Float64]:
    """Vectors (count, 76), and the variables (count, 12) behind them."""
    weights = np.random.default_rng(0).normal(size=(LATENT, CURVED)) / np.sqrt(LATENT)
    rng = np.random.default_rng(seed)
    variables = rng.normal(size=(count, LATENT))
    clean = np.concatenate([variables, np.tanh(2 * variables @ weights)], axis=1)
    return (clean + NOISE * rng.normal(size=clean.shape)).astype(np.float32), variables


def intrinsic_dimension(query: Float32, gallery: Float32) -> float:
    """The maximum-likelihood estimate, its inverse averaged over the queries."""
    distances = nearest_embeddings(query, gallery, min(NEIGHBORS, len(gallery)))[0].astype(np.float64)
    return float(1 / np.log(distances[:, -1:] / distances[:, :-1]).mean())


def memory() -> float:
    """Memory of this process without mapped files, in MB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


def search_seconds(index: cml.Index, query: Float32, single: int, *, exact: bool = False) -> tuple[float, float]:
    """Seconds per query: of all queries at once, and of one at a time."""
    index.search(query[:2], K, exact=exact)  # opens and compiles
    start = time.perf_counter()
    index.search(query, K, exact=exact)
    together = time.perf_counter() - start
    start = time.perf_counter()
    for row in range(single):
        index.search(query[row : row + 1], K, exact=exact)
    return together / len(query), (time.perf_counter() - start) / single


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--methods", nargs="+", choices=METHODS[1:], default=["ivf", "hnsw"])
    parser.add_argument("--single", type=int, default=20, help="queries that are searched one at a time")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    vectors, variables = draw(min(4000, options.items), 1)
    model = cml.fit(
        vectors, variables, dimension=128, steps=200, sampler=f"random(batch_size={min(200, len(vectors))})", quiet=True
    )
    starts = range(0, options.items, 50_000)
    gallery = np.concatenate([model.embed(draw(min(50_000, options.items - start), 10 + start)[0]) for start in starts])
    query = model.embed(draw(options.queries, 2)[0])
    dimension = intrinsic_dimension(query[:200], gallery[:200_000])
    print(f"{options.items:,} items of {gallery.shape[1]} numbers, intrinsic dimension {dimension:.1f}", flush=True)
    figures: dict[str, dict[str, float]] = {}
    for method in options.methods:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            made = cml.Index.create(Path(folder) / "index", model, method=method)
            for first in range(0, options.items, AN_ADDITION):
                part = gallery[first : first + AN_ADDITION]
                made.add(part, ids=range(first, first + len(part)))
            built = time.perf_counter() - start
            del made
            before = memory()
            start = time.perf_counter()
            index = cml.Index.open(Path(folder) / "index")
            index.search(query[:1], K)
            opened, taken = time.perf_counter() - start, memory() - before
            together, alone = search_seconds(index, query, options.single)
            exact_together, exact_alone = search_seconds(index, query, options.single, exact=True)
            hits, truth = index.search(query, K), index.search(query, K, exact=True)
            limits = [row[-1].distance * (1 + 1e-6) for row in truth]
            found = [sum(hit.distance <= limit for hit in row) / K for row, limit in zip(hits, limits, strict=True)]
            recall, size = float(np.mean(found)), sum(path.stat().st_size for path in index.folder.rglob("*.*")) / 1e6
        print(
            f"{method}: recall@{K} {recall:.4f} (bar {BAR}); built in {built:.0f} s, {size:,.0f} MB on disk, opened in "
            f"{opened:.1f} s, {taken:,.0f} MB of memory"
        )
        at_once = f"{1e3 * together:.2f} ms a query, exact {1e3 * exact_together:.2f} ms"
        one_by_one = f"{1e3 * alone:.2f} ms, exact {1e3 * exact_alone:.1f} ms"
        print(f"  {options.queries} queries at once: {at_once}; one at a time: {one_by_one}", flush=True)
        figures[method] = {
            "recall": recall,
            "build_seconds": built,
            "open_seconds": opened,
            "memory_bytes": 1e6 * taken,
            "disk_bytes": 1e6 * size,
            "seconds_a_query_together": together,
            "seconds_a_query_alone": alone,
            "exact_seconds_a_query_together": exact_together,
            "exact_seconds_a_query_alone": exact_alone,
        }
    sizes = {"items": options.items, "queries": options.queries, "dimension": gallery.shape[1], "k": K}
    write_figures(options.json, {**sizes, "intrinsic_dimension": dimension, "methods": figures})


if __name__ == "__main__":
    main()
