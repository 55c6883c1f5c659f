"""Speed of the registered losses over continuous labels, forward and backward, side by side with the log-ratio loss.

Run by hand: ``python tests/benchmarks/losses.py``. Every item is an anchor, d = 128, one thread by default.

1. B = 1024: every loss against the registered log-ratio (rank weights) and against its uniform weights; the bar is 6
   times, and 8 times the registered one for H-AP. Losses over vectors are given labels of 128 numbers. Losses over
   classes are left out: their time depends on the number of classes and triplets, not on A B.
2. B = 256: Rank-N-Contrast against a loop over the positives as its authors run it: each of the B - 1 turns masks and
   sums (B, B - 1) exponentials, O(B^3) in all. The bars are 20 times and a difference of 1e-6.
3. H-AP at several temperatures: time and memory over those of log-ratio, and its difference from the plain formula in
   float64. The bars are 100 MB and a difference of 1e-6, of value and gradient.

4. With ``--against CHECKOUT``, nothing of this, but every loss over label distances in this tree and in another one, at
   B = 150, 1,024 and 4,096: the ratio of their processor times with its 95 % interval, and the memory of this one's
   peak. A process for each tree takes its turn.

The sides take turns, so that whatever else the machine does falls on all of them; ratios are of medians of processor
time, with those of the fastest runs beside them.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from figures_file import add_json_option, write_figures  # beside this file
from torch import Tensor

from cml import losses
from cml.errors import UserError
from cml.losses import HAPLoss, RankNContrastLoss
from cml.losses.loss import Loss

Times = dict[str, tuple[float, float]]


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--repeat", type=int, default=9)
    options.add_argument("--items", type=int, default=1024)
    options.add_argument("--only", nargs="+", default=[], help="names of losses; 2. is left out then")
    options.add_argument("--against", help="another checkout, for 4.")
    options.add_argument("--sizes", type=int, nargs="+", choices=list(RUNS), default=list(RUNS), help="of 4.")
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    add_json_option(options)
    chosen = options.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    if chosen.serve:
        serve()
        return
    if chosen.against:
        write_figures(chosen.json, compare_trees(chosen.against, chosen.only, chosen.repeat, chosen.sizes))
        return

    embeddings_of_all, label_distances_of_all = batch(chosen.items)
    found = sides(embeddings_of_all, label_distances_of_all)
    megabytes = measure_memory(found["log-ratio"][0], found["h-ap"][0])
    if chosen.only:
        found = {name: found[name] for name in ("log-ratio", "log-ratio(weights=uniform)", *chosen.only)}
    everything = measure(found, embeddings_of_all, chosen.repeat)
    report(f"B={chosen.items}, ms", everything)
    print(f"\nh-ap: {megabytes:.0f} MB more memory than log-ratio; bar 100")
    print(f"\n{f'B={chosen.items}, time over that of':40}{'log-ratio':>12}{'its uniform':>14}   bar 6")
    figures = {}
    for name, times in sorted(everything.items(), key=lambda entry: entry[1]):
        usual, uniform = (times[0] / everything[base][0] for base in ("log-ratio", "log-ratio(weights=uniform)"))
        print(f"{name:40}{usual:12.2f}{uniform:14.2f}")
        figures[name] = {"over_log_ratio": usual, "over_uniform": uniform}
    if chosen.only:
        write_figures(chosen.json, {"items": chosen.items, "losses": figures})
        return

    rank_n_contrast, (embeddings, label_distances) = RankNContrastLoss(), batch(256)
    ours = rank_n_contrast(embeddings, label_distances).item()
    theirs = loop_over_positives(embeddings, label_distances).item()
    loop = measure(
        {
            "loop over the positives": (lambda: loop_over_positives(embeddings, label_distances), 1),
            "rank-n-contrast": (lambda: rank_n_contrast(embeddings, label_distances), 10),
        },
        embeddings,
        chosen.repeat,
    )
    report("B=256, ms", loop)
    difference = abs(ours / theirs - 1)
    print(f"\nB=256 values: ours {ours:.8f}, loop {theirs:.8f}, relative difference {difference:.1e}; 1e-6")
    median, fastest = (a / b for a, b in zip(loop["loop over the positives"], loop["rank-n-contrast"], strict=True))
    print(f"B=256 loop over the positives over rank-n-contrast: {median:.1f} (fastest {fastest:.1f}); bar 20")
    of_loop = {"items": 256, "median": median, "fastest": fastest, "difference": difference}
    h_ap = measure_h_ap(embeddings_of_all, label_distances_of_all, found["log-ratio"], chosen.repeat)
    of_parts = {"losses": figures, "rank_n_contrast": of_loop, "h_ap": h_ap, "h_ap_megabytes": megabytes}
    write_figures(chosen.json, {"items": chosen.items, **of_parts})


RUNS = {150: 40, 1024: 3, 4096: 1}  # in a turn of each size, as the clock is coarse


def serve() -> None:
    """Answer lines "loss items runs" with the processor seconds of a forward and backward pass, and the peak in MB."""
    made: dict[tuple[str, int], tuple[Loss, Tensor, Tensor]] = {}
    for line in sys.stdin:
        name, size, runs = line.rsplit(maxsplit=2)
        if (name, int(size)) not in made:
            made.clear()
            embeddings, label_distances = batch(int(size))
            if name not in losses.names():
                print(flush=True)  # the other checkout does not have it
                continue
            loss = losses.registry.make(name)
            loss.prepare(label_distances[0, 1:], dimension=128)
            made[name, int(size)] = loss, embeddings, label_distances
        loss, embeddings, label_distances = made[name, int(size)]
        started = time.process_time()
        for _ in range(int(runs)):
            embeddings.grad = None
            torch.autograd.backward(loss(embeddings, label_distances))
        seconds = (time.process_time() - started) / int(runs)
        print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


def compare_trees(other: str, only: Sequence[str], repeat: int, sizes: Sequence[int]) -> dict[str, object]:
    """Print and return, by loss and size, the ratio of the times of this tree and another one with its interval."""
    here = Path(__file__).resolve()

    def start(tree: Path) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(here.parent)])}
        command = [sys.executable, str(here), "--serve"]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def ask(server: subprocess.Popen[str], question: str) -> list[float]:
        assert server.stdin
        assert server.stdout
        server.stdin.write(f"{question}\n")
        server.stdin.flush()
        return [float(number) for number in server.stdout.readline().split()]

    figures: dict[str, object] = {}
    over_distances = [name for name in losses.names() if issubclass(entry(name), losses.LabelDistanceLoss)]
    for name in only or [name for name in over_distances if name != "binary"]:
        servers = [start(tree) for tree in (here.parents[2], Path(other).resolve())]  # whose peaks are of one loss
        for size, runs in ((size, RUNS[size]) for size in sizes):
            if not all(ask(server, f"{name} {size} 1") for server in servers):
                print(f"{name:24} is not in both", flush=True)
                break
            turns = [[ask(server, f"{name} {size} {runs}") for server in servers] for _ in range(1 + repeat)]
            ratios = sorted(ours[0] / theirs[0] for ours, theirs in turns[1:])  # the first turn warms up
            low, median, high = median_interval(ratios)
            megabytes = turns[-1][0][1]
            print(f"{name:24} B={size:5} {median:6.2f} ({low:.2f} to {high:.2f})  {megabytes:6.0f} MB", flush=True)
            figures[f"{name} {size}"] = {"ratio": median, "low": low, "high": high, "megabytes": megabytes}
        for server in servers:
            server.communicate(timeout=60)
    return figures


def entry(name: str) -> type[Loss]:
    found: type[Loss] = losses.registry.entry(name)  # type: ignore[assignment]
    return found


def median_interval(ordered: Sequence[float]) -> tuple[float, float, float]:
    """The median of ordered numbers, between the ends of its 95 % interval by ranks."""
    count = len(ordered)
    reach = int(0.98 * count**0.5) + 1
    middle = (count - 1) / 2
    return (
        ordered[max(0, int(middle) - reach)],
        statistics.median(ordered),
        ordered[min(count - 1, int(middle + 0.5) + reach)],
    )


def batch(items: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(items, 5, generator=generator)
    return torch.randn(items, 128, generator=generator).requires_grad_(), torch.cdist(labels, labels)


def sides(embeddings: Tensor, label_distances: Tensor) -> dict[str, tuple[Callable[[], Tensor], int]]:
    """Every registered loss over label distances or vectors, prepared."""
    generator = torch.Generator().manual_seed(1)
    items, dimension = embeddings.shape
    vectors = torch.randn(items, dimension, generator=generator)
    found: dict[str, tuple[Callable[[], Tensor], int]] = {}
    for name in [*losses.names(), "log-ratio(weights=uniform)"]:
        try:
            loss = losses.registry.make(name)
        except UserError as error:
            print(f"left out: {error}")
            continue
        if loss.labels == "label distances":
            target = label_distances
            loss.fit(label_distances[~torch.eye(items, dtype=torch.bool)])
        elif loss.labels == "vectors":
            target = vectors
            loss.prepare(vectors, dimension=dimension, names=(), generator=generator)
        else:
            continue
        found[name] = (lambda loss=loss, target=target: loss(embeddings, target), 1)
    return found


def loop_over_positives(embeddings: Tensor, label_distances: Tensor, temperature: float = 2.0) -> Tensor:
    """The formula of the paper, one positive of each anchor a turn."""
    items = len(embeddings)
    others = ~torch.eye(items, dtype=torch.bool)
    scores = -(embeddings[:, None] - embeddings[None]).norm(dim=2) / temperature
    scores, labels = scores[others].view(items, -1), label_distances[others].view(items, -1)  # (B, B - 1)
    powers = scores.exp()
    total = embeddings.new_zeros(())
    for positive in range(items - 1):
        farther = (labels >= labels[:, positive, None]).to(powers.dtype)
        total = total - (scores[:, positive] - (farther * powers).sum(dim=1).log()).sum()
    return total / (items * (items - 1))


def measure(sides: dict[str, tuple[Callable[[], Tensor], int]], embeddings: Tensor, repeat: int) -> Times:
    """Median and least processor milliseconds, forward and backward; a side's number: its runs a turn."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeat + 1):
        for name, (loss, runs) in sides.items():
            for _ in range(runs):
                embeddings.grad = None
                started = time.process_time()
                torch.autograd.backward(loss())
                if turn:  # the first turn warms up
                    times[name].append(1000 * (time.process_time() - started))
    return {name: (statistics.median(found), min(found)) for name, found in times.items()}


