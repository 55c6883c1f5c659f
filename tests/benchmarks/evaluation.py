"""Evaluation of 2,000 queries against 8,000 gallery items, K to 100, against the per-query loop one would write.

    python tests/benchmarks/evaluation.py [--queries 2000] [--repeats 3]

The loop comes in two ways of writing its squared distances: by broadcasting, and by one matrix-vector product. Each
is timed without and with Kendall and Spearman of SciPy. Loop and ``evaluate`` take turns in one run, both ask the same
label distance, and both must give the same figures. The best time of each side counts: the machine may be shared. BLAS
is held to one thread, which so small a matrix-vector product is fastest with on a shared machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from scipy import stats
from threadpoolctl import threadpool_limits

import cml.distances
from cml.array_types import Float32
from cml.distances import LabelDistance, Labels
from cml.retrieval import EvaluateOptions, embedding_ranker, evaluate

Figures = dict[str, float]

DISTANCE_KS, NDCG_KS, HIT_KS = range(1, 11), range(10, 101, 10), (1, 5, 10)


def broadcast(query: Float32, gallery: Float32) -> Callable[[int], Float32]:
    return lambda i: ((gallery - query[i]) ** 2).sum(axis=1)


def matrix_vector(query: Float32, gallery: Float32) -> Callable[[int], Float32]:
    norms = (gallery**2).sum(axis=1)
    return lambda i: norms - 2 * (gallery @ query[i]) + query[i] @ query[i]


def per_query_loop(
    squared: Callable[[int], Float32], distance: LabelDistance, query: Labels, gallery: Labels, correlation: bool
) -> Figures:
    sums: Figures = {}
    discount = 1 / np.log2(np.arange(2, 102))
    for i in range(len(query)):
        scores = squared(i)
        labels = distance.pairwise(query[i : i + 1], gallery)[0]
        order = np.argsort(scores)
        retrieved = labels[order]
        ideal_order = np.argsort(labels)
        nearest = ideal_order[:50]
        gains, ideal = 1 / (1 + retrieved), 1 / (1 + labels[ideal_order])
        row = {f"label_distance@{k}": retrieved[:k].mean() for k in DISTANCE_KS}
        for k in NDCG_KS:
            row[f"ndcg@{k}"] = (gains[:k] @ discount[:k]) / (ideal[:k] @ discount[:k])
        for k in HIT_KS:
            row[f"hit@{k}"] = float(np.isin(order[:k], nearest).any())
        if correlation:
            row["kendall_tau"] = stats.kendalltau(scores, labels).statistic
            row["spearman_rho"] = stats.spearmanr(scores, labels).statistic
        for name, value in row.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return {name: total / len(query) for name, total in sums.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--gallery", type=int, default=8000)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    add_json_option(parser)
    options = parser.parse_args(arguments)

    rng = np.random.default_rng(0)
    distance = cml.distances.get("euclidean")
    labels = rng.standard_normal((options.queries + options.gallery, 2))
    embeddings = np.tanh(labels @ rng.standard_normal((2, options.dimension)))
    embeddings = (embeddings + 0.3 * rng.standard_normal(embeddings.shape)).astype(np.float32)
    encoded = distance.encode(labels)
    query_labels, gallery_labels = encoded[: options.queries], encoded[options.queries :]
    query, gallery = embeddings[: options.queries], embeddings[options.queries :]

    def fast(correlation: bool) -> Figures:
        found = evaluate(
            {"embedding": embedding_ranker(query, gallery)},
            distance,
            query_labels,
            gallery_labels,
            EvaluateOptions(whole_ranking=correlation),
        )
        return {name: metric.mean for name, metric in found.rows["embedding"].items()}

    ratios, processor_ratios, differences = [], [], []
    for correlation in (False, True):
        fast(correlation)  # compile
        jobs: dict[str, Callable[[], Figures]] = {
            "evaluate": lambda c=correlation: fast(c),
            "loop, broadcast": lambda c=correlation: per_query_loop(
                broadcast(query, gallery), distance, query_labels, gallery_labels, c
            ),
            "loop, matrix-vector": lambda c=correlation: per_query_loop(
                matrix_vector(query, gallery), distance, query_labels, gallery_labels, c
            ),
        }
        best, processor = dict.fromkeys(jobs, np.inf), dict.fromkeys(jobs, np.inf)
        figures: dict[str, Figures] = {}
        for _ in range(options.repeats):
            for name, job in jobs.items():
                start, spent = time.perf_counter(), time.process_time()
                figures[name] = job()
                best[name] = min(best[name], time.perf_counter() - start)
                processor[name] = min(processor[name], time.process_time() - spent)
        title = "with Kendall and Spearman" if correlation else "without correlations"
        print(
            f"{title}: evaluate (oracle row and intervals included) {best['evaluate']:.2f} s, "
            f"processor time {processor['evaluate']:.2f} s"
        )
        for name in list(jobs)[1:]:
            both = figures["evaluate"].keys() & figures[name].keys()
            apart = max(abs(figures["evaluate"][key] - figures[name][key]) for key in both)
            ratio = best[name] / best["evaluate"]
            ratios.append(ratio)
            processor_ratios.append(processor[name] / processor["evaluate"])
            differences.append(apart)
            print(
                f"  {name}: {best[name]:.2f} s, processor time {processor[name]:.2f} s; {ratio:.1f}x; "
                f"figures apart by at most {apart:.1e}"
            )
    print(f"smallest ratio {min(ratios):.1f}x, largest {max(ratios):.1f}x")
    sizes = {"queries": options.queries, "gallery": options.gallery}
    figures = {"ratios": ratios, "processor_ratios": processor_ratios, "difference": max(differences)}
    write_figures(options.json, {**sizes, **figures})


if __name__ == "__main__":
    with threadpool_limits(1, "blas"):
        main()
