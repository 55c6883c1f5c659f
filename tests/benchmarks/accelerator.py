"""Images a second of training and embedding, beside the bare backbone: for a machine with an accelerator.

Run: python tests/benchmarks/accelerator.py [--backbones resnet50 timm/vit_small_patch16_224] [--device cuda]

For each backbone and precision, at 224 px in channels-last layout unless the options say otherwise, a line each for:
- bare: forward, backward and update of the backbone alone, on batches that lie on the device already;
- bare, compiled: the same through torch.compile, which cml itself does not use;
- bare, channels first: the same in the other layout;
- cml: whole training steps as cml does them, images and label distances from memory, the default loss and sampler;
- embedding: forward alone, as ``model.embed`` does it.
The last column is the share of the bare rate that is kept. Weights are random: their values do not change the time. No
figures of it are kept here, for it was only run on processors so far.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from cml import models
from cml.data.images import Images
from cml.distances import registry as distances
from cml.processes.device import pick_device
from cml.training.callbacks import Callback, State
from cml.training.config import TrainConfig
from cml.training.loop import train
from cml.training.training_data import TrainingData

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", nargs="+", default=["resnet50", "timm/vit_small_patch16_224"])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["bfloat16", "float32"])
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--batch", type=int, default=150)
    parser.add_argument("--steps", type=int, default=30, help="steps a measurement, after --warm ones")
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args(arguments)
    device = pick_device(options.device)
    print(f"{device}, torch {torch.__version__}, {options.size} px, batches of {options.batch}")
    for backbone in options.backbones:
        for precision in options.precisions:
            rates = {"bare": bare(backbone, precision, device, options)}
            if options.compile:
                rates["bare, compiled"] = bare(backbone, precision, device, options, compiled=True)
            rates["bare, channels first"] = bare(backbone, precision, device, options, layout=torch.contiguous_format)
            rates["cml"] = whole(backbone, precision, device, options)
            rates["embedding"] = bare(backbone, precision, device, options, learn=False)
            for name, rate in rates.items():
                print(f"{backbone:<30}{precision:<10}{name:<22}{rate:10.1f} images/s{rate / rates['bare']:8.0%}")


def bare(
    backbone: str,
    precision: str,
    device: torch.device,
    options: argparse.Namespace,
    *,
    compiled: bool = False,
    layout: torch.memory_format = torch.channels_last,
    learn: bool = True,
) -> float:
    """Images a second of the backbone alone."""
    side = (options.size, options.size)
    network = models.get(backbone, "none", image_size=side).module.to(device, memory_format=layout).train(learn)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-3)
    called = torch.compile(network) if compiled else network
    pixels = torch.randn(options.batch, 3, *side, device=device).contiguous(memory_format=layout)

    def step() -> None:
        with torch.set_grad_enabled(learn):
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                value = called(pixels).float().square().mean()
            if learn:
                optimizer.zero_grad(set_to_none=True)
                value.backward()
                optimizer.step()

    return options.batch / seconds(step, device, options.warm, options.steps)


def whole(backbone: str, precision: str, device: torch.device, options: argparse.Namespace) -> float:
    """Images a second of cml's training steps, from the end of the warm ones on."""
    config = TrainConfig(
        backbone=backbone,
        weights="none",
        image_size=(options.size, options.size),
        sampler=f"random(batch_size={options.batch})",
        steps=options.warm + options.steps,
        device=str(device),
    )
    config = replace(config, precision="bfloat16" if precision == "bfloat16" else "float32")
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (2 * options.batch, options.size, options.size, 3), dtype=np.uint8)
    distance = distances.make("euclidean")
    labels = distance.encode(generator.normal(size=(len(images), 4)).tolist())
    times: dict[int, float] = {}

    def note(state: State) -> None:
        if state.step in (options.warm, options.warm + options.steps):
            settle(device)
            times[state.step] = time.perf_counter()

    data = TrainingData(Images(images, (options.size, options.size)), labels, distance)
    train(data, config, callbacks=[Callback(on_step=note)], quiet=True)
    first, last = sorted(times.values())
    return options.batch * options.steps / (last - first)


def seconds(step: Callable[[], None], device: torch.device, warm: int, steps: int) -> float:
    """Of a step, on average, once it is warm."""
    for _ in range(warm):
        step()
    settle(device)
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    settle(device)
    return (time.perf_counter() - begin) / steps


def settle(device: torch.device) -> None:
    """Wait for what the device was asked for."""
    if device.type != "cpu":
        torch.accelerator.synchronize()


if __name__ == "__main__":
    main()
