"""Whether labelling what is proposed helps more than labelling at random, on tables, drawn vectors and features.

    python tests/benchmarks/proposals.py [--sets diabetes ages ..] [--seeds 5] [--first 60] [--more 30] [--rounds 3]

Two thirds of the items of a set are the pool, of which ``--first`` random ones have a label. In each round a linear
head is trained on the labelled items, and ``--more`` items of the pool are chosen and get their labels:

- random;
- proposed: farthest-first in the frozen features, as ``model.propose`` chooses them; trained: in the embedding;
- disagreement: the items whose ten nearest labelled items have labels that differ most (median label distance).

The figures are Spearman's rho between embedding and label distances over all pairs of the other third, and the mean
label distance of its items to their five nearest labelled items, as a share of what it is by chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from scipy.stats import spearmanr
from tune import Items, read_items, take  # beside this file

import cml
from cml.array_types import Int64
from cml.bench.suite import LATEST
from cml.retrieval.farthest_first import choose_farthest
from cml.retrieval.search import nearest_embeddings

WAYS = ("random", "proposed", "trained", "disagreement")
_NEAREST, _ASKED = 5, 10


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["diabetes", "ages", "clusters-20", "pixels", "heads", "rooms"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--items", type=int, default=1500, help="of a set, at most")
    parser.add_argument("--first", type=int, default=60)
    parser.add_argument("--more", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name in given.sets:
        items = take(read_items(name, LATEST, given.backbone), given.items)
        for way in WAYS:
            rows = [measure(items, way, given, seed) for seed in range(given.seeds)]
            found = {"rho": [rho for rho, _ in rows], "distance": [distance for _, distance in rows]}
            figures.setdefault(name, {})[way] = found
            texts = [f"{key} {np.mean(values):.3f} +- {np.std(values):.3f}" for key, values in found.items()]
            print(f"{name:12} {way:13} {', '.join(texts)}", flush=True)
    write_figures(given.json, figures)


def measure(items: Items, way: str, given: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Label in rounds, and score the last head: Spearman's rho, and the label distance of the nearest."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(items.features))
    pool, new = np.split(order, [len(order) * 2 // 3])
    labelled = pool[: given.first]
    model = train(items, labelled, given.steps, seed)
    for _ in range(given.rounds):
        rest = np.setdiff1d(pool, labelled)
        chosen = choose(way, items, model, labelled, rest, min(given.more, len(rest)), rng)
        labelled = np.concatenate([labelled, chosen])
        model = train(items, labelled, given.steps, seed)
    embeddings = model.embed(items.features[new])
    apart = items.distance.pairwise(items.labels[new], items.labels[new])
    upper = np.triu_indices(len(new), 1)
    squares = np.square(embeddings).sum(axis=1)
    rho = spearmanr((squares[:, None] + squares - 2 * embeddings @ embeddings.T)[upper], apart[upper])[0]
    _, near = nearest_embeddings(embeddings, model.embed(items.features[labelled]), _NEAREST)
    to_labelled = items.distance.pairwise(items.labels[new], items.labels[labelled])
    to_pool = items.distance.pairwise(items.labels[new], items.labels[pool])
    return float(rho), float(np.take_along_axis(to_labelled, near, axis=1).mean() / to_pool.mean())


def train(items: Items, labelled: Int64, steps: int, seed: int) -> cml.Model:
    """A linear head on the labelled items."""
    labels = items.labels[labelled]
    return cml.fit(
        items.features[labelled],
        label_distance=items.distance.pairwise(labels, labels),
        sampler=f"random(batch_size={min(64, len(labelled))})",
        dimension=min(32, items.features.shape[1]),
        head_start="pca",
        steps=steps,
        seed=seed,
        quiet=True,
    )


def choose(
    way: str, items: Items, model: cml.Model, labelled: Int64, rest: Int64, count: int, rng: np.random.Generator
) -> Int64:
    """Which of the other items get a label next."""
    if way == "random":
        return rng.choice(rest, count, replace=False)
    if way == "proposed":
        return rest[model.propose(items.features[rest], count, labelled=items.features[labelled])]
    known, others = model.embed(items.features[labelled]), model.embed(items.features[rest])
    if way == "trained":
        return rest[choose_farthest(others, known, count).items]
    _, near = nearest_embeddings(others, known, min(_ASKED, len(labelled)))
    apart = items.distance.pairwise(items.labels[labelled], items.labels[labelled])
    upper = np.triu_indices(near.shape[1], 1)
    disagreement = [np.median(apart[np.ix_(row, row)][upper]) for row in near]
    return rest[np.argsort(-np.array(disagreement), kind="stable")[:count]]


if __name__ == "__main__":
    main()
