"""Features learned without labels beside features learned with few or many labels, on digits.

Run by hand: ``OMP_NUM_THREADS=1 python tests/benchmarks/self_supervision.py [--steps 100 400] [--json FILE]``

small-cnn is trained from scratch on scikit-learn's digits, enlarged to 16 pixels a side. The self-supervised rows see
1,000 images and no label: the positive of an image is its other view, by NT-Xent on the outputs of a projector, as in
SimCLR (Chen et al., ICML 2020). The supervised rows see the labelled images alone, of 1, 5, 20 or 100 a class, with as
many views and Proxy-Anchor. Each figure is the accuracy of a linear probe or of the nearest neighbour on the features
of the other 797 digits; either knows the labels of so many images a class. Each seed divides the digits anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cml

SIDE, UNLABELLED = 16, 1000
VIEWS: Mapping[str, Any] = {"views": 2, "shift_jitter": 0.1, "scale_jitter": 0.1, "brightness_jitter": 0.2, "crop": 0.9}
SAME_IMAGE = "binary(loss=NTXentLoss(temperature=0.2), rule=threshold, distance=0.0)"
Features = tuple[NDArray[np.float32], NDArray[np.float32]]  # of the images that may be labelled, and of new ones


def read_digits(seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The digits as pictures (N, 16, 16, 3) with their classes, in an order of this seed."""
    digits = load_digits()
    pictures = [
        np.asarray(Image.fromarray((digit * 255 / 16).astype(np.uint8)).resize((SIDE, SIDE), Image.Resampling.BICUBIC))
        for digit in digits.images
    ]
    order = np.random.default_rng(seed).permutation(len(pictures))
    return np.repeat(np.stack(pictures)[order, :, :, None], 3, axis=3), digits.target[order]


def train(images: NDArray[np.uint8], labels: Any, loss: str, steps: int, seed: int, **options: Any) -> cml.Model:  # noqa: ANN401 - those of cml.fit
    """Train a network from scratch."""
    return cml.fit(
        images,
        labels,
        label_distance="classes",
        loss=loss,
        sampler=f"random(batch_size={min(64, len(images))})",
        backbone="small-cnn",
        weights="none",
        image_size=(SIDE, SIDE),
        dimension=64,
        steps=steps,
        workers=0,
        seed=seed,
        device="cpu",
        quiet=True,
        **VIEWS,
        **options,
    )


def take_labelled(classes: NDArray[np.int64], each: int) -> NDArray[np.int64]:
    """The first images of each class, in the order of the seed."""
    return np.concatenate([np.flatnonzero(classes[:UNLABELLED] == name)[:each] for name in np.unique(classes)])


def score(features: Features, rows: NDArray[np.int64], classes: NDArray[np.int64]) -> dict[str, float]:
    """Accuracies on new images of a probe and of the nearest neighbour, which know the classes of some rows."""
    known, new = features[0][rows], features[1]
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    models = {"probe": probe, "nearest": KNeighborsClassifier(1)}
    asked = classes[UNLABELLED:]
    return {name: float(model.fit(known, classes[rows]).score(new, asked)) for name, model in models.items()}


def measure(seed: int, lengths: Sequence[int], each: Sequence[int]) -> dict[str, dict[str, dict[str, float]]]:
    """Row to labels a class to accuracies."""
    images, classes = read_digits(seed)
    seen, new = images[:UNLABELLED], images[UNLABELLED:]
    labelled = {count: take_labelled(classes, count) for count in each}

    def extract(model: cml.Model) -> Features:
        return model.network.extract(seen), model.network.extract(new)

    numbers = [str(number) for number in range(len(seen))]
    flat = [part.reshape(len(part), -1).astype(np.float32) for part in (seen, new)]
    fixed: dict[str, Features] = {"pixels": (flat[0], flat[1])}
    fixed["untrained"] = extract(train(seen, numbers, SAME_IMAGE, 1, seed, learning_rate=1e-12))
    for steps in lengths:
        model = train(seen, numbers, SAME_IMAGE, steps, seed, learning_rate=2e-3, projector=(128, 64))
        fixed[f"self-supervised, {steps} steps"] = extract(model)
    found = {
        row: {str(count): score(features, rows, classes) for count, rows in labelled.items()}
        for row, features in fixed.items()
    }
    found["supervised"] = {}
    for count, rows in labelled.items():
        model = train(seen[rows], classes[rows], "proxy-anchor", max(lengths), seed, learning_rate=2e-3)
        found["supervised"][str(count)] = score(extract(model), rows, classes)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 400])
    parser.add_argument("--labels", type=int, nargs="+", default=[1, 5, 20, 100], help="labelled images a class")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: dict[str, Any] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for seed in range(options.seeds):
        for row, by_count in measure(seed, options.steps, options.labels).items():
            for count, accuracies in by_count.items():
                for name, accuracy in accuracies.items():
                    rows[row][count][name].append(accuracy)
        print(seed, json.dumps({row: {n: of["probe"][-1] for n, of in some.items()} for row, some in rows.items()}))
        sys.stdout.flush()
        write_figures(options.json, {"rows": rows})


if __name__ == "__main__":
    main()
