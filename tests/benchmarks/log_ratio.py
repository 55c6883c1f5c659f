"""Speed of the log-ratio loss, forward and backward, side by side with what it is measured by.

Run by hand: ``python tests/benchmarks/log_ratio.py``. Every anchor of the batch counts, d = 128.

1. B = 150 against the same loss with its triplets enumerated in torch, in five ways. As the paper states them: the
   triplets with D_y(a,i) < D_y(a,j), selected from the (A, B, B) tensor; and anchor by anchor, as its lists are made.
   Then by ways that use what the closed form knows, the symmetry in i and j: the (A, B, B) tensor of all pairs with a
   mask of usable pairs; the same without masks, the anchor's own column cut out; and the list of pairs i < j by
   index. The bar is 100 times.
2. B = 4096 against the pairwise squared distances alone: at most 3 times their time.
3. With ``--trained SIZE ...``, nothing of this, but rank weights on trained embeddings, which have near pairs, against
   the squared distances alone; at 150, 1,024 and 4,096 items at most 5.0, 4.8 and 2.9 times their processor time.

The sides take turns, so that whatever else the machine does falls on both; the ratios are of medians, with those of
the fastest runs and of processor time beside them; on a shared machine processor time with ``--threads 1`` is the
one to trust.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from figures_file import add_json_option, write_figures  # beside this file
from torch import Tensor

from cml.losses.log_ratio import LogRatioLoss, Weights


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--items", type=int, nargs=2, default=(150, 4096), help="of the two batches")
    options.add_argument("--repeat", type=int, default=15)
    options.add_argument("--trained", type=int, nargs="+", default=[], metavar="SIZE", help="numbers of items, for 3.")
    add_json_option(options)
    chosen = options.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    print(f"{chosen.threads} thread(s)")

    if chosen.trained:
        write_figures(chosen.json, {str(items): on_trained(items, chosen.repeat) for items in chosen.trained})
        return
    few, many = chosen.items
    embeddings, label_distances = batch(few)
    first, second = torch.triu_indices(few - 1, few - 1, 1)
    enumerated = measure(
        {
            "enumerated by selection": (lambda: selected(embeddings, label_distances), 1),
            "enumerated anchor by anchor": (lambda: by_anchor(embeddings, label_distances, first, second), 1),
            "enumerated with masks": (lambda: masked_cube(embeddings, label_distances), 1),
            "enumerated without masks": (lambda: cube(embeddings, label_distances), 1),
            "enumerated by index": (lambda: by_index(embeddings, label_distances, first, second), 1),
            "log-ratio, uniform": (closed(embeddings, label_distances, "uniform"), 10),
            "log-ratio, rank": (closed(embeddings, label_distances, "rank"), 10),
        },
        embeddings,
        chosen.repeat,
    )
    embeddings_of_many, label_distances_of_many = batch(many)
    pairwise = measure(
        {
            "squared distances alone": (lambda: squared_distances(embeddings_of_many).sum(), 1),
            "log-ratio, uniform": (closed(embeddings_of_many, label_distances_of_many, "uniform"), 1),
            "log-ratio, rank": (closed(embeddings_of_many, label_distances_of_many, "rank"), 1),
        },
        embeddings_of_many,
        chosen.repeat,
    )
    report(f"B={many}, ms", pairwise)
    report(f"B={few}, ms", enumerated)
    over_distances, over_ours = {}, dict[str, dict[str, dict[str, float]]]()
    for weights in ("rank", "uniform"):
        name = f"log-ratio, {weights}"
        cost = ratios(pairwise[name], pairwise["squared distances alone"])
        over_distances[weights] = cost
        print(f"B={many} {weights}, time over the distances alone: {ratio_text(cost)}; bar 3")
    for weights in ("rank", "uniform"):
        for way in ("without masks", "by index", "with masks", "anchor by anchor", "by selection"):
            gain = ratios(enumerated[f"enumerated {way}"], enumerated[f"log-ratio, {weights}"])
            over_ours.setdefault(way, {})[weights] = gain
            print(f"B={few} {weights}, enumerated {way} over ours: {ratio_text(gain)}; bar 100")
    write_figures(chosen.json, {"items": chosen.items, "over_distances": over_distances, "enumerated": over_ours})


def on_trained(items: int, repeat: int) -> dict[str, float]:
    """The times of rank weights on trained embeddings over the distances alone."""
    embeddings, label_distances = batch(items)
    loss = closed(embeddings, label_distances, "rank")
    optimizer = torch.optim.Adam([embeddings], lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        torch.autograd.backward(loss())
        optimizer.step()
    runs = max(1, 4000 // items)
    times = measure(
        {"distances": (lambda: squared_distances(embeddings).sum(), runs), "log-ratio, rank": (loss, runs)},
        embeddings,
        repeat,
    )
    report(f"B={items}, trained, ms", times)
    cost = ratios(times["log-ratio, rank"], times["distances"])
    print(f"B={items} rank, trained, time over the distances alone: {ratio_text(cost)}", flush=True)
    return cost


def ratios(a: tuple[float, ...], b: tuple[float, ...]) -> dict[str, float]:
    return {name: x / y for name, x, y in zip(("median", "fastest", "processor"), a, b, strict=True)}


def ratio_text(values: dict[str, float]) -> str:
    return f"{values['median']:.2f} (fastest {values['fastest']:.2f}, processor {values['processor']:.2f})"


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


def selected(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    logs = (squared_distances(embeddings).clamp_min(0) + 1e-6).log()
    label_logs = label_distances.log()  # the diagonal is -inf: never selected
    nearer = label_distances[:, :, None] < label_distances[:, None, :]  # (A, B, B)
    own = torch.eye(len(embeddings), dtype=torch.bool)
    nearer &= ~(own[:, :, None] | own[:, None, :])
    ratios = (logs[:, :, None] - logs[:, None, :])[nearer]
    label_ratios = (label_logs[:, :, None] - label_logs[:, None, :])[nearer]
    return (ratios - label_ratios).square().mean()


def by_anchor(embeddings: Tensor, label_distances: Tensor, first: Tensor, second: Tensor) -> Tensor:
    total = embeddings.new_zeros(())
    for anchor in range(len(embeddings)):
        others = torch.arange(len(embeddings)) != anchor
        logs = ((embeddings[others] - embeddings[anchor]).square().sum(dim=1) + 1e-6).log()
        residual = logs - label_distances[anchor, others].log()
        total = total + (residual[first] - residual[second]).square().mean()
    return total / len(embeddings)


def masked_cube(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    used = label_distances.isfinite() & (label_distances > 0)
    used.fill_diagonal_(False)
    logs = (squared_distances(embeddings).clamp_min(0) + 1e-6).log()
    label_logs = label_distances.where(used, 1).log()
    ratios = logs[:, :, None] - logs[:, None, :]  # (A, B, B)
    label_ratios = label_logs[:, :, None] - label_logs[:, None, :]
    pairs = used[:, :, None] & used[:, None, :] & torch.ones_like(used).triu(1)
    of_anchor = ((ratios - label_ratios).square() * pairs).sum(dim=(1, 2)) / pairs.sum(dim=(1, 2))
    return of_anchor.mean()


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
    loss = LogRatioLoss(label_exponent=1, floor_quantile=0, weights=weights, normalize=False)
    return lambda: loss(embeddings, label_distances)


def measure(
    sides: dict[str, tuple[Callable[[], Tensor], int]], embeddings: Tensor, repeat: int
) -> dict[str, tuple[float, ...]]:
    """Median, fastest and median processor milliseconds, forward and backward; a side's number: its runs a turn."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    processor: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(repeat + 1):
        for name, (loss, runs) in sides.items():
            for _ in range(runs):
                embeddings.grad = None
                started, at_work = time.perf_counter(), time.process_time()
                torch.autograd.backward(loss())
                if turn:  # the first turn warms up
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
