"""Starts of a head beside each other: at random, from principal components, and at random on standardised features.

    python tests/benchmarks/starts.py [--sets diabetes wine ..] [--seeds 3] [--rates 1e-3 3e-3] [--json FILE]

The sets, the items that are held out and the score are those of ``tune.py``. Tables are vectors, whose default rate is
3e-3; the sets of the benchmark are features of a frozen backbone, whose default rate is 1e-3. Heads have 64 dimensions
and are trained by log-ratio for 300 steps of 64 items.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from tune import DRAWN, Items, hold_out, read_items, take

from cml.data.vectors import Vectors
from cml.training.config import TrainConfig
from cml.training.frozen_backbone import Features
from cml.training.loop import train
from cml.training.training_data import TrainingData
from cml.training.tune_score import FirstItemsScore

STARTS = ("random", "pca", "standardised", "auto")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=[*DRAWN, "people", "heads", "rooms", "digits"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-3])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--items", type=int, default=1000, help="of a set, at most")
    parser.add_argument("--loss", default="log-ratio")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, dict[str, float]] = {}
    for name in given.sets:
        items = take(read_items(name), given.items)
        is_table = name in DRAWN
        common = TrainConfig(
            loss=given.loss,
            sampler="random(batch_size=64)",
            dimension=64,
            steps=given.steps,
            workers=0,
            backbone="none" if is_table else "efficientnet-lite0",
            weights="none" if is_table else "imagenet",
            image_size=(128, 128),
            freeze_backbone=not is_table,
        )
        figures[name] = {}
        for rate in given.rates:
            for start in STARTS:
                config = replace(common, learning_rate=rate, head_start=start)
                values = [measure(items, config, seed) for seed in range(given.seeds)]
                figures[name][f"{start}, rate {rate:g}"] = float(np.mean(values))
        print(f"{name:12} " + "  ".join(f"{key} {value:.3f}" for key, value in figures[name].items()), flush=True)
    write_figures(given.json, figures)


def measure(items: Items, config: TrainConfig, seed: int) -> float:
    """Train a head on a part of the items, and score it on the others.

    Args:
        items: N items.
        config: The options but for the seed; with a frozen backbone, the rows are its features.
        seed: Of the split and of training.

    Returns:
        The score of the items held out.
    """
    held_out, trained = hold_out(items.features, seed)
    rows = items.features[trained]
    frozen = config.freeze_backbone
    inputs: Vectors = Features(rows) if frozen else Vectors(rows)
    config = replace(config, seed=seed)
    model = train(TrainingData(inputs, items.labels[trained], items.distance), config, quiet=True).model
    others = items.features[held_out]
    embeddings = model.embed_extracted(others) if frozen else model.embed(Vectors(others))
    labels = items.labels[held_out]
    return FirstItemsScore(items.distance.pairwise(labels, labels))(embeddings)


if __name__ == "__main__":
    main()
