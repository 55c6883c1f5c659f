"""What log-ratio makes of equal labels and of label distances that hardly spread: zeros, floors and bounds of p.

Run: python tests/benchmarks/equal_labels.py [--sets digits elpv ..] [--seeds 3] [--losses ..] [--start random]

The sets of the benchmark are those of ``cml bench``, with frozen features of its backbone; ``steering`` needs CML_TUB.
Further sets: ``clusters-C``, C classes as drawn clusters of vectors, ``ages``, vectors drawn around a curve with ages
in whole years, and ``captions``, sentence vectors of the first captions of COCO photographs with the word mover's
distance between all their captions (CML_COCO_CAPTIONS: the annotation file). Each line has the mean score@10 of linear
heads of 64 dimensions, trained with 300 batches of 64 items by the options of the benchmark
from the default start, and the mean difference from the first loss. ``--start random`` is the start of the benchmark.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from sklearn.preprocessing import StandardScaler

from cml import distances
from cml.array_types import Float32, Floating
from cml.comparing.bench.scores import depth, score_queries
from cml.comparing.bench.sets import compute_features, open_set
from cml.comparing.bench.suite import SETS, SUITES, VERSION
from cml.distances.precomputed import Precomputed
from cml.errors import UserError
from cml.items import LabelledItems
from cml.losses import registry
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.ranking import rank_columns
from cml.training.config import TrainConfig
from cml.training.gradient_descent import GradientDescent
from cml.training.head_alone import Features, Start, choose_head_start
from cml.training.learner import Place
from cml.training.training_targets import TrainingTargets
from cml.training.vector_options import vector_options

LOSSES = (
    "log-ratio(zero_factor=1.0, largest_exponent=1000)",
    "log-ratio(zero_factor=0.5, largest_exponent=1000)",
    "log-ratio(zero_factor=1.0)",
    "log-ratio",
    "log-ratio(floor_quantile=0.01)",
    "log-ratio(largest_exponent=2.0)",
    "log-ratio(largest_exponent=3.0)",
    "rank-n-contrast",
    "cosent",
)
DRAWN = ("clusters-10", "clusters-20", "clusters-55", "clusters-100", "ages", "captions")
_QUERIES = 100
_GALLERY = 500
_WIDTH = 1280  # of the features of EfficientNet-Lite0


class Vectors(NamedTuple):
    """A set as vectors and label distances.

    Attributes:
        train: (N, F) features of the training items.
        train_distances: (N, N) label distances.
        queries: (Q, F).
        gallery: (G, F).
        test_distances: (Q, G).
    """

    train: Float32
    train_distances: Float32
    queries: Float32
    gallery: Float32
    test_distances: Float32


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each set and loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["digits", "elpv", "heads", "people", "rooms", "scenes", *DRAWN])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--start", default="auto", choices=["auto", "random", "pca", "standardised"], help="of heads")
    parser.add_argument("--items", type=int, default=1600, help="training items of the further sets")
    parser.add_argument("--version", default=VERSION, help="of the suite")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures: dict[str, dict[str, list[float]]] = {}
    for name in options.sets:
        vectors = open_vectors(name, options.version, options.items)
        print(f"{name}: {len(vectors.train)} training items", flush=True)
        frozen = score(vectors, vectors.queries, vectors.gallery)
        figures[name] = {"frozen": [frozen]}
        print(f"  {'frozen':60} {frozen:.3f}")
        sizes = options.rates, options.seeds, options.steps
        scores = score_losses(vectors, options.losses, *sizes, start=options.start)
        first = np.array(next(iter(scores.values())))
        for loss, of_seeds in scores.items():
            if not np.all(np.isfinite(of_seeds)):
                print(f"  {loss:60} fails", flush=True)
                continue
            figures[name][loss] = of_seeds
            difference = np.array(of_seeds) - first
            print(
                f"  {loss:60} {np.mean(of_seeds):.3f}  {difference.mean():+.3f} +- {difference.std():.3f}", flush=True
            )
    write_figures(options.json, {"seeds": options.seeds, "sets": figures})


def score_losses(
    vectors: Vectors, losses: Sequence[str], rates: Sequence[float], seeds: int, steps: int, start: str = "random"
) -> dict[str, list[float]]:
    """Train heads by each loss and rate, and score them on the test items; a loss that fails scores NaN.

    Args:
        vectors: The set.
        losses: The losses as texts.
        rates: Learning rates.
        seeds: The number of seeds.
        steps: Batches of one training.
        start: Start of the head, as ``head_start`` takes it: chosen by the label distances with "auto".

    Returns:
        The score of each seed, by "loss, rate".
    """
    scores: dict[str, list[float]] = defaultdict(list)
    for seed in range(1, seeds + 1):
        shared = replace(SUITES[VERSION].heads, seed=seed, steps=steps, head_start=start)
        shared = replace(shared, head_start=find_start(shared, vectors))
        configs = [replace(shared, loss=loss, learning_rate=rate) for rate in rates for loss in losses]
        for config in configs:
            scores[name_row(config, rates)].append(score_loss(vectors, registry.make(config.loss), config))
    return scores


def find_start(config: TrainConfig, vectors: Vectors) -> Start:
    """The start of the heads of a set, which with "auto" depends on its label distances alone."""
    distance = Precomputed(vectors.train_distances, symmetric=True)
    training = TrainingTargets(distance, distance.encode(range(len(vectors.train))), seed=config.seed)
    return choose_head_start(config, registry.make("log-ratio"), training)[0]


def name_row(config: TrainConfig, rates: Sequence[float]) -> str:
    """Name a row by its loss, and by its rate where there are several."""
    return config.loss if len(rates) == 1 else f"{config.loss}, {config.learning_rate:g}"


def head_config(name: str, steps: int) -> TrainConfig:
    """The options by which a head is trained on a set: those of the benchmark, at the default rate of its kind.

    Args:
        name: The set: one of the benchmark, or of vectors.
        steps: Batches of one training.

    Returns:
        The options.
    """
    rate = SUITES[VERSION].heads.learning_rate if name in SETS else vector_options()["learning_rate"]
    return replace(SUITES[VERSION].heads, steps=steps, learning_rate=rate)


def score_loss(vectors: Vectors, loss: LabelDistanceLoss, config: TrainConfig) -> float:
    """Train one head by a loss that need not be registered, and score it on the test items.

    Args:
        vectors: The set.
        loss: The loss, which is fitted to the training labels.
        config: The options.

    Returns:
        The mean score@10; NaN where the loss fails.
    """
    torch.manual_seed(config.seed)  # of losses that draw
    distance = Precomputed(vectors.train_distances, symmetric=True)
    labels = distance.encode(range(len(vectors.train)))
    data = LabelledItems(Features(vectors.train), labels, distance)
    try:
        model = GradientDescent(config, loss=loss.fit(distance, labels)).learn(data, place=Place(quiet=True)).model
    except (UserError, FloatingPointError):
        return float("nan")
    return score(vectors, model.embed_feature_rows(vectors.queries), model.embed_feature_rows(vectors.gallery))


def score(vectors: Vectors, queries: Float32, gallery: Float32) -> float:
    """The mean score@10 of embeddings: 0 for chance, 1 for the order of the labels."""
    return score_ranks(queries, gallery, vectors.test_distances)


def score_ranks(queries: Float32, gallery: Float32, label_distances: Float32) -> float:
    """The mean score@10 of embeddings (Q, D) and (G, D) by the label distances (Q, G)."""
    scores = embedding_ranker(queries, gallery)(slice(0, len(queries)))
    top, _ = rank_columns(scores, depth(label_distances))
    return float(np.nanmean(score_queries(top, label_distances)["score"]))


@functools.cache
def open_vectors(name: str, version: str, items: int) -> Vectors:
    """The features and label distances of a set by its name."""
    if name.startswith("clusters-"):
        return draw_clusters(int(name.removeprefix("clusters-")), items)
    if name == "ages":
        return draw_ages(items)
    if name == "captions":
        return read_captions(Path(os.environ["CML_COCO_CAPTIONS"]), items)
    assert name in SETS
    data, config = open_set(name, version), SUITES[version].heads
    train, queries, gallery = (compute_features(config, part) for part in (data.train, *data.test(0, 0)))
    return Vectors(train, data.train_distances, queries, gallery, data.test_distances)


def draw_clusters(classes: int, items: int) -> Vectors:
    """Classes whose centres lie in 16 of 64 directions, under noise in all of them."""
    random = np.random.default_rng(classes)
    labels = random.integers(classes, size=items + _QUERIES + _GALLERY)
    centers = np.zeros((classes, 64))
    centers[:, :16] = random.normal(size=(classes, 16))
    rows = centers[labels] + random.normal(size=(len(labels), 64)) * 0.7
    rows[:, 16:] *= 2  # what says nothing of the class is the larger part
    return split(rows, distances.get("classes"), [str(label) for label in labels], items)


def draw_ages(items: int) -> Vectors:
    """Ages in whole years from 1 to 80, along a curve in 64 dimensions, under noise."""
    random = np.random.default_rng(0)
    ages = random.integers(1, 81, size=items + _QUERIES + _GALLERY)
    phases, rates = random.uniform(0, 6, 64), random.uniform(0.01, 0.08, 64)
    rows = np.sin(ages[:, None] * rates + phases) + random.normal(size=(len(ages), 64)) * 0.8
    return split(rows, distances.get("euclidean"), ages.astype(float).tolist(), items)


def read_captions(path: Path, items: int) -> Vectors:
    """Sentence vectors of the first caption of each photograph, and the distances between all of its captions."""
    from cml.distances.sentences import sentence_vectors

    captions: dict[int, list[str]] = defaultdict(list)
    for annotation in json.loads(path.read_text("utf-8"))["annotations"]:
        captions[annotation["image_id"]].append(annotation["caption"])
    wanted = sorted(captions)[: items + _QUERIES + _GALLERY]
    rows = sentence_vectors("all-minilm-l6-v2", [captions[image][0] for image in wanted])
    return split(rows, distances.get("captions", vectors="glove-6b-50d"), [captions[image] for image in wanted], items)


def split(rows: Floating, distance: distances.LabelDistance, labels: Sequence[object], items: int) -> Vectors:
    """Standardise rows by the training items, and compute label distances."""
    queries = min(_QUERIES, (len(rows) - items) // 2)
    ends = np.cumsum([items, queries, _GALLERY])
    scaled = StandardScaler().fit(rows[: ends[0]]).transform(rows).astype(np.float32)
    encoded = distance.encode(labels)
    parts = [np.arange(ends[0]), np.arange(ends[0], ends[1]), np.arange(ends[1], min(ends[2], len(labels)))]
    of_train, of_queries, of_gallery = (encoded[part] for part in parts)
    # the heads of the benchmark start for its backbone: columns of zeros change nothing
    vectors = [np.pad(scaled[part], ((0, 0), (0, _WIDTH - scaled.shape[1]))) for part in parts]
    among_train, of_test = distance.pairwise(of_train, of_train), distance.pairwise(of_queries, of_gallery)
    return Vectors(vectors[0], among_train, *vectors[1:], of_test)


if __name__ == "__main__":
    main()
