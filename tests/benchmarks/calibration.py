"""Coverage and width of calibrated intervals, on held-out items of sets with continuous labels.

    python tests/benchmarks/calibration.py [--sets steering heads ..] [--items 60 150 300] [--splits 20] [--json FILE]

A linear head is trained on frozen features of the training items of a set of the benchmark. Of its validation and test
items, each split calibrates by some and measures by 200 others, or half of the others where they are fewer: the share
of label distances within the intervals that should hold 90 %, over all pairs, in each third of the pairs by embedding
distance, and among the five nearest hits of each item, once searched among each other and once in a gallery that is
the same for both. Items are split, never pairs. "width" is the mean width of the intervals beside that of the one
interval that is the same for all pairs. "training items" calibrates by items that the head was trained on, which
``model.calibrate`` refuses.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file

from cml.array_types import Float32, Int64
from cml.bench.heads import train_heads
from cml.bench.sets import BenchSet, compute_features, open_set
from cml.bench.suite import SUITES
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.retrieval.calibration import Calibration, ExpectedDistance, calibrate_embeddings
from cml.retrieval.search import nearest_embeddings

Side = tuple[Float32, Labels]
_MEASURED, _FEWEST, _HITS = 200, 20, 5


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["steering", "heads", "people"])
    parser.add_argument("--items", nargs="+", type=int, default=[60, 150, 300], help="that calibrate")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--version", default="2026.1")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="The calibration has|There are only")
    figures: dict[str, dict[str, list[float]]] = {}
    for name in given.sets:
        try:
            data = open_set(name, given.version)
        except UserError as error:
            print(f"{name:12} {error}", flush=True)
            continue
        trained, held_out = embed(data, given.version, given.backbone, given.steps)
        for count in given.items:
            splits = [measure(trained, held_out, data.distance, count, seed) for seed in range(given.splits)]
            rows = [row for row in splits if row]
            if not rows:
                print(f"{name}: {len(held_out[0])} held-out items are too few for {count} that calibrate", flush=True)
                continue
            figures[f"{name}, {count} items"] = {key: [row[key] for row in rows] for key in rows[0]}
            print(f"{name}, calibrated by {count} items", flush=True)
            for key, values in figures[f"{name}, {count} items"].items():
                print(f"  {key:42} {np.mean(values):6.3f} +- {np.std(values):.3f}", flush=True)
    write_figures(given.json, figures)


def embed(data: BenchSet, version: str, backbone: str, steps: int) -> tuple[Side, Side]:
    """Train a head, and embed training items and held-out items."""
    weights = "imagenet" if "efficientnet" in backbone else "none"
    config = replace(SUITES[version].heads, backbone=backbone, weights=weights, loss="log-ratio", steps=steps)
    features = compute_features(config, data.train)
    (head,) = train_heads([config], features, data.train_distances, data.vectors)
    parts = [data.validation, *data.test(0, 0)]
    embeddings = np.concatenate([head.embed(compute_features(config, part)) for part in parts])
    arrays = {name: np.concatenate([part.labels.arrays[name] for part in parts]) for name in data.train.labels.arrays}
    return (head.embed(features), data.train.labels), (embeddings, type(data.train.labels)(arrays))


def measure(trained: Side, held_out: Side, distance: LabelDistance, count: int, seed: int) -> dict[str, float]:
    """Calibrate by some items, and measure by others; nothing where items are too few."""
    order = np.random.default_rng(seed).permutation(len(held_out[0]))
    measured = min(_MEASURED, (len(order) - count) // 2)
    if measured < _FEWEST:
        return {}
    first, test, rest = (take(held_out, part) for part in np.split(order, [count, count + measured]))
    own = calibrate_embeddings(*first, distance, seed=seed)
    searched = calibrate_embeddings(*first, distance, *rest, seed=seed)
    wrong = calibrate_embeddings(
        *take(trained, np.random.default_rng(seed).permutation(len(trained[0]))[:count]), distance, seed=seed
    )
    found = cover_pairs(own.pairs, test, distance)
    return {
        **{f"each other: {key}": value for key, value in found.items()},
        "each other: five nearest hits": cover_hits(own, test, test, distance, is_same=True),
        "gallery: five nearest hits": cover_hits(searched, test, rest, distance),
        "width of pairs / marginal": own.width / own.marginal_width,
        "width of hits / marginal": own.hit_width / own.marginal_width,
        "training items: all pairs": cover_pairs(wrong.pairs, test, distance)["all pairs"],
        "training items: five nearest hits": cover_hits(wrong, test, test, distance, is_same=True),
    }


def take(side: Side, items: Int64) -> Side:
    """Some items."""
    return side[0][items], side[1][items]


def cover_pairs(expected: ExpectedDistance, side: Side, distance: LabelDistance) -> dict[str, float]:
    """The share of label distances of all pairs, and of each third, that lie within the intervals."""
    rows = side[0].astype(np.float64)
    upper = np.triu_indices(len(rows), 1)
    near, label = np.linalg.norm(rows[upper[0]] - rows[upper[1]], axis=1), distance.pairwise(side[1], side[1])[upper]
    is_used = np.isfinite(label)
    near, label = near[is_used], label[is_used]
    _, low, high = expected(near)
    is_held, third = (low <= label) & (label <= high), np.searchsorted(expected.edges, near)
    thirds = {f"third {number + 1}": float(is_held[third == number].mean()) for number in range(3)}
    return {"all pairs": float(is_held.mean()), **thirds}


def cover_hits(
    calibration: Calibration, query: Side, gallery: Side, distance: LabelDistance, *, is_same: bool = False
) -> float:
    """The share of label distances of the five nearest hits that lie within the intervals."""
    near, positions = nearest_embeddings(query[0], gallery[0], _HITS + is_same)
    held: list[bool] = []
    for row in range(len(query[0])):
        kept = np.flatnonzero(positions[row] != row)[:_HITS] if is_same else np.arange(_HITS)
        label = distance.pairwise(query[1][row : row + 1], gallery[1][positions[row][kept]])[0]
        _, low, high = calibration.expect(near[row][kept])
        held += ((low <= label) & (label <= high))[np.isfinite(label)].tolist()
    return float(np.mean(held))


if __name__ == "__main__":
    main()
