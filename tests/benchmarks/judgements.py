"""Heads learned from judged triplets and judged pairs of drawn heads, scored on new items.

    python tests/benchmarks/judgements.py [--parts triplets pairs] [--seeds 5] [--flips 0 0.1 0.2 0.3]
        [--fractions 0.01 0.002] [--items 2000] [--draw 0] [--features FILE.npz] [--cblearn PYTHON] [--json FILE]

The items are drawn heads with their features by a frozen network; the judgements follow the angle between rotations.
``--draw`` draws other heads and other judgements: the defaults of the losses were chosen on draw 0.

- triplets: agreement with 20,000 triplets of new items, of heads on L2-normalised features trained on 10,000 triplets,
  of which a share is flipped. Beside them, where ``--cblearn`` names an interpreter that has cblearn 0.4.0: CKL and
  t-STE embeddings of the training items in as many dimensions, and a ridge regression of these on the features. Each
  method has the form of the features on which it does best.
- pairs: Spearman's rho over all pairs of new items, of heads trained on a fraction of all pairs: as lists, as batches
  grown along known pairs, as random batches of 64 in which the other pairs are masked, and chosen by ``tune``; beside
  all pairs known. The gain is that over the frozen features, as a share of the gain with all pairs known.

Seconds are CPU time of one thread, of the call of ``cml.fit`` alone.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from scipy.stats import spearmanr
from sklearn.linear_model import RidgeCV

import cml
from cml.array_types import Float32, Float64, Int64
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.retrieval.feature_forms import normalize_rows

_SIZE = 96  # pixels
_DIMENSION = 8  # of embeddings from triplets, cml's and others'
_DIMENSION_OF_PAIRS = 32
_OTHERS = """
import sys, warnings, numpy
warnings.filterwarnings("ignore")
from cblearn import embedding
triplets = numpy.load(sys.argv[1])
method = getattr(embedding, sys.argv[3])(n_components=int(sys.argv[5]), random_state=int(sys.argv[4]))
numpy.save(sys.argv[2], method.fit_transform(triplets))
"""


class Items(NamedTuple):
    """Features (N, F) and label distances (N, N)."""

    features: Float32
    distances: Float32


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=["triplets", "pairs"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--flips", nargs="+", type=float, default=[0, 0.1, 0.2, 0.3])
    parser.add_argument("--fractions", nargs="+", type=float, default=[0.01, 0.002])
    parser.add_argument("--items", type=int, default=2000, help="training items; two fifths as many are new")
    parser.add_argument("--draw", type=int, default=0, help="which heads and judgements are drawn")
    parser.add_argument("--triplets", type=int, default=10_000)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--features", type=Path, help="file to keep the features in")
    parser.add_argument("--cblearn", default="", help="interpreter that has cblearn")
    parser.add_argument("--methods", nargs="+", default=["CKL", "TSTE"], help="embeddings of cblearn")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    train, new = read_items(given.items, given.draw, given.backbone, given.features)
    figures: dict[str, Any] = {}
    if "triplets" in given.parts:
        figures["triplets"] = measure_triplets(train, new, given)
    if "pairs" in given.parts:
        figures["pairs"] = measure_pairs(train, new, given)
    write_figures(given.json, figures)


def read_items(items: int, draw: int, backbone: str, file: Path | None) -> tuple[Items, Items]:
    """Draw heads and compute their features, or read them from a file."""
    if file is None or not file.exists():
        with tempfile.TemporaryDirectory() as folder:
            dataset = cml.prepare("heads", Path(folder) / "heads", count=items * 7 // 5, train=items, seed=draw)
            weights = "none" if backbone == "small-cnn" else "imagenet"
            model = EmbeddingModel(ModelConfig(backbone, weights, 8, False, (_SIZE, _SIZE))).eval()
            arrays = {}
            for name, roles in (("train", ["train"]), ("test", ["query", "gallery"])):
                splits = [dataset.split(role) for role in roles]
                arrays[name] = model.extract([path for split in splits for path in split.paths])
                arrays[f"y{name}"] = np.array([label for split in splits for label in split.labels])
        if file is not None:
            np.savez(file, **arrays)
    else:
        with np.load(file) as stored:
            arrays = dict(stored)
    distance = cml.distances.get("rotation")
    parts = []
    for name in ("train", "test"):
        labels = distance.encode(arrays[f"y{name}"].tolist())
        parts.append(Items(arrays[name].astype(np.float32), distance.pairwise(labels, labels)))
    return parts[0], parts[1]


def measure_triplets(train: Items, new: Items, given: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Agreement with triplets of new items: flip rate -> method -> seeds."""
    asked = draw_triplets(new.distances, 2 * given.triplets, np.random.default_rng(given.draw))
    train_unit, new_unit = normalize_rows(train.features), normalize_rows(new.features)
    print(f"triplets: frozen features, L2-normalised {agreement(new_unit, asked):.3f}", flush=True)
    figures: dict[str, dict[str, list[float]]] = {}
    for flip in given.flips:
        rows = figures[f"{flip:g}"] = {"cml": [], "seconds": []}
        for seed in range(given.seeds):
            rng = np.random.default_rng([1, seed, given.draw])
            triplets = draw_triplets(train.distances, given.triplets, rng)
            flipped = rng.random(len(triplets)) < flip
            triplets[flipped] = triplets[flipped][:, [0, 2, 1]]
            start = time.process_time()
            judged = cml.TripletJudgements(triplets, items=len(train.features))
            model = cml.fit(train_unit, judged, dimension=_DIMENSION, seed=seed, quiet=True)
            rows["seconds"].append(time.process_time() - start)
            rows["cml"].append(agreement(model.embed(new_unit), asked))
            for method in given.methods if given.cblearn else ():
                embedding = embed_by_cblearn(given.cblearn, method, triplets, seed)
                predicted = predict_by_ridge(train.features, embedding, new.features)
                rows.setdefault(method, []).append(agreement(predicted, asked))
            last = {name: row[-1:] for name, row in rows.items()}
            print(f"  flips {flip:.0%}, seed {seed}: {describe(last)}", flush=True)
        print(f"flips {flip:.0%}: {describe(rows)}", flush=True)
    return figures


