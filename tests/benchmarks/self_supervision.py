"""Metric learning with labels beside contrastive self-supervision without, on one drawn set of the benchmark.

    python tests/benchmarks/self_supervision.py [--set people] [--seeds 3] [--steps 300] [--rows ..] [--json FILE]

small-cnn is trained from scratch on images of 32 pixels a side. The contrastive rows see no label: the positives of an
image are its other views, by NT-Xent on the outputs of a projector, as in SimCLR (Chen et al., ICML 2020). The
supervised rows train with log-ratio on label distances. All rows see 128 images a step. Each row has three figures on
the test items, all score@10 (1 has the nearest labels first, 0 is chance): "knn" ranks by the embedding, "features" by
the network's features before head and projector, and "probe" by the labels that a ridge regression predicts from these
features, fitted to the labels of the training items: the linear probe. "untrained" is the network at its start.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from equal_labels import score_ranks  # beside this file
from figures_file import add_json_option, write_figures
from views import read_images

from cml import distances
from cml.bench.sets import BenchSet, open_set
from cml.bench.suite import LATEST, SUITES
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.retrieval.label_regression import fit_label_regression
from cml.training.config import TrainConfig
from cml.training.loop import train
from cml.training.training_data import TrainingData

_IMAGES = 128  # a step, of all views
_MILD: Mapping[str, Any] = {"crop": 0.9, "shift_jitter": 0.05, "scale_jitter": 0.05, "brightness_jitter": 0.2}
_STRONG: Mapping[str, Any] = {"random_crop": "area", "brightness_jitter": 0.4}
_TWO_VIEWS: Mapping[str, Any] = {"views": 2, "sampler": f"random(batch_size={_IMAGES // 2})"}
_PROJECTOR: Mapping[str, Any] = {"projector": (128, 64)}
_SAME_IMAGE = "binary(loss=NTXentLoss(temperature=0.2), rule=threshold, distance=0.0)"


class Row(NamedTuple):
    """What is trained: options that differ from those of all rows, and whether labels are used."""

    options: Mapping[str, Any]
    has_labels: bool


ROWS: Mapping[str, Row] = {
    "untrained": Row({**_MILD, **_TWO_VIEWS, "steps": 1, "learning_rate": 1e-12}, has_labels=False),
    "contrastive, mild crops": Row({**_MILD, **_TWO_VIEWS, **_PROJECTOR}, has_labels=False),
    "contrastive, strong crops": Row({**_STRONG, **_TWO_VIEWS, **_PROJECTOR}, has_labels=False),
    "contrastive, no projector": Row({**_MILD, **_TWO_VIEWS}, has_labels=False),
    "log-ratio": Row(_MILD, has_labels=True),
    "log-ratio, two views and projector": Row({**_MILD, **_TWO_VIEWS, **_PROJECTOR}, has_labels=True),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print: mean and standard deviation over seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="people")
    parser.add_argument("--rows", nargs="+", help="some of the rows; by default all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--version", default=LATEST, help="of the suite")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data = open_set(given.set, given.version)
    common = replace(
        SUITES[given.version].network,
        sampler=f"random(batch_size={_IMAGES})",
        steps=given.steps,
        learning_rate=2e-3,
        warmup=20,
    )
    figures: dict[str, dict[str, list[float]]] = {}
    for name in given.rows or ROWS:
        row = ROWS[name]
        runs = [
            measure(data, replace(common, seed=seed, **row.options), has_labels=row.has_labels)
            for seed in range(1, given.seeds + 1)
        ]
        figures[name] = {measured: [run[measured] for run in runs] for measured in runs[0]}
        texts = [f"{key} {np.mean(values):.3f} +- {np.std(values):.3f}" for key, values in figures[name].items()]
        print(f"{name:36} {'  '.join(texts)}", flush=True)
    write_figures(given.json, {"steps": given.steps, "items": len(data.train.paths), "rows": figures})


def measure(data: BenchSet, config: TrainConfig, *, has_labels: bool) -> dict[str, float]:
    """Train a network and score it on the test items.

    Args:
        data: The set.
        config: The options.
        has_labels: Whether it learns from the labels; otherwise each image is a class of its own.

    Returns:
        The three figures.
    """
    images = read_images(data.train, config)
    distance, labels = (data.distance, data.train.labels) if has_labels else number_images(len(images))
    loss = "log-ratio" if has_labels else _SAME_IMAGE
    model = train(TrainingData(images, labels, distance), replace(config, loss=loss), quiet=True).model
    tests = [read_images(part, config) for part in data.test(0, 0)]
    features = [model.extract(part) for part in tests]
    _, predict = fit_label_regression(model.extract(images), data.train.labels, data.distance)
    return {
        "knn": score_ranks(*(model.embed(part) for part in tests), data.test_distances),
        "features": score_ranks(*features, data.test_distances),
        "probe": score_ranks(*(predict(part) for part in features), data.test_distances),
    }


def number_images(count: int) -> tuple[LabelDistance, Labels]:
    """Make the labels of self-supervision: every image is a class of its own.

    Args:
        count: Number of images.

    Returns:
        The label distance, 0 between views of an image and 1 otherwise, and the encoded labels.
    """
    names = [str(number) for number in range(count)]
    distance = distances.get("classes").fit(names)
    return distance, distance.encode(names)


if __name__ == "__main__":
    main()