def measure_memory(usual: Callable[[], Tensor], other: Callable[[], Tensor]) -> float:
    """How many MB the peak of a process grows by, forward and backward, once it has run the usual loss."""
    torch.autograd.backward(HAPLoss()(*batch(8)))  # compiles
    torch.autograd.backward(usual())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.autograd.backward(other())
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def measure_h_ap(
    embeddings: Tensor, label_distances: Tensor, log_ratio: tuple[Callable[[], Tensor], int], repeat: int
) -> dict[str, dict[str, float]]:
    """Print and return, by temperature, time over that of log-ratio and the difference from the plain formula."""
    figures = {}
    few, few_labels = embeddings[:128].detach().double(), label_distances[:128, :128].double()
    for temperature in (0.1, 0.05, 0.02, 0.003):

        def h_ap(f: Tensor, labels: Tensor, temperature: float = temperature) -> Tensor:
            value: Tensor = HAPLoss(temperature)(f, labels)
            return value

        both = {"log-ratio": log_ratio, "h-ap": (lambda h_ap=h_ap: h_ap(embeddings, label_distances), 1)}
        times = measure(both, embeddings, repeat)
        value, gradient = of_leaf(h_ap, few, few_labels)
        slope, true = torch.func.grad_and_value(h_ap)(few, few_labels)  # torch follows the plain formula
        difference = max(abs(value / true - 1).item(), ((gradient - slope).norm() / slope.norm()).item())
        over = times["h-ap"][0] / times["log-ratio"][0]
        print(f"h-ap, temperature {temperature}: {over:.1f} times log-ratio, difference {difference:.1e}; 1e-6")
        figures[f"{temperature:g}"] = {"over_log_ratio": over, "difference": difference}
    return figures


def of_leaf(loss: Callable[[Tensor, Tensor], Tensor], embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The value and the gradient of a loss."""
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def report(title: str, times: Times) -> None:
    print(f"\n{title:40}{'median':>10}{'fastest':>10}")
    for name, (median, fastest) in times.items():
        print(f"{name:40}{median:10.2f}{fastest:10.2f}")


if __name__ == "__main__":
    main()
