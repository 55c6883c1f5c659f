"""How often an audit's count of wrong labels holds, with errors of five kinds and with correct labels.

    python tests/benchmarks/audit_count.py [--sets steering heads elpv ages diabetes] [--draws 20] [--drawn 300]
    [--seeds 2] [--shares 0.05] [--json FILE]

- correct: labels that follow 8 numbers with a spread that is normal, heavy (Student's t with 3 degrees), doubly
  exponential, unequal over the items, or rounded to a few values; ``--drawn`` items a draw. "claimed" is the share of
  draws whose interval begins above 0, of ``--draws`` draws.
- a set: a share of its labels made wrong in one way, of ``--seeds`` seeds. Labels that are one number are exchanged
  with each other, get noise as wide as their spread, become the median, half of themselves, or are mirrored at their
  mean. Other labels become the label whose vector is nearest to the one that is wrong in this way. "as given" are the
  labels without planted errors; nobody knows how many of them are wrong. "covered" is the share of intervals that hold
  the number of planted errors, with those that hardly change their label.

Features are those of audit.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from audit import read_set  # beside this file
from figures_file import add_json_option, write_figures
from scipy.spatial import KDTree
from tune import DRAWN, Items, take

from cml import distances
from cml.checks.audit import audit_labels
from cml.comparing.bench.suite import VERSION
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.retrieval.label_regression import scale_labels

GIVEN = "as given"
KINDS = ("exchanged", "noise", "constant", "halved", "mirrored")
SPREADS = ("normal, .1", "normal, .5", "heavy, .3", "doubly exponential, .3", "unequal, .3", "rounded, .2")
Figures = dict[str, dict[str, float]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="*", default=["steering", "heads", "elpv", "ages", "diabetes"])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--drawn", type=int, default=300, help="correct items a draw")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.05])
    parser.add_argument("--items", type=int, default=1000, help="of a set, at most")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, Figures] = {}
    if given.draws:
        figures["correct"] = {
            name: summarize([count(draw(name, given.drawn, k), k, 0) for k in range(given.draws)]) for name in SPREADS
        }
        show("correct", figures["correct"])
    for name in given.sets:
        try:
            items = DRAWN[name]() if name in DRAWN else read_set(name, VERSION, "efficientnet-lite0", 128)
        except UserError as error:
            print(f"{name:12} {error}", flush=True)
            continue
        items = take(items, given.items)
        rows = {GIVEN: summarize([count(items, 0, 0)])}
        for kind in KINDS:
            for share in given.shares:
                results = [plant_and_count(items, kind, share, seed) for seed in range(given.seeds)]
                rows[f"{kind}, {share:.0%}"] = summarize(results)
        figures[name] = rows
        show(name, rows)
    write_figures(given.json, figures)


def draw(name: str, drawn: int, seed: int) -> Items:
    """Vectors, and correct labels that follow them."""
    kind, _, width = name.partition(", ")
    rng = np.random.default_rng([seed, len(name)])
    rows = rng.normal(size=(drawn, 8)).astype(np.float32)
    noise = {
        "heavy": lambda: rng.standard_t(3, drawn) / np.sqrt(3),
        "doubly exponential": lambda: rng.laplace(size=drawn) / np.sqrt(2),
        "unequal": lambda: rng.normal(size=drawn) * np.exp(rows[:, 1]) / 2,
    }.get(kind, lambda: rng.normal(size=drawn))()
    labels = rows[:, 0] + float(width) * noise
    distance = distances.get("euclidean")
    return Items(rows, distance.encode(np.round(2 * labels) if kind == "rounded" else labels), distance)


def plant_and_count(items: Items, kind: str, share: float, seed: int) -> dict[str, float]:
    """Make a share of the labels wrong, and count."""
    rng = np.random.default_rng([seed, 1])
    wrong = rng.choice(len(items.features), max(2, round(share * len(items.features))), replace=False)
    planted = Items(items.features, plant(items, kind, wrong, rng), items.distance)
    return count(planted, seed, len(wrong))


def plant(items: Items, kind: str, wrong: np.ndarray, rng: np.random.Generator) -> Labels:
    """Make some labels wrong in one way."""
    vectors = items.distance.label_vectors(items.labels)
    if vectors is None:
        vectors = scale_labels(items.distance.pairwise(items.labels, items.labels).astype(np.float32))
    rows = np.asarray(vectors, np.float64)
    theirs = rows[wrong]
    rows[wrong] = {
        "exchanged": np.roll(theirs, 1, axis=0),
        "noise": theirs + rng.normal(size=theirs.shape) * rows.std(axis=0),
        "constant": np.broadcast_to(np.median(rows, axis=0), theirs.shape),
        "halved": theirs / 2,
        "mirrored": 2 * rows.mean(axis=0) - theirs,
    }[kind]
    if rows.shape[1] == 1:
        return items.distance.encode(rows[:, 0])
    source = np.arange(len(rows))
    source[wrong] = np.roll(wrong, 1) if kind == "exchanged" else KDTree(np.asarray(vectors)).query(rows[wrong])[1]
    return items.labels[source]


def count(items: Items, seed: int, planted: int) -> dict[str, float]:
    """What the audit says of labels of which some were made wrong."""
    found = audit_labels(items.features, items.labels, items.distance, seed=seed).wrong
    is_covered = found.low <= planted <= found.high
    return {"planted": planted, **found._asdict(), "covered": float(is_covered), "claimed": float(found.low > 0)}


def summarize(rows: list[dict[str, float]]) -> dict[str, float]:
    """Means over draws."""
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def show(name: str, rows: Figures) -> None:
    """Print a table."""
    print(f"{name}{'':24}" + "".join(f"{key:>10}" for key in next(iter(rows.values()))), flush=True)
    for kind, values in rows.items():
        print(f"  {kind:30}" + "".join(f"{value:10.2f}" for value in values.values()), flush=True)


if __name__ == "__main__":
    main()
