"""What ``tune`` chooses, beside every single choice: on tables, drawn vectors, digits and features of frozen networks.

    python tests/benchmarks/tune.py [--sets diabetes wine ..] [--seeds 5] [--first-seed 0] [--items 1000] [--shuffle]
    [--json FILE] [--fits FOLDER]

Each seed holds out 30 % of the items, one block of their order if neighbours in it are alike, as in films; tune sees
the others alone. A figure is the score of the held-out items, each of which looks for the ten nearest among the others:
1 has the nearest labels first, 0 is chance. In films, others within 2 % of the order are not looked at: they are almost
the same item by any features. Two more figures include them. Every choice is fitted to the same items: "frozen" is the
best form of the features by the splits, a head is stopped where the splits say, and "in hindsight" is the best of all
single choices on the held-out items themselves, which nobody can know. A paired t-test over seeds compares tune with
"frozen".

- diabetes, wine: tables of scikit-learn; series: drawn oscillations and their frequency;
- ages: drawn vectors in which ages in whole years lie along a weak direction;
- clusters-20, clusters-100: drawn classes; pixels: scikit-learn's digits, their 64 pixels and their class;
- shuffled: vectors and labels that have nothing to do with each other, where the features have to be kept;
- captions: COCO's captions in CML_DATA, each image by the mean vector of its sentences, their distance by words;
- people, heads, rooms, scenes, digits, elpv, earth, steering: sets of the benchmark, by features of a frozen network;
  steering needs CML_TUB.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from scipy.stats import rankdata, ttest_rel
from sklearn.datasets import load_diabetes, load_digits, load_wine

from cml import distances
from cml.array_types import Float32, Int64
from cml.comparing.bench.sets import compute_features, open_set
from cml.comparing.bench.suite import SETS, SUITES, VERSION
from cml.distances import as_label_distance
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.retrieval.near_in_order import MUCH, near_in_order, share_of_near_neighbors
from cml.tuning.candidates import fit_candidates, frozen_maps
from cml.tuning.scores import FirstItemsScore, fit_once
from cml.tuning.splits import make_splits
from cml.tuning.tune import keep_best_steps, tune
from cml.word_vectors.sentence_model import PACKAGED, sentence_vectors

_HELD_OUT = 0.3
_WITH_NEAR = ", neighbours in the order included"  # of films
# "frozen" is one of the forms of the features
_NOT_RANKED = (
    "frozen",
    f"frozen{_WITH_NEAR}",
    f"tune{_WITH_NEAR}",
    "in hindsight",
    "features kept",
    "gain in standard errors",
    "seconds",
)


class Items(NamedTuple):
    """Features (N, F), their N encoded labels, and the label distance that encoded them."""

    features: Float32
    labels: Labels
    distance: LabelDistance


def mean_ranks(
    figures: Mapping[str, Mapping[str, Sequence[float]]], sets: Sequence[str], ways: Sequence[str]
) -> dict[str, float]:
    """Rank ways on each set, 1 the best, and take the mean over sets; one that has no score on a set is last there."""
    scores = [[np.mean(figures[name].get(way, [-np.inf])) for way in ways] for name in sets]
    return dict(zip(ways, rankdata(-np.array(scores), axis=1).mean(axis=0).tolist(), strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=[*DRAWN, "people", "heads", "rooms", "digits"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--items", type=int, default=1000, help="of a set, at most")
    parser.add_argument("--shuffle", action="store_true", help="the labels, anew for each seed")
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--version", default=VERSION)
    parser.add_argument("--fits", type=Path, help="folder that keeps fits, so that the same command continues")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, dict[str, list[float]]] = {}
    for name in given.sets:
        try:
            whole = read_items(name, given.version, given.backbone)
        except UserError as error:
            print(f"{name:12} {error}", flush=True)
            continue
        some = take(whole, given.items)
        rows = []
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            items = shuffle_labels(some, seed) if given.shuffle else some
            rows.append(measure(items, given.dimension, seed, locate_fits(given, name, seed)))
        names = [key for key in rows[0] if all(key in row for row in rows)]
        figures[name] = {key: [row[key] for row in rows] for key in names}
        print(name, flush=True)
        for key, values in figures[name].items():
            print(f"  {key:38} {np.mean(values):7.3f} +- {np.std(values):.3f}", flush=True)
        print(f"  {describe_difference(figures[name]['tune'], figures[name]['frozen'])}", flush=True)
    print_ranks(figures)
    write_figures(given.json, figures)


def describe_difference(ours: Sequence[float], others: Sequence[float]) -> str:
    """Say by how much tuned models score more than the frozen features, with a paired t-test over seeds.

    Args:
        ours: The score of each seed.
        others: The scores of the frozen features.

    Returns:
        The mean difference, and the probability of one as large if there were none.
    """
    differences = np.subtract(ours, others)
    text = f"tune over frozen {differences.mean():+.3f}"
    if len(differences) < 2 or not differences.any():
        return text
    return f"{text}, p = {ttest_rel(ours, others).pvalue:.2g}"


def print_ranks(figures: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Print the mean rank over sets of tuning and of every choice that is the same for all of them, 1 the best."""
    rows = [row for row in next(iter(figures.values()), {}) if row not in _NOT_RANKED]
    if len(figures) > 1:
        for row, rank in sorted(mean_ranks(figures, list(figures), rows).items(), key=lambda entry: entry[1]):
            print(f"  {row:38} mean rank {rank:.1f} on {len(figures)} sets")


