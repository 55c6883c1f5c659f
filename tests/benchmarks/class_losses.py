"""The losses of classes side by side on new classes, with correct and with wrong class labels, and over steps.

    python tests/benchmarks/class_losses.py [--losses NAME ...] [--seeds 5] [--shares 0 0.1 0.3 0.5]
    [--steps 25 100] [--json FILE]

Digits 0 to 4 of scikit-learn train, digits 5 to 9 are searched among each other. A small network learns from the 64
pixels: mlp(128), 32 dimensions, batches of 100 with 20 items a class. Each loss has the defaults of its class, and the
learning rate that is best of four on other seeds: trained on the digits 0 to 2, measured on 3 and 4 by MAP@R. Then each
is trained with ``--seeds`` seeds, a share of its training labels replaced by another class, and with fewer steps. The
row "pixels" is the standardised pixels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from figures_file import add_json_option, write_figures
from sklearn.datasets import load_digits

import cml
from cml.array_types import Bools, Float32, Int64
from cml.losses.loss_table import loss_rows
from cml.retrieval.metrics import compute_map_at_r
from cml.retrieval.search import nearest_embeddings

RATES = (3e-4, 1e-3, 3e-3, 1e-2)
MOST = 200  # steps
_TUNING_SEEDS = (101,)
_NEEDS_NAMES = "language-guidance"  # it compares the names of classes
_METRICS = ("recall@1", "map@r")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    known = [row.name for row in loss_rows() if row.labels == "classes" and row.name != _NEEDS_NAMES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--losses", nargs="+", default=[*known, "log-ratio", "dense-triplet"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--shares", type=float, nargs="+", default=[0, 0.1, 0.3, 0.5], help="of wrong classes")
    parser.add_argument("--steps", type=int, nargs="*", default=[25, 100], help=f"beside {MOST}")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    pixels, digits = load_digits(return_X_y=True)
    rows = pixels.astype(np.float32)
    is_known = digits < 5
    spread = rows[is_known].std(axis=0)
    scaled = (rows - rows[is_known].mean(axis=0)) / np.where(spread > 0, spread, 1)
    frozen = {name: [value] * given.seeds for name, value in measure(scaled[~is_known], digits[~is_known]).items()}
    figures = {"pixels": {"0": frozen}}
    print("pixels", *(f"{name} {values[0]:.3f}" for name, values in frozen.items()), flush=True)
    for loss in given.losses:
        rate = choose_rate(loss, rows, digits)
        cells = figures[loss] = {}
        for share in given.shares:
            cells[f"{share:g}"] = run_seeds(loss, rate, rows, digits, is_known, given.seeds, share, MOST)
        for steps in given.steps:
            cells[f"{steps} steps"] = run_seeds(loss, rate, rows, digits, is_known, given.seeds, 0, steps)
        print(
            f"{loss:28} rate {rate:g}",
            *(f"| {cell}: {fmean(of['recall@1']):.3f} {fmean(of['map@r']):.3f}" for cell, of in cells.items()),
            flush=True,
        )
    write_figures(given.json, figures)


def choose_rate(loss: str, rows: Float32, digits: Int64) -> float:
    """The learning rate that is best on digits that nothing else is measured on."""
    is_seen = digits <= 4
    some, numbers = rows[is_seen], digits[is_seen]
    is_known = numbers <= 2

    def judge(rate: float) -> float:
        found = [
            measure(
                train(loss, rate, some[is_known], numbers[is_known], seed, MOST).embed(some[~is_known]),
                numbers[~is_known],
            )
            for seed in _TUNING_SEEDS
        ]
        return fmean(one["map@r"] for one in found)

    return max(RATES, key=judge)


def run_seeds(
    loss: str, rate: float, rows: Float32, digits: Int64, is_known: Bools, seeds: int, share: float, steps: int
) -> dict[str, list[float]]:
    """The figures of each seed."""
    found: dict[str, list[float]] = {**{name: [] for name in _METRICS}, "seconds": []}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        labels = digits[is_known].copy()
        wrong = rng.random(len(labels)) < share
        labels[wrong] = (labels[wrong] + rng.integers(1, 5, int(wrong.sum()))) % 5
        start = time.process_time()
        model = train(loss, rate, rows[is_known], labels, seed, steps)
        found["seconds"].append(time.process_time() - start)
        for name, value in measure(model.embed(rows[~is_known]), digits[~is_known]).items():
            found[name].append(value)
    return found


def train(loss: str, rate: float, rows: Float32, labels: Int64, seed: int, steps: int) -> cml.Model:
    """A small network of one hidden layer."""
    return cml.fit(
        rows,
        labels,
        label_distance="classes",
        loss=loss,
        backbone="mlp(128)",
        dimension=32,
        sampler="per-class(batch_size=100, per_class=20)",
        learning_rate=rate,
        steps=steps,
        seed=seed,
        quiet=True,
    )


def measure(embeddings: Float32, digits: Int64) -> dict[str, float]:
    """Recall@1 and MAP@R of items that are searched among each other."""
    _, order = nearest_embeddings(embeddings, embeddings, len(embeddings))
    others = order[order != np.arange(len(order))[:, None]].reshape(len(order), -1)
    is_other = (digits[others] != digits[:, None]).astype(np.float32)  # label distances of classes
    relevant = (is_other == 0).sum(axis=1).astype(np.float64)
    return {
        "recall@1": float((is_other[:, 0] == 0).mean()),
        "map@r": float(compute_map_at_r(is_other, relevant).mean()),
    }


if __name__ == "__main__":
    main()
