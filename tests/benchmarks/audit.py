"""How well an audit finds planted label errors, beside its parts and cleanlab.

    python tests/benchmarks/audit.py [--sets steering heads elpv ..] [--size 128] [--seeds 5] [--json FILE]

In a share of the training items of a set of the benchmark, in file order, labels are exchanged with each other. A
figure is the area under the ROC curve (1 is perfect, .5 chance) over the errors beyond the lower quartile of label
distances and the items without error; errors within it hardly differ from the spread of labels. "precision" is the
share of these errors among as many of the first items, "planted" the number of exchanged labels, and "estimated wrong"
what the audit thinks of it (audit_count.py measures that estimate). "frozen kNN" is the plain baseline: the median
label distance to the ten nearest by the cosine of centred features. Last comes the mean difference of the two with its
standard error over seeds.

Features are those of a frozen network, of images of ``--size`` pixels; ages, series, diabetes and captions are vectors.
cleanlab, if it is installed, takes labels that are one number, with a ridge regression on 256 principal components.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from sklearn.metrics import roc_auc_score
from tune import DRAWN, Items, take

from cml.checks.audit import audit_labels
from cml.comparing.bench.sets import compute_features, open_set
from cml.comparing.bench.suite import SUITES, VERSION
from cml.distances.label_distance import LabelDistance, listed_distances
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.retrieval.search import nearest_others
from cml.training.linear_map import fit_rotation

KNN = "frozen kNN"
_NEAREST = 10
_LOOKED_AT = 300  # items whose label distances to each other say what the lower quartile is


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sets",
        nargs="+",
        default=["steering", "heads", "elpv", "people", "scenes", "rooms", "captions", "ages", "series", "diabetes"],
    )
    parser.add_argument("--share", type=float, default=0.05, help="of labels that are exchanged")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--items", type=int, default=2000, help="of a set, at most")
    parser.add_argument("--size", type=int, default=128, help="of images, in pixels")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--version", default=VERSION)
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    figures: dict[str, dict[str, list[float]]] = {}
    for name in given.sets:
        try:
            items = DRAWN[name]() if name in DRAWN else read_set(name, given.version, given.backbone, given.size)
        except UserError as error:
            print(f"{name:12} {error}", flush=True)
            continue
        items = take(items, given.items)
        rows = [measure(items, given.share, seed) for seed in range(given.seeds)]
        figures[name] = {key: [row[key] for row in rows] for key in rows[0]}
        print(f"{name}, {len(items.features)} items", flush=True)
        for key, values in figures[name].items():
            print(f"  {key:34} {np.mean(values):8.3f} +- {np.std(values):.3f}", flush=True)
        gains = np.subtract(figures[name]["audit"], figures[name][KNN])
        error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
        print(f"  {'audit over frozen kNN':34} {gains.mean():+8.3f} +- {error:.3f}, standard error", flush=True)
    write_figures(given.json, figures)


def read_set(name: str, version: str, backbone: str, size: int) -> Items:
    """The training and validation items of a set of the benchmark, in the order of their ids: that of the file."""
    data = open_set(name, version)
    weights = "imagenet" if "efficientnet" in backbone else "none"
    config = replace(SUITES[version].heads, backbone=backbone, weights=weights, image_size=(size, size))
    parts = data.train, data.validation
    ids = [item for part in parts for item in part.item_ids]
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__))
    features = np.concatenate([compute_features(config, part) for part in parts])
    arrays = {
        key: np.concatenate([part.labels.arrays[key] for part in parts])[order] for key in data.train.labels.arrays
    }
    return Items(features[order], type(data.train.labels)(arrays), data.distance)


def measure(items: Items, share: float, seed: int) -> dict[str, float]:
    """Plant errors, and look for them."""
    rng, count = np.random.default_rng(seed), len(items.features)
    wrong = rng.choice(count, max(2, round(share * count)), replace=False)
    source = np.arange(count)
    source[wrong] = np.roll(wrong, 1)  # each gets the label of the next
    labels = items.labels[source]
    some = np.sort(rng.permutation(count)[:_LOOKED_AT])
    apart = items.distance.pairwise(items.labels[some], items.labels[some])[np.triu_indices(len(some), 1)]
    least = np.quantile(apart[np.isfinite(apart)], 0.25)
    moved = np.array([items.distance.pairwise(items.labels[[item]], labels[[item]])[0, 0] for item in wrong.tolist()])
    is_error = np.zeros(count, bool)
    is_error[wrong[moved > least]] = True
    is_counted = is_error | ~np.isin(np.arange(count), wrong)
    audit = audit_labels(items.features, labels, items.distance, seed=seed)
    scores = {"audit": audit.scores, KNN: judge_by_neighbors(items.features, labels, items.distance), **audit.parts}
    vectors = items.distance.label_vectors(labels)
    if importlib.util.find_spec("cleanlab") is not None and vectors is not None and vectors.shape[1] == 1:
        scores["cleanlab"] = judge_by_cleanlab(items, np.asarray(vectors[:, 0], np.float64))
    areas = {name: float(roc_auc_score(is_error[is_counted], value[is_counted])) for name, value in scores.items()}
    errors = int(is_error.sum())
    first = {
        f"precision, {name}": float(is_error[np.argsort(-scores[name])[:errors]].mean()) for name in ("audit", KNN)
    }
    weights = {f"weight, {name}": weight for name, weight in audit.weights.items()}
    return {**areas, **first, **weights, "planted": float(len(wrong)), "estimated wrong": audit.wrong.estimate}


def judge_by_neighbors(features: np.ndarray, labels: Labels, distance: LabelDistance) -> np.ndarray:
    """The median label distance of each item to its ten nearest by the cosine of centred features."""
    centred = features - features.mean(axis=0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    nearest = nearest_others(unit.astype(np.float32), np.arange(len(unit)), _NEAREST)[1]
    return np.median(np.nan_to_num(listed_distances(distance, labels, labels, nearest)), axis=1)


def judge_by_cleanlab(items: Items, values: np.ndarray) -> np.ndarray:
    """How likely cleanlab takes each label to be wrong."""
    from cleanlab.regression.learn import CleanLearning
    from sklearn.linear_model import Ridge

    rows = fit_rotation(items.features, standardize=False).rotate(items.features)
    found = CleanLearning(Ridge(1.0), n_boot=2, verbose=False, seed=0).find_label_issues(rows, values)
    return 1 - np.asarray(found["label_quality"])


if __name__ == "__main__":
    main()