def locate_fits(given: argparse.Namespace, name: str, seed: int) -> Path | None:
    """The folder of the fits of one set and seed, as large as asked for."""
    shuffled = "-shuffled" if given.shuffle else ""
    return given.fits and given.fits / f"{name}{shuffled}-{given.items}-{given.dimension}-{seed}"


def measure(items: Items, dimension: int, seed: int, fits: Path | None = None) -> dict[str, float]:
    """Tune on a part of the items, and score every choice on the others.

    Args:
        items: N items.
        dimension: D of embeddings, at most.
        seed: Of the split and of tuning.
        fits: Folder that keeps fits; None for none.

    Returns:
        Scores by name; how often the features are kept, the gain in standard errors, and the process time in seconds.
    """
    held_out, trained = hold_out(items.features, seed)
    some = items.features[trained], items.labels[trained], items.distance
    apart = items.distance.pairwise(items.labels[held_out], items.labels[held_out])
    near = near_in_order(held_out, len(items.features)) if is_film(items.features) else None
    score = FirstItemsScore(apart, near)
    if fits:
        fits.mkdir(parents=True, exist_ok=True)
    before = time.process_time()
    embedding, tuning = tune(*some, dimension, seed=seed, folder=fits)
    seconds = time.process_time() - before
    # the last fit of tune, which it does not make where it keeps the features
    splits, _ = make_splits(some[0], seed=seed)
    fitted = fit_once(fits, "all", lambda: fit_candidates(*some, dimension, seed=seed + len(splits)))
    candidates = {**frozen_maps(some[0]), **fitted}
    single = {name: score(candidates[name].embed(items.features[held_out])) for name in tuning.scores}
    of_heads = {name.rpartition(", ")[0]: value for name, value in single.items() if name.endswith(" steps")}
    others = {name: value for name, value in single.items() if not name.endswith(" steps")}
    with_near = {}
    if near is not None:
        all_others = FirstItemsScore(apart)
        with_near = {
            f"frozen{_WITH_NEAR}": all_others(candidates[tuning.frozen].embed(items.features[held_out])),
            f"tune{_WITH_NEAR}": all_others(embedding.embed(items.features[held_out])),
        }
    return {
        "frozen": single[tuning.frozen],
        **others,
        **of_heads,
        **with_near,
        "tune": score(embedding.embed(items.features[held_out])),
        "in hindsight": max(keep_best_steps(single).values()),
        "features kept": float(tuning.keeps_features),
        "gain in standard errors": tuning.gain / max(tuning.error, 1e-9),
        "seconds": seconds,
    }


def hold_out(features: Float32, seed: int) -> tuple[Int64, Int64]:
    """Hold out 30 % of the items: one block of their order where neighbours in it are alike, else random ones.

    Args:
        features: (N, F) in the order of the items.
        seed: Of the draw, or of where the block begins.

    Returns:
        The items held out, and the others.
    """
    rng, count = np.random.default_rng(seed), len(features)
    order = np.roll(np.arange(count), rng.integers(count)) if is_film(features) else rng.permutation(count)
    held_out, trained = np.split(order, [round(_HELD_OUT * count)])
    return np.sort(held_out), np.sort(trained)


def is_film(features: Float32) -> bool:
    """Whether neighbours in the order of the items (N, F) are alike."""
    return share_of_near_neighbors(features) >= MUCH


def take(items: Items, most: int) -> Items:
    """The first items."""
    return Items(items.features[:most], items.labels[np.arange(min(most, len(items.features)))], items.distance)


def shuffle_labels(items: Items, seed: int) -> Items:
    """Labels that have nothing to do with the items."""
    order = np.random.default_rng([seed, 1]).permutation(len(items.features))
    return items._replace(labels=items.labels[order])


