"""A filled page on a machine with an accelerator: speed, memory, several processes and a published recipe.

Run: python tests/benchmarks/accelerator.py [--minutes 10] [--page FILE] [--device cuda] [--backbones resnet50 ..]

Prints a page of Markdown. For each backbone and precision, at 224 px in channels-last layout unless the options say
otherwise, its first table has a row each for:
- bare: forward, backward and update of the backbone alone, on batches that lie on the device already;
- bare, compiled: the same through torch.compile, which cml itself does not use;
- bare, channels first: the same in the other layout;
- cml: whole training steps as cml does them, images and label distances from memory, the default loss and sampler;
- cml, 2 processes: the same by two processes that share each batch, where there are two accelerators or none;
- embedding: forward alone, as ``model.embed`` does it.
"kept" is the share of the bare rate, and memory the most that torch took of the device, or the process of the machine.
The second table is of a recipe of ``cml reproduce`` that runs for ``--minutes`` at its own size and batch, on random
images: its rate, and the hours of the whole at that rate. Weights are random: their values do not change the time. No
figures are kept here, for it was only run on processors so far.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from cml import models
from cml.comparing.rows import with_changes
from cml.data.images import Images
from cml.distances import registry as distances
from cml.items import LabelledItems
from cml.processes.device import pick_device
from cml.processes.init_processes import init_processes
from cml.processes.ranks import Ranks
from cml.retrieval import text_table
from cml.sampling import registry as samplers
from cml.tasks.papers import PAPERS
from cml.training.callbacks import Callback, State
from cml.training.config import TrainConfig
from cml.training.gradient_descent import GradientDescent
from cml.training.learner import Place

RECIPE = "Proxy-Anchor, ResNet-50, 512-d"
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Measured(NamedTuple):
    """The speed of a training or of a network.

    Attributes:
        rate: Images a second.
        memory: GiB.
    """

    rate: float
    memory: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", nargs="+", default=["resnet50", "timm/vit_small_patch16_224"])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["bfloat16", "float32"])
    parser.add_argument("--size", type=int, default=224, help="pixels a side")
    parser.add_argument("--batch", type=int, default=150)
    parser.add_argument("--steps", type=int, default=30, help="steps a measurement, after --warm ones")
    parser.add_argument("--warm", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--processes", type=int, default=2, help="of the row of several; 1 leaves it out")
    parser.add_argument("--recipe", default=f"{RECIPE}", help="a row of proxy-anchor cub")
    parser.add_argument("--minutes", type=float, default=10, help="of the recipe; 0 leaves it out")
    parser.add_argument("--recipe-size", type=int, default=224, help="pixels a side of the recipe")
    parser.add_argument("--recipe-batch", type=int, default=0, help="of the recipe; 0 for the published one")
    parser.add_argument("--page", type=Path, help="also write the page to a file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)  # backbone and precision of one of several processes
    options = parser.parse_args(arguments)
    if options.worker:
        backbone, _, precision = options.worker.rpartition(":")
        with init_processes(options.device) as ranks:
            measured = whole(backbone, precision, ranks.device, options, ranks)
            if ranks.first:
                print(f"rate {measured.rate} memory {measured.memory}")
        return
    device = pick_device(options.device)
    made = (
        f"torch {torch.__version__}, Python {platform.python_version()}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    )
    sizes = f"{options.size} px, batches of {options.batch}, {options.steps} steps after {options.warm}"
    parts = [f"# {name_device(device)}", f"{made}. {sizes}.", text_table.markdown(list_speeds(device, options))]
    if options.minutes:
        parts.append(text_table.markdown(run_recipe(device, options)))
    page = "\n\n".join(parts) + "\n"
    print(page)
    if options.page is not None:
        options.page.write_text(page, "utf-8")


def name_device(device: torch.device) -> str:
    """Name a device: the model of a graphics card, or the processor with its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads ({device.type})"


def list_speeds(device: torch.device, options: argparse.Namespace) -> list[list[str]]:
    """Measure each backbone and precision: header and rows."""
    lines = [["backbone", "precision", "what", "images/s", "kept", "memory, GiB"]]
    for backbone in options.backbones:
        for precision in options.precisions:
            measured = {"bare": bare(backbone, precision, device, options)}
            if options.compile:
                measured["bare, compiled"] = bare(backbone, precision, device, options, compiled=True)
            first = torch.contiguous_format
            measured["bare, channels first"] = bare(backbone, precision, device, options, layout=first)
            measured["cml"] = whole(backbone, precision, device, options)
            if options.processes > 1 and (device.type == "cpu" or torch.cuda.device_count() >= options.processes):
                name = f"cml, {options.processes} processes"
                measured[name] = whole_in_processes(backbone, precision, options)
            measured["embedding"] = bare(backbone, precision, device, options, learn=False)
            for name, (rate, memory) in measured.items():
                kept = f"{rate / measured['bare'].rate:.0%}"
                lines.append([backbone, precision, name, f"{rate:.1f}", kept, f"{memory:.2f}"])
    return lines