def measure_pairs(train: Items, new: Items, given: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Spearman's rho over pairs of new items: fraction of pairs -> way of making batches -> seeds."""
    first, second = np.triu_indices(len(train.features), 1)
    asked = np.triu_indices(len(new.features), 1)

    def score(embeddings: Float32) -> float:
        squares = np.square(embeddings).sum(axis=1)
        distances = squares[:, None] + squares - 2 * embeddings @ embeddings.T
        return float(spearmanr(distances[asked], new.distances[asked])[0])

    frozen = score(new.features / np.linalg.norm(new.features, axis=1, keepdims=True))
    trained: dict[str, Any] = {"head_start": "pca", "weight_decay": 0.1, "steps": 200}
    figures: dict[str, dict[str, list[float]]] = {}
    size = min(64, len(train.features) // 2)
    batches = f"random(batch_size={size})"
    whole = []
    for seed in range(given.seeds):
        model = cml.fit(
            train.features,
            label_distance=train.distances,
            sampler=batches,
            dimension=_DIMENSION_OF_PAIRS,
            seed=seed,
            quiet=True,
            **trained,
        )
        whole.append(score(model.embed(new.features)))
    print(f"pairs: frozen {frozen:.3f}, all pairs known {describe({'log-ratio': whole})}", flush=True)
    ways = {
        "list": trained,
        "linked": {**trained, "sampler": "linked", "loss": "pair-log-ratio"},
        "random, log-ratio": {**trained, "sampler": batches, "loss": "log-ratio"},
        "random, pair-log-ratio": {**trained, "sampler": batches, "loss": "pair-log-ratio"},
        "tune": {"tune": True},
    }
    for fraction in given.fractions:
        rows = figures[f"{fraction:g}"] = {"all pairs": whole, "frozen": [frozen], "seconds": []}
        for seed in range(given.seeds):
            count = max(4, round(fraction * len(first)))
            chosen = np.random.default_rng([2, seed, given.draw]).choice(len(first), count, replace=False)
            one, other = first[chosen], second[chosen]
            table = np.column_stack([one, other, train.distances[one, other]])
            for way, choice in ways.items():
                start = time.process_time()
                judged = cml.PairJudgements(table, items=len(train.features))
                model = cml.fit(train.features, judged, dimension=_DIMENSION_OF_PAIRS, seed=seed, quiet=True, **choice)
                if way == "list":
                    rows["seconds"].append(time.process_time() - start)
                rows.setdefault(way, []).append(score(model.embed(new.features)))
        print(f"{fraction:.1%} of all pairs: {describe(rows)}", flush=True)
        for way in ways:
            gain = (np.mean(rows[way]) - frozen) / (np.mean(whole) - frozen)
            print(f"  {way}: {gain:.0%} of the gain", flush=True)
    return figures


def draw_triplets(distances: Float32, count: int, rng: np.random.Generator) -> Int64:
    """Random triplets (count, 3) of three different items whose two distances differ."""
    drawn = rng.integers(len(distances), size=(3 * count, 3))
    anchor, one, other = drawn.T
    usable = (anchor != one) & (anchor != other) & (one != other)
    usable &= distances[anchor, one] != distances[anchor, other]
    anchor, one, other = drawn[usable][:count].T
    swapped = distances[anchor, one] > distances[anchor, other]
    return np.stack([anchor, np.where(swapped, other, one), np.where(swapped, one, other)], axis=1)


def agreement(embeddings: Float32, triplets: Int64) -> float:
    """The share of triplets whose order the embedding has."""
    anchor, near, far = (embeddings[column] for column in triplets.T)
    return float((np.square(anchor - near).sum(axis=1) < np.square(anchor - far).sum(axis=1)).mean())


def embed_by_cblearn(python: str, method: str, triplets: Int64, seed: int) -> Float64:
    """An ordinal embedding of the training items, by an interpreter that has cblearn."""
    with tempfile.TemporaryDirectory() as folder:
        files = [str(Path(folder) / name) for name in ("triplets.npy", "embedding.npy")]
        np.save(files[0], triplets)
        subprocess.run(
            [python, "-c", _OTHERS, *files, method, str(seed), str(_DIMENSION)], check=True, cwd=folder, timeout=600
        )
        embedding: Float64 = np.load(files[1])
    return embedding


def predict_by_ridge(features: Float32, targets: Float64, new: Float32) -> Float32:
    """Predictions of a ridge regression on the principal components of the features, whose spreads are halved in logs.

    That is the form of the features on which these methods did best.
    """
    mean = features.mean(axis=0)
    _, values, axes = np.linalg.svd(features - mean, full_matrices=False)
    kept = min(256, len(values))
    spread = values[:kept] / np.sqrt(len(features))
    weight = axes[:kept].T / np.sqrt(spread * spread[0])  # (F, K)
    model = RidgeCV(np.logspace(0, 5, 11)).fit((features - mean) @ weight, targets)
    return np.asarray(model.predict((new - mean) @ weight), np.float32)


def describe(rows: dict[str, list[float]]) -> str:
    """Means and standard deviations over seeds."""
    return ", ".join(f"{name} {np.mean(values):.3f} +- {np.std(values):.3f}" for name, values in rows.items() if values)


if __name__ == "__main__":
    main()