def encode(features: Any, labels: Any, distance: str = "euclidean") -> Items:  # noqa: ANN401 - arrays
    """Encode labels as the label distance takes them."""
    given = [str(label) for label in labels] if distance == "classes" else [float(label) for label in labels]
    fitted = as_label_distance(distance).fit(given)
    return Items(np.asarray(features, np.float32), fitted.encode(given), fitted)


def read_table(load: Callable[[], Any], column: int | None = None) -> Items:
    """A table of scikit-learn, whose label may be one of its columns."""
    table = load()
    if column is None:
        return encode(table.data, table.target)
    return encode(np.delete(table.data, column, axis=1), table.data[:, column])


def draw_series() -> Items:
    """Oscillations of random phase and height with noise, and their frequency."""
    rng = np.random.default_rng(7)
    frequency, phase = rng.uniform(1, 6, 1000), rng.uniform(0, 2 * np.pi, 1000)
    waves = np.sin(2 * np.pi * frequency[:, None] * np.linspace(0, 1, 64) + phase[:, None])
    return encode(rng.uniform(0.5, 2, (1000, 1)) * waves + rng.normal(0, 0.3, waves.shape), frequency)


def draw_ages() -> Items:
    """Vectors in which an age in whole years lies along one direction, among stronger ones."""
    rng = np.random.default_rng(4)
    ages = rng.uniform(18, 80, 1000).round()
    other = 2 * rng.normal(size=(1000, 20)) @ rng.normal(size=(20, 100))
    rows = np.outer((ages - 50) / 20, rng.normal(size=100)) + other + rng.normal(size=(1000, 100))
    return encode(rows, ages)


def draw_clusters(classes: int) -> Items:
    """Clusters whose centres differ in directions of little spread."""
    rng = np.random.default_rng(3)
    centres, numbers = rng.normal(size=(classes, 64)), rng.integers(0, classes, 1500)
    return encode(0.5 * centres[numbers] + rng.normal(size=(1500, 64)) * np.linspace(0.2, 2, 64), numbers, "classes")


def draw_unrelated() -> Items:
    """Vectors, and labels that have nothing to do with them."""
    rng = np.random.default_rng(5)
    return encode(rng.normal(size=(800, 40)) @ rng.normal(size=(40, 200)), rng.normal(size=800))


def read_captions() -> Items:
    """The captions of 1,000 images of COCO: their mean sentence vector, and their distance by words."""
    base = Path(os.environ.get("CML_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
    path = base / "coco_captions" / "captions_val2017_4000.json"
    if not path.is_file():
        raise UserError(f"{path} is missing: set CML_DATA to the folder of coco_captions.")
    texts: dict[int, list[str]] = {}
    for caption in json.loads(path.read_text("utf-8"))["annotations"]:
        texts.setdefault(caption["image_id"], []).append(caption["caption"])
    images = list(texts.values())[:1000]
    vectors = sentence_vectors(PACKAGED, [caption for image in images for caption in image])
    parts = np.split(vectors, np.cumsum([len(image) for image in images])[:-1])
    fitted = distances.get("captions", vectors="glove-6b-50d").fit(images)
    return Items(np.stack([part.mean(axis=0) for part in parts]), fitted.encode(images), fitted)


def read_items(name: str, version: str = VERSION, backbone: str = "efficientnet-lite0") -> Items:
    """A set that is drawn or read here, or the training items of one of the benchmark by features of a network."""
    if name in DRAWN:
        return DRAWN[name]()
    if name not in SETS:
        raise UserError(f"There is no set {name!r}: it is one of {', '.join([*DRAWN, *SETS])}.")
    rules = SUITES[version].heads
    config = replace(rules, backbone=backbone, weights="imagenet" if "efficientnet" in backbone else "none")
    data = open_set(name, version)
    order = np.argsort(data.train.item_ids)  # that of the files, which the benchmark has shuffled
    return Items(compute_features(config, data.train)[order], data.train.labels[order], data.distance)


DRAWN: dict[str, Callable[[], Items]] = {
    "diabetes": lambda: read_table(load_diabetes),
    "wine": lambda: read_table(load_wine, 0),
    "series": draw_series,
    "ages": draw_ages,
    "pixels": lambda: encode(*load_digits(return_X_y=True), "classes"),
    "clusters-20": lambda: draw_clusters(20),
    "clusters-100": lambda: draw_clusters(100),
    "shuffled": draw_unrelated,
    "captions": read_captions,
}

if __name__ == "__main__":
    main()
