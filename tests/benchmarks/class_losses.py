"""Time of the losses over classes beside the log-ratio loss: forward and backward of 1,024 items of 256 classes.

Run by hand: ``python tests/benchmarks/class_losses.py [--items 1024] [--rounds 7]``. The last column is the
multiple of the log-ratio loss's time; losses over triplets take what their triplets take.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from cml import losses
from cml.losses.loss import Loss

DIMENSION, PER_CLASS = 128, 4
SETTINGS = {
    "proxy-gml": "proxy-gml(per_class=2)",
    "lifted-structure": "",
}  # lifted structure: memory of all pairs squared


def seconds(loss: Loss, embeddings: Tensor, labels: Tensor) -> float:
    """One forward and backward pass."""
    leaf = embeddings.clone().requires_grad_()
    began = time.perf_counter()
    loss(leaf, labels).backward()
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all losses in turns, so that a busy moment hits each of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    items = options.items
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(items, DIMENSION, generator=generator)
    classes = torch.arange(items // PER_CLASS).repeat_interleave(PER_CLASS)
    ages = torch.rand(items, 1, generator=generator)
    label_distances = torch.cdist(ages, ages)
    made: dict[str, tuple[Loss, Tensor]] = {"log-ratio": (losses.get("log-ratio"), label_distances)}
    made["log-ratio"][0].fit(label_distances[~torch.eye(items, dtype=torch.bool)])
    for name in losses.names():
        text = SETTINGS.get(name, name)
        if text and losses.registry.entry(name).labels == "classes" and name != "language-guidance":  # type: ignore[attr-defined]
            loss = losses.registry.make(text)
            loss.prepare(classes, dimension=DIMENSION, names=(), generator=torch.Generator())
            made[name] = loss, classes
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(options.rounds):
        for name, (loss, labels) in made.items():
            times[name].append(seconds(loss, embeddings, labels))
    base = statistics.median(times["log-ratio"])
    for name, taken in times.items():
        print(f"{name:<28}{1000 * statistics.median(taken):8.1f} ms {statistics.median(taken) / base:6.1f}")


if __name__ == "__main__":
    main()
