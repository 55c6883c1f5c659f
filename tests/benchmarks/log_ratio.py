"""Speed of the log-ratio loss, forward and backward, side by side with what it is measured by.

Run by hand: ``python tests/benchmarks/log_ratio.py``. Every anchor of the batch counts, d = 128.

1. B = 150 against the same loss with its triplets enumerated in torch, in two ways: the (A, B, B) tensor of all
   pairs, and the list of pairs i < j by index. The bar is 100 times the faster one.
2. B = 4096 against the pairwise squared distances alone: at most 3 times their time.

The sides take turns, so that whatever else the machine does falls on both; the ratios are of medians, with those of
the fastest runs beside them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from cml.losses.log_ratio import Weights, log_ratio_loss


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--repeat", type=int, default=15)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    print(f"{chosen.threads} thread(s)")

    embeddings, label_distances = batch(150)
    first, second = torch.triu_indices(149, 149, 1)
    enumerated = measure(
        {
            "enumerated, (A, B, B)": (lambda: cube(embeddings, label_distances), 1),
            "enumerated, i < j by index": (lambda: by_index(embeddings, label_distances, first, second), 1),
            "log-ratio, uniform": (closed(embeddings, label_distances, "uniform"), 10),
            "log-ratio, rank": (closed(embeddings, label_distances, "rank"), 10),
        },
        embeddings,
        chosen.repeat,
    )
    embeddings_4096, label_distances_4096 = batch(4096)
    pairwise = measure(
        {
            "squared distances alone": (lambda: squared_distances(embeddings_4096).sum(), 1),
            "log-ratio, uniform": (closed(embeddings_4096, label_distances_4096, "uniform"), 1),
            "log-ratio, rank": (closed(embeddings_4096, label_distances_4096, "rank"), 1),
        },
        embeddings_4096,
        chosen.repeat,
    )
    report("B=4096, ms", pairwise)
    report("B=150, ms", enumerated)
    for weights in ("rank", "uniform"):
        name = f"log-ratio, {weights}"
        times = [pairwise[name][i] / pairwise["squared distances alone"][i] for i in (0, 1)]
        print(f"B=4096 {weights}: {times[0]:.2f} times the distances alone (fastest runs {times[1]:.2f}); bar 3")
    for weights in ("rank", "uniform"):
        name = f"log-ratio, {weights}"
        times = [min(enumerated[way][i] for way in list(enumerated)[:2]) / enumerated[name][i] for i in (0, 1)]
        print(f"B=150 {weights}: {times[0]:.0f} times as fast as enumerated (fastest runs {times[1]:.0f}); bar 100")


def batch(items: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(items, 5, generator=generator)
    return torch.randn(items, 128, generator=generator).requires_grad_(), torch.cdist(labels, labels)


def squared_distances(embeddings: Tensor) -> Tensor:
    norms = embeddings.square().sum(dim=1)
    return norms[:, None] + norms - 2 * (embeddings @ embeddings.T)


def without_own(matrix: Tensor) -> Tensor:
    """(B, B) without its diagonal: (B, B - 1)."""
    items = len(matrix)
    return matrix.flatten()[1:].view(items - 1, items + 1)[:, :-1].reshape(items, items - 1)


def cube(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    logs = (without_own(squared_distances(embeddings)).clamp_min(0) + 1e-6).log()
    label_logs = without_own(label_distances).log()
    ratios = logs[:, :, None] - logs[:, None, :]  # (A, B - 1, B - 1)
    label_ratios = label_logs[:, :, None] - label_logs[:, None, :]
    others = logs.shape[1]
    return (ratios - label_ratios).square().mean() * others / (others - 1)  # i = j adds nothing but to the number


def by_index(embeddings: Tensor, label_distances: Tensor, first: Tensor, second: Tensor) -> Tensor:
    logs = (without_own(squared_distances(embeddings)).clamp_min(0) + 1e-6).log()
    label_logs = without_own(label_distances).log()
    return ((logs[:, first] - logs[:, second]) - (label_logs[:, first] - label_logs[:, second])).square().mean()


def closed(embeddings: Tensor, label_distances: Tensor, weights: Weights) -> Callable[[], Tensor]:
    return lambda: log_ratio_loss(embeddings, label_distances, weights=weights)


def measure(
    sides: dict[str, tuple[Callable[[], Tensor], int]], embeddings: Tensor, repeat: int
) -> dict[str, tuple[float, float]]:
    """Median and fastest milliseconds of each side, forward and backward; a side's number is its runs a turn."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeat + 1):
        for name, (loss, runs) in sides.items():
            for _ in range(runs):
                embeddings.grad = None
                started = time.perf_counter()
                loss().backward()
                if turn:  # the first turn warms up
                    times[name].append(1000 * (time.perf_counter() - started))
    return {name: (statistics.median(found), min(found)) for name, found in times.items()}


def report(title: str, times: dict[str, tuple[float, float]]) -> None:
    print(f"\n{title:30}{'median':>10}{'fastest':>10}")
    for name, (median, fastest) in times.items():
        print(f"{name:30}{median:10.2f}{fastest:10.2f}")


if __name__ == "__main__":
    main()
