"""What a training step spends outside the network: 64 px images, batches of 150, the default loss and sampler.

Run: python tests/benchmarks/training_step.py [--steps 20] [--people 1000] [--files 40] [--rounds 5]

Three times are taken in turn, and the least of each counts, because the machine may be shared:
- the parts: composing a batch with its label distances, and the loss forward and backward, alone;
- the bare network: forward, backward and optimiser on batches made beforehand;
- reading: batches of 150 from image files, by two worker processes, nothing kept in memory.
The last lines print what matters: how many times faster batches are read than trained on (bar: above 1), and the share
of loss, sampling and bookkeeping in a step (bar: at most 2 % for loss and sampling, 5 % for all), by its parts and as
what network and pixels leave; and the share of a tracker, TensorBoard's event files, with a callback (bar: 1 %).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file

import cml.losses
import cml.sampling
from cml.comparing.demo import make_small_config
from cml.data.images import Images
from cml.data_prep.synthetic.people.people import draw_people
from cml.distances import registry as distances
from cml.doors.training_run import TRACK_EVERY, Tracking
from cml.items import LabelledItems
from cml.models.embedding import EmbeddingModel
from cml.trackers import GuardedTracker
from cml.trackers.tensorboard import TensorBoard
from cml.training.batches import BatchSource
from cml.training.callbacks import Callback, CallbackList
from cml.training.data_workers import shutdown_workers
from cml.training.gradient_descent import GradientDescent, make_model_config
from cml.training.learner import Place
from cml.training.training_targets import TrainingTargets


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="training steps a measurement")
    parser.add_argument("--people", type=int, default=1000, help="drawings")
    parser.add_argument("--files", type=int, default=40, help="batches read from files")
    parser.add_argument("--rounds", type=int, default=5, help="measurements; the least of each counts")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    steps, files = options.steps, options.files

    people = draw_people(options.people, size=64)
    config = replace(make_small_config(steps), sampler="random", workers=0, warmup=0)
    distance = distances.make(config.label_distance)
    labels = distance.encode(people.keypoints.tolist())
    data = LabelledItems(Images(people.images, (64, 64)), labels, distance)
    loss = cml.losses.registry.make(config.loss)
    training = TrainingTargets(data.distance, data.labels)
    loss.prepare(loss.target(training), dimension=config.dimension)
    sampler = cml.sampling.registry.make(config.sampler)
    nearest = sampler.sampler_state(training)
    source = BatchSource(data, sampler, nearest, config)
    batches = [source[step] for step in range(steps)]
    model = EmbeddingModel(make_model_config(config, loss))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def bookkeeping() -> float:
        begin = time.perf_counter()
        for step in range(steps):
            batch = sampler.batch(nearest, seed=0, step=step)
            chosen = labels[batch.items]
            distance.pairwise(chosen[: batch.anchors], chosen)
        return (time.perf_counter() - begin) / steps

    embeddings = torch.nn.functional.normalize(torch.randn(150, config.dimension), dim=1).requires_grad_()

    def loss_alone() -> float:
        begin = time.perf_counter()
        for _, block, _ in batches:
            loss(embeddings, block).backward()
        return (time.perf_counter() - begin) / steps

    def network() -> float:
        model.train()
        begin = time.perf_counter()
        for inputs, _, _ in batches:
            value = model(inputs).square().sum()
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            optimizer.step()
        return (time.perf_counter() - begin) / steps

    def whole_step() -> float:
        times: list[float] = []
        original = BatchSource.steps

        def timed(*arguments: Any, **settings: Any) -> object:  # noqa: ANN401 - as they come
            for one in original(*arguments, **settings):
                times.append(time.perf_counter())
                yield one

        BatchSource.steps = timed  # type: ignore[assignment,method-assign]
        try:
            GradientDescent(config).learn(data, place=Place(quiet=True))
        finally:
            BatchSource.steps = original  # type: ignore[method-assign]
        return float(np.median(np.diff(times)))

    with tempfile.TemporaryDirectory() as folder:
        from PIL import Image

        network()  # so that there are gradients

        def followed() -> float:
            tracker = GuardedTracker(TensorBoard())
            callback_list = CallbackList(
                [Callback(on_step=lambda state: None), Tracking(tracker)], config, Path(folder), model
            )
            value, seen = torch.zeros(()), max(steps, 2 * TRACK_EVERY)
            begin = time.perf_counter()
            for step in range(seen):
                callback_list.step(step + 1, 1e-3, value, None, 150)
            seconds = (time.perf_counter() - begin) / seen
            tracker.end()  # its threads write into the folder
            return seconds

        paths = []
        for index, image in enumerate(people.images):
            paths.append(Path(folder) / f"{index}.jpg")
            Image.fromarray(image).save(paths[-1], quality=92)
        stored = LabelledItems(Images(paths, (64, 64), cache_bytes=0), labels, distance)
        reader = BatchSource(stored, sampler, nearest, replace(config, workers=2))

        def reading() -> float:
            begin = time.perf_counter()
            with shutdown_workers():
                for _ in reader.steps(0, files):
                    pass
            return (time.perf_counter() - begin) / files

        def making() -> float:
            begin = time.perf_counter()
            for index in range(steps):
                source[index]
            return (time.perf_counter() - begin) / steps

        measures = (bookkeeping, loss_alone, making, network, whole_step, reading, followed)
        parts, alone, made, bare, step, read, follow = (
            min(measure() for _ in range(options.rounds)) for measure in measures
        )
    pixels = made - parts
    for name, seconds in (
        ("sampling and label distances", parts),
        ("loss, forward and backward", alone),
        ("jitter and mirroring of 150 images", pixels),
        ("bare network, forward, backward, update", bare),
        ("whole training step", step),
        ("reading 150 files with 2 workers", read),
        ("tracker and callback", follow),
    ):
        print(f"{name:<42}{1000 * seconds:8.2f} ms")
    print(f"images a second: trained on {150 / step:.0f}, read {150 / read:.0f} = {step / read:.1f} times as many")
    print(f"loss + sampling, measured alone: {100 * (parts + alone) / step:.1f} % of a step")
    print(f"tracker and callback: {100 * follow / step:.2f} % of a step")
    print(f"all but network and pixels, as what is left of a step: {100 * (step - bare - pixels) / step:.1f} %")
    figures = {
        "sampling_seconds": parts,
        "loss_seconds": alone,
        "pixel_seconds": pixels,
        "network_seconds": bare,
        "step_seconds": step,
        "reading_seconds": read,
        "tracker_seconds": follow,
        "reading_ratio": step / read,
        "loss_and_sampling_share": (parts + alone) / step,
        "tracker_share": follow / step,
        "rest_share": (step - bare - pixels) / step,
    }
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
