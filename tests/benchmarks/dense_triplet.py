"""Speed of the dense triplet loss, forward and backward, side by side with the log-ratio loss and with all pairs.

Run by hand: ``python tests/benchmarks/dense_triplet.py``. Every anchor of the batch counts, d = 128. At B = 150 the
same loss with an (A, B, B) tensor of its triplets runs beside it; at B = 1024 the log-ratio loss does, of which it may
take 6 times the time. The sides take turns; ratios are of medians, with those of the fastest runs beside them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cml.losses.dense_triplet import dense_triplet_loss
from cml.losses.log_ratio import log_ratio_loss


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--repeat", type=int, default=15)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    print(f"{chosen.threads} thread(s)")

    f, d = batch(150)
    small = measure(
        {
            "enumerated, (A, B, B)": lambda: enumerated(f, d),
            "dense triplet": lambda: dense_triplet_loss(f, d),
        },
        f,
        chosen.repeat,
    )
    report("B=150, ms", small)
    g, e = batch(1024)
    large = measure(
        {
            "log-ratio, rank": lambda: log_ratio_loss(g, e, weights="rank", normalize=True),
            "log-ratio, uniform": lambda: log_ratio_loss(g, e, normalize=True),
            "dense triplet": lambda: dense_triplet_loss(g, e),
        },
        g,
        chosen.repeat,
    )
    report("B=1024, ms", large)
    gain = [small["enumerated, (A, B, B)"][i] / small["dense triplet"][i] for i in (0, 1)]
    print(f"B=150: {gain[0]:.1f} times as fast as enumerated (fastest runs {gain[1]:.1f})")
    for weights in ("rank", "uniform"):
        cost = [large["dense triplet"][i] / large[f"log-ratio, {weights}"][i] for i in (0, 1)]
        print(f"B=1024: {cost[0]:.2f} times the log-ratio loss, {weights} (fastest runs {cost[1]:.2f}); bar 6")


def batch(items: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(items, 5, generator=generator)
    return torch.randn(items, 128, generator=generator).requires_grad_(), torch.cdist(labels, labels)


def enumerated(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    unit = normalize(embeddings)
    squared = 2 - 2 * (unit @ unit.T)
    other = ~torch.eye(len(unit), dtype=torch.bool)
    ordered = (label_distances[:, :, None] < label_distances[:, None, :]) & other[:, :, None] & other[:, None, :]
    hinge = (squared[:, :, None] - squared[:, None, :] + 0.03).clamp_min(0)
    return (hinge * ordered).sum() / ordered.sum()


def measure(sides: dict[str, Callable[[], Tensor]], embeddings: Tensor, repeat: int) -> dict[str, tuple[float, float]]:
    """Median and fastest milliseconds of each side, forward and backward."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeat + 1):
        for name, loss in sides.items():
            embeddings.grad = None
            started = time.perf_counter()
            loss().backward()
            if turn:  # the first turn warms up, and compiles
                times[name].append(1000 * (time.perf_counter() - started))
    return {name: (statistics.median(found), min(found)) for name, found in times.items()}


def report(title: str, times: dict[str, tuple[float, float]]) -> None:
    print(f"\n{title:30}{'median':>10}{'fastest':>10}")
    for name, (median, fastest) in times.items():
        print(f"{name:30}{median:10.2f}{fastest:10.2f}")


if __name__ == "__main__":
    main()