def run_recipe(device: torch.device, options: argparse.Namespace) -> list[list[str]]:
    """Train a published row for some minutes on random images: header and one row."""
    experiment = PAPERS["proxy-anchor"]["cub"]
    row = experiment.row(options.recipe)
    if row is None or row.quoted:
        raise SystemExit(f"There is no row {options.recipe!r} to train: see cml reproduce proxy-anchor cub.")
    config = with_changes(experiment.config, row.changes)
    published = samplers.make(config.sampler).batch_size
    batch = options.recipe_batch or published
    side = (options.recipe_size, options.recipe_size)
    steps = config.steps
    config = replace(config, weights="none", image_size=side, sampler=f"random(batch_size={batch})", head_first=0)
    config = replace(config, device=str(device), precision="bfloat16" if device.type == "cuda" else "float32")
    classes = [str(number % 100) for number in range(max(2 * batch, 200))]
    distance = distances.make("classes").fit(classes)
    stored = round(options.recipe_size / config.crop)
    images = np.random.default_rng(0).integers(0, 256, (len(classes), stored, stored, 3), dtype=np.uint8)
    labels = distance.encode(classes)
    begun = time.perf_counter()
    done: list[tuple[int, float]] = []

    def note(state: State) -> bool:
        settle(device)
        done.append((state.step, time.perf_counter()))
        return len(done) > 1 and time.perf_counter() - begun > 60 * options.minutes

    data = LabelledItems(Images(images, (stored, stored)), labels, distance, mirrored_labels=labels)
    clear_memory(device)
    GradientDescent(config).learn(data, place=Place(callbacks=[Callback(on_step=note)], quiet=True))
    (first, start), (last, end) = done[0], done[-1]
    rate = batch * (last - first) / (end - start)
    hours = steps * published / rate / 3600
    header = ["recipe", "batch", "side, px", "minutes", "steps", "images/s", "memory, GiB", "hours of the whole"]
    shown = [f"{options.minutes:g}", str(last), f"{rate:.1f}", f"{read_memory(device):.2f}", f"{hours:.2f}"]
    return [header, [options.recipe, str(batch), str(options.recipe_size), *shown]]


def whole_in_processes(backbone: str, precision: str, options: argparse.Namespace) -> Measured:
    """The speed of ``whole`` by several processes, which torchrun starts."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.processes)),
        *(__file__, "--worker", f"{backbone}:{precision}", "--size", str(options.size), "--batch", str(options.batch)),
        *("--steps", str(options.steps), "--warm", str(options.warm), "--device", options.device),
    ]
    told = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    found = re.search(r"^rate (\S+) memory (\S+)$", told.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"Several processes failed: {told.stderr.strip().splitlines()[-1:]}")
    return Measured(float(found[1]), float(found[2]))


def clear_memory(device: torch.device) -> None:
    """Begin to count the memory of a measurement; that of a process only grows."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def read_memory(device: torch.device) -> float:
    """The most memory in GiB since ``clear_memory``."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    kilobytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kilobytes / 2**30


def bare(
    backbone: str,
    precision: str,
    device: torch.device,
    options: argparse.Namespace,
    *,
    compiled: bool = False,
    layout: torch.memory_format = torch.channels_last,
    learn: bool = True,
) -> Measured:
    """The speed of the backbone alone."""
    clear_memory(device)
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

    rate = options.batch / seconds(step, device, options.warm, options.steps)
    return Measured(rate, read_memory(device))


def whole(
    backbone: str, precision: str, device: torch.device, options: argparse.Namespace, ranks: Ranks | None = None
) -> Measured:
    """The speed of cml's training steps, from the end of the warm ones on; 0 in all processes but the first."""
    clear_memory(device)
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

    data = LabelledItems(Images(images, (options.size, options.size)), labels, distance)
    GradientDescent(config).learn(data, place=Place(callbacks=[Callback(on_step=note)], quiet=True, ranks=ranks))
    if not times:
        return Measured(0.0, 0.0)
    first, last = sorted(times.values())
    return Measured(options.batch * options.steps / (last - first), read_memory(device))


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
