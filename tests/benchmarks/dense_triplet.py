"""Speed of the dense triplet loss, forward and backward, side by side with the log-ratio loss and with all pairs.

Run by hand: ``python tests/benchmarks/dense_triplet.py``. Every anchor of the batch counts, d = 128. At B = 150 the
same loss with an (A, B, B) tensor of its triplets runs beside it; at B = 1024 the log-ratio loss does, of which it may
take 6 times the time. The sides take turns; ratios are of medians, with those of the fastest runs and of processor
time beside them; on a shared machine processor time with ``--threads 1`` is the one to trust.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from figures_file import add_json_option, write_figures  # beside this file
from torch import Tensor
from torch.nn.functional import normalize

from cml.losses.dense_triplet import dense_triplet_loss
from cml.losses.log_ratio import log_ratio_loss


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--items", type=int, nargs=2, default=(150, 1024), help="of the two batches")
    options.add_argument("--repeat", type=int, default=15)
    add_json_option(options)
    chosen = options.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    print(f"{chosen.threads} thread(s)")

    few, many = chosen.items
    f, d = batch(few)
    small = measure(
        {"enumerated, (A, B, B)": lambda: enumerated(f, d), "dense triplet": lambda: dense_triplet_loss(f, d)},
        f,
        chosen.repeat,
    )
    report(f"B={few}, ms", small)
    g, e = batch(many)
    large = measure(
        {
            "log-ratio, rank": lambda: log_ratio_loss(g, e, label_exponent=1, floor=0),
            "log-ratio, uniform": lambda: log_ratio_loss(g, e, label_exponent=1, floor=0, weights="uniform"),
            "dense triplet": lambda: dense_triplet_loss(g, e),
        },
        g,
        chosen.repeat,
    )
    report(f"B={many}, ms", large)
    gain = ratios(small["enumerated, (A, B, B)"], small["dense triplet"])
    print(f"B={few}, enumerated over ours: {ratio_text(gain)}")
    over_log_ratio = {}
    for weights in ("rank", "uniform"):
        cost = ratios(large["dense triplet"], large[f"log-ratio, {weights}"])
        print(f"B={many}, time over that of the log-ratio loss, {weights}: {ratio_text(cost)}; bar 6")
        over_log_ratio[weights] = cost
    write_figures(chosen.json, {"items": chosen.items, "enumerated": gain, "over_log_ratio": over_log_ratio})


def ratios(a: tuple[float, ...], b: tuple[float, ...]) -> dict[str, float]:
    return {name: x / y for name, x, y in zip(("median", "fastest", "processor"), a, b, strict=True)}


def ratio_text(values: dict[str, float]) -> str:
    return f"{values['median']:.2f} (fastest {values['fastest']:.2f}, processor {values['processor']:.2f})"


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


def measure(sides: dict[str, Callable[[], Tensor]], embeddings: Tensor, repeat: int) -> dict[str, tuple[float, ...]]:
    """Median, fastest and median processor milliseconds of each side, forward and backward."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    processor: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeat + 1):
        for name, loss in sides.items():
            embeddings.grad = None
            started, at_work = time.perf_counter(), time.process_time()
            torch.autograd.backward(loss())
            if turn:  # the first turn warms up, and compiles
                times[name].append(1000 * (time.perf_counter() - started))
                processor[name].append(1000 * (time.process_time() - at_work))
    return {
        name: (statistics.median(found), min(found), statistics.median(processor[name]))
        for name, found in times.items()
    }


def report(title: str, times: dict[str, tuple[float, ...]]) -> None:
    print(f"\n{title:30}{'median':>10}{'fastest':>10}{'processor':>11}")
    for name, (median, fastest, processor) in times.items():
        print(f"{name:30}{median:10.2f}{fastest:10.2f}{processor:11.2f}")


if __name__ == "__main__":
    main()
