"""Whether two views of each image, or a projector, help a small network: ``views=2`` and ``projector=``.

    python tests/benchmarks/views.py [--sets people heads elpv ..] [--seeds 5] [--steps 150] [--json FILE]

small-cnn is trained from scratch on images of 32 pixels a side of the benchmark's sets: people, rooms and heads are
drawn, elpv and earth are photographs. Batches have 32 items; all rows but the first crop, shift and brighten images at
random. "views=2" has both views of 32 items in a batch, and so twice as many images; "views=2, 16 items" has as many
images as the first rows; "64 items" has as many as "views=2". ``--frozen`` trains heads on frozen EfficientNet-Lite0
features instead, which take no views. A figure is the mean score@10: 1 has the nearest labels first, 0 is chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from equal_labels import score_ranks  # beside this file
from figures_file import add_json_option, write_figures

from cml.array_types import Float32
from cml.bench.sets import BenchSet, Part, compute_features, open_set
from cml.bench.suite import LATEST, SUITES
from cml.data.augmentation import stored_size
from cml.data.images import Images
from cml.data.inputs import Inputs
from cml.models.embedding import EmbeddingModel
from cml.training.config import TrainConfig
from cml.training.frozen_backbone import Features
from cml.training.loop import train
from cml.training.training_data import TrainingData

_AUGMENTED: Mapping[str, Any] = {"crop": 0.9, "shift_jitter": 0.05, "scale_jitter": 0.05, "brightness_jitter": 0.2}
_PROJECTOR = (128, 64)
_BATCH = 32
ROWS: Mapping[str, Mapping[str, Any]] = {
    "no augmentation": {},
    "augmentation": _AUGMENTED,
    "views=2": {**_AUGMENTED, "views": 2},
    "views=2, 16 items": {**_AUGMENTED, "views": 2, "sampler": "random(batch_size=16)"},
    "64 items": {**_AUGMENTED, "sampler": "random(batch_size=64)"},
    "projector": {**_AUGMENTED, "projector": _PROJECTOR},
    "views=2, projector": {**_AUGMENTED, "views": 2, "projector": _PROJECTOR},
}
FROZEN_ROWS: Mapping[str, Mapping[str, Any]] = {"no projector": {}, "projector": {"projector": _PROJECTOR}}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print: mean and standard deviation over seeds, and the mean paired difference from a row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["people", "heads", "elpv", "earth"])
    parser.add_argument("--losses", nargs="+", default=["log-ratio"])
    parser.add_argument("--rows", nargs="+", help="some of the rows; by default all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--frozen", action="store_true", help="heads on frozen features")
    parser.add_argument("--version", default=LATEST, help="of the suite")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows, base = (FROZEN_ROWS, "no projector") if given.frozen else (ROWS, "augmentation")
    rules = SUITES[given.version]
    common = replace(
        rules.heads if given.frozen else rules.network,
        sampler=f"random(batch_size={_BATCH})",
        steps=given.steps,
        learning_rate=1e-3 if given.frozen else 2e-3,
        warmup=20,
    )
    figures: dict[str, dict[str, list[float]]] = {}
    for name in given.sets:
        data = open_set(name, given.version)
        for loss in given.losses:
            title = f"{name}, {loss}"
            figures[title] = {}
            for row in given.rows or rows:
                config = replace(common, loss=loss, **rows[row])
                scores = [measure(data, replace(config, seed=seed)) for seed in range(1, given.seeds + 1)]
                figures[title][row] = scores
                text = f"{title:20} {row:20} {np.mean(scores):.3f} +- {np.std(scores):.3f}"
                if base in figures[title] and row != base:
                    gains = np.array(scores) - figures[title][base]
                    text += f"  {gains.mean():+.3f} +- {gains.std(ddof=min(1, len(gains) - 1)):.3f}"
                print(text, flush=True)
    write_figures(given.json, {"steps": given.steps, "sets": figures})


def measure(data: BenchSet, config: TrainConfig) -> float:
    """Train a network, or a head on frozen features, and score it on the test items.

    Args:
        data: The set.
        config: The options.

    Returns:
        The mean score@10.
    """
    if config.freeze_backbone:
        inputs: Inputs = Features(compute_features(config, data.train))
    else:
        inputs = read_images(data.train, config)
    model = train(TrainingData(inputs, data.train.labels, data.distance), config, quiet=True).model
    embeddings = [embed(model, part, config) for part in data.test(0, 0)]
    return score_ranks(*embeddings, data.test_distances)


def embed(model: EmbeddingModel, part: Part, config: TrainConfig) -> Float32:
    """Embed the items of a part, (N, D)."""
    if config.freeze_backbone:
        return model.embed_extracted(compute_features(config, part))
    return model.embed(read_images(part, config))


def read_images(part: Part, config: TrainConfig) -> Images:
    """Read the images of a part at the size that the network and its crop need."""
    images = Images(part.paths, stored_size(config.image_size, config.crop), cache_bytes=config.cache_bytes)
    images.load()
    return images


if __name__ == "__main__":
    main()
