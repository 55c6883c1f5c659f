"""The loader of training: batches from 288 px crops on disk, decoded, jittered and cut to 224 px by two workers.

Run: python tests/benchmarks/loader.py [--images 600] [--workers 2] [--batches 8] [--rounds 4]

Nothing is kept in memory. The pose recipe's jitter of scale and place is on, as is its mirroring. Rounds of batches
are taken after the workers have started; the machine may be shared, so the best round counts. The time that one process
needs for an image is printed by its parts. The last line is the speed as a multiple of the bar, 200 images a second.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from PIL import Image
from sklearn.datasets import load_sample_images

import cml.sampling
from cml.data.augmentation import Jitter, jitter_boxes
from cml.data.images import Images
from cml.distances import registry as distances
from cml.tasks.pose import RECIPE
from cml.training.batches import BatchSource
from cml.training.data_workers import shutdown_workers
from cml.training.training_data import TrainingData
from cml.training.training_targets import TrainingTargets

BAR = 200  # images a second
BATCH = 150
STORED = (288, 288)


def write_crops(folder: Path, count: int) -> list[Path]:
    """Crops of scikit-learn's sample images, as a preparation would save them."""
    rng = np.random.default_rng(0)
    samples = load_sample_images().images
    paths = []
    for number in range(count):
        sample = samples[number % 2]
        top, left = rng.integers(sample.shape[0] - STORED[0]), rng.integers(sample.shape[1] - STORED[1])
        paths.append(folder / f"{number:05d}.jpg")
        Image.fromarray(sample[top : top + STORED[0], left : left + STORED[1]]).save(paths[-1], quality=92)
    return paths


def best(measure: Callable[[], object], rounds: int) -> float:
    """The least of several times, in seconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        measure()
        times.append(time.perf_counter() - began)
    return min(times)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=600, help="crops on disk")
    parser.add_argument("--workers", type=int, default=2, help="processes that make batches")
    parser.add_argument("--batches", type=int, default=8, help="batches of a round")
    parser.add_argument("--rounds", type=int, default=4)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    batches, rounds = options.batches, options.rounds
    torch.set_num_threads(1)
    jitter = Jitter(RECIPE.crop, RECIPE.scale_jitter, RECIPE.shift_jitter)
    distance = distances.make(RECIPE.label_distance)
    poses = np.concatenate(
        [np.random.default_rng(0).uniform(0, 288, (options.images, 16, 2)), np.ones((options.images, 16, 1))], axis=2
    )
    sampler = cml.sampling.registry.make(RECIPE.sampler)
    with tempfile.TemporaryDirectory() as folder:
        images = Images(write_crops(Path(folder), options.images), STORED, cache_bytes=0)
        data = TrainingData(images, distance.encode(poses.tolist()), distance)
        given = sampler.sampler_state(TrainingTargets(data.distance, data.labels))
        config = replace(RECIPE, seed=0, image_size=(224, 224), brightness_jitter=0.0, workers=options.workers)
        source = BatchSource(data, sampler, given, config)
        items = np.arange(BATCH)
        pixels = images.read(items)
        rng = np.random.default_rng(0)
        parts = {
            "decoding": best(lambda: images.read(items), rounds),
            "jitter": best(lambda: jitter_boxes(pixels, (224, 224), jitter, rng), rounds),
            "a whole batch": best(lambda: source[0], rounds),
        }
        for name, seconds in parts.items():
            print(f"{name}: {1000 * seconds / BATCH:.2f} ms an image in one process")
        steps = source.steps(0, (rounds + 1) * batches)
        with shutdown_workers():
            for _ in range(batches):  # workers start, queues fill
                next(steps)
            seconds = best(lambda: [next(steps) for _ in range(batches)], rounds)
    speed = batches * BATCH / seconds
    print(f"{speed:.0f} images/s with {options.workers} workers")
    print(f"times the bar of {BAR} images/s: {speed / BAR:.2f}")
    figures = {name.replace(" ", "_"): seconds / BATCH for name, seconds in parts.items()}
    write_figures(options.json, {"images_per_second": speed, "workers": options.workers, "seconds_an_image": figures})


if __name__ == "__main__":
    main()
