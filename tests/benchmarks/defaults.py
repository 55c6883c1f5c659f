"""Every loss over label distances by its default settings, on sets on which no default was chosen and on others.

    python tests/benchmarks/defaults.py [--sets earth melting ..] [--seeds 2] [--losses ..] [--start random]
    [--json FILE]

A figure is the mean score@10 of linear heads of 64 dimensions from the default start, 300 batches of 64 items: 1 has
the nearest labels first, 0 is chance. Sets of the benchmark are features of its frozen backbone, and the learning rate
is the default of those, 1e-3; others are standardised vectors, and the rate is the default of those, 3e-3. The sets:

- those of the benchmark; ``steering`` needs CML_TUB. Its digits ask for classes that training has not seen;
- clusters-C, curve (ages in whole years) and captions of ``equal_labels.py``; captions needs CML_COCO_CAPTIONS;
- diabetes, wine, series, melting, structure of ``tables.py``; melting and structure need the extra ``molecules``;
- pixels: scikit-learn's digits, 64 pixels, all classes in training; cancer: scikit-learn's tumours, two classes.

Ranks are means over the sets on which no loss's default was chosen, ``UNSEEN``: a loss that fails on a set is last
there. The learning rate of vectors was chosen on diabetes, wine and series, with log-ratio, so that these are not among
them. ``docs/results/losses.md`` says on which sets the defaults of each loss were chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from equal_labels import Vectors, head_config, open_vectors, score, score_losses, split  # beside this file
from figures_file import add_json_option, write_figures
from scipy.stats import rankdata
from sklearn.datasets import load_breast_cancer, load_digits
from tables import TABLES

from cml import distances
from cml.bench.suite import LATEST

LOSSES = (
    "log-ratio",
    "h-ap",
    "lambda-ndcg",
    "cosent",
    "sum",
    "soft-target",
    "kernel-supcon",
    "dense-triplet",
    "binary-triplet",
    "rank-n-contrast",
    "rkd-distance",
    "relaxed-contrastive",
    "graded-contrastive",
)
# as the suite 2026.1 has it: equal labels count as the floor, nothing bounds the exponent, and heads start at random;
# it is not ranked
FORMER = "log-ratio(zero_factor=1.0, largest_exponent=1000)"
_DRAWN = ("clusters-10", "clusters-20", "clusters-55", "clusters-100", "curve")
_OF_RATE = ("diabetes", "wine", "series")
_ALL = ("people", "rooms", "scenes", "heads", "digits", "elpv", "earth", *_DRAWN, "captions", "pixels", *_OF_RATE)
UNSEEN = ("earth", "melting", "structure", "cancer")
_ITEMS = 1600  # of a set, at most


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(dict.fromkeys((*_ALL, *UNSEEN))))
    parser.add_argument("--losses", nargs="+", default=list(LOSSES))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--start", default="auto", choices=["auto", "random", "pca", "standardised"], help="of heads")
    parser.add_argument("--items", type=int, default=_ITEMS, help="training items of a set, at most")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, dict[str, list[float]]] = {}
    for name in given.sets:
        vectors = open_any(name, given.items)
        rate = head_config(name, given.steps).learning_rate
        scores = score_losses(vectors, given.losses, [rate], given.seeds, given.steps, start=given.start)
        scores |= score_losses(vectors, [FORMER], [rate], given.seeds, given.steps)
        frozen = score(vectors, vectors.queries, vectors.gallery)
        figures[name] = {"frozen": [frozen]} | {
            loss: values for loss, values in scores.items() if np.all(np.isfinite(values))
        }
        means = "  ".join(f"{loss} {np.mean(values):.3f}" for loss, values in figures[name].items())
        print(f"{name:12} {means}", flush=True)
    unseen = [name for name in UNSEEN if name in figures]
    if unseen:
        for loss, rank in sorted(mean_ranks(figures, unseen, given.losses).items(), key=lambda entry: entry[1]):
            print(f"  {loss:24} mean rank {rank:.2f} on {len(unseen)} sets")
    write_figures(given.json, figures)


def open_any(name: str, items: int) -> Vectors:
    """Open a set by its name.

    Args:
        name: See the description of the script.
        items: The most training items.

    Returns:
        Its vectors and label distances.
    """
    if name in TABLES and name != "captions":
        table = TABLES[name]()
        return deal(table.rows, table.distance, table.labels.tolist(), items)
    if name == "pixels":
        rows, classes = load_digits(return_X_y=True)
        return deal(rows, "classes", [str(number) for number in classes], items)
    if name == "cancer":
        rows, classes = load_breast_cancer(return_X_y=True)
        return deal(rows, "classes", [str(number) for number in classes], items)
    return open_vectors("ages" if name == "curve" else name, LATEST, items)


def deal(rows: np.ndarray, distance: str, labels: Sequence[object], items: int) -> Vectors:
    """Shuffle the rows of a table, and split them; a third at most is for queries and gallery."""
    order = np.random.default_rng(0).permutation(len(rows))
    fitted = distances.as_label_distance(distance).fit(labels)
    return split(rows[order], fitted, [labels[row] for row in order], min(items, 2 * len(rows) // 3))


def mean_ranks(
    figures: Mapping[str, Mapping[str, Sequence[float]]], sets: Sequence[str], losses: Sequence[str]
) -> dict[str, float]:
    """Rank losses on each set, 1 the best, and take the mean over sets.

    Args:
        figures: Scores of each seed by set and loss.
        sets: The sets.
        losses: The losses.

    Returns:
        The mean rank of each loss; one that has no score on a set is last there.
    """
    scores = [[np.mean(figures[name].get(loss, [-np.inf])) for loss in losses] for name in sets]
    return dict(zip(losses, rankdata(-np.array(scores), axis=1).mean(axis=0).tolist(), strict=True))


if __name__ == "__main__":
    main()
