"""Tables of guides: what tune reaches, what an audit finds, sequences as labels, and the start of heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from scipy.stats import rankdata

from making.records import Cells
from making.result_tables import IMAGES, load, load_board

Scores = Mapping[str, Sequence[float]]  # of a set: the name of a choice to the score of each seed

TUNE = "tune_choices"  # the record of tests/benchmarks/tune.py
TUNED = {
    "diabetes": "diabetes (table)",
    "wine": "wine (table of 178 items)",
    "ages": "ages (drawn vectors)",
    "series": "series (drawn oscillations)",
    "digits": "digits (frozen features, 10 classes)",
    "heads": "heads (frozen features, rotations)",
    "people": "people (frozen features, poses)",
    "rooms": "rooms (frozen features, layouts)",
    "elpv": "elpv (frozen features, defects)",
    "steering": "steering (frozen features, a film)",
    "captions": "captions (sentence vectors, word mover's distance)",
}
NEAR = ", neighbours in the order included"
NOT_CHOICES = ("frozen", f"frozen{NEAR}", f"tune{NEAR}", "in hindsight", "features kept", "gain in standard errors")
AUDIT = "audit_found"  # the record of tests/benchmarks/audit.py
AUDITED = {
    "steering": "steering angles",
    "heads": "drawn heads",
    "elpv": "solar cells (elpv)",
    "ages": "drawn ages",
    "rooms": "drawn rooms",
    "people": "poses of drawn people",
    "diabetes": "diabetes",
}
KNN = "frozen kNN"
SEQUENCES = {"exact": "DTW", "frozen statistics": "statistics", "frozen curves": "curves of 24 steps"}
SEQUENCE_SETS = {
    "GunPoint": "GunPoint: 50 and 150 movements of a hand",
    "PickupGestureWiimoteZ": "PickupGestureWiimoteZ: 50 and 50 gestures",
    "JapaneseVowels": "JapaneseVowels: 270 and 370 utterances",
}
STARTED = {
    "captions": "COCO captions, sentence vectors",
    "clusters-20": "20 drawn classes",
    "clusters-100": "100 drawn classes",
    "rooms": "drawn rooms",
    "scenes": "drawn scenes, captions",
}


def tuned(name: str = "tune") -> Mapping[str, Scores]:
    """Look up the scores of every set: those of "tune", or of "shuffled" labels."""
    found: Mapping[str, Scores] = load(TUNE).values[name]
    return found


def tune_mean(name: str, choice: str = "tune", less: str = "") -> float:
    """Look up a mean score over seeds, of a set or of "all" sets, or by how much it is above another choice."""
    if name == "all":
        return fmean(tune_mean(one, choice, less) for one in tuned())
    scores = tuned()[name]
    return fmean(scores[choice]) - (fmean(scores[less]) if less else 0)


def tune_heads(scores: Scores) -> dict[str, float]:
    """List the mean score of each head over seeds."""
    return {row: fmean(values) for row, values in scores.items() if " from " in row}


def tune_behind(name: str) -> float:
    """How far tune is below the best single head on a set."""
    return max(tune_heads(tuned()[name]).values()) - tune_mean(name)


def tune_ranks() -> dict[str, float]:
    """Rank the choices that are the same for all sets on each of them, 1 the best, and take means over sets."""
    sets = tuned()
    choices = [row for row in next(iter(sets.values())) if row not in (*NOT_CHOICES, "seconds")]
    scores = [[fmean(rows.get(row, [-np.inf])) for row in choices] for rows in sets.values()]
    return dict(zip(choices, rankdata(-np.array(scores), axis=1).mean(axis=0).tolist(), strict=True))


def tune_on_digits(choice: str = "tune") -> float:
    """Look up the published score of a method on the digits of the benchmark, whose test classes are new."""
    return fmean(load_board(IMAGES).results[choice]["digits"].scores["score"])


def tune_table() -> Cells:
    """Make the table of what tune scores beside the frozen features and the best choices: header and rows."""
    rows, means = [], []
    for name, title in TUNED.items():
        scores = tuned()[name]
        best = max(tune_heads(scores).values())
        numbers = [fmean(scores["frozen"]), best, fmean(scores["in hindsight"]), fmean(scores["tune"])]
        means.append(numbers)
        gains = np.subtract(scores["tune"], scores["frozen"])
        gain = f"{gains.mean():+.3f} ± {gains.std(ddof=1):.3f}" if gains.any() else "kept"
        cells = [f"{number:.3f}" for number in numbers]
        rows.append([title, *cells[:3], f"{cells[3]} ± {stdev(scores['tune']):.3f}", gain])
    rows.append(["mean", *(f"{value:.3f}" for value in np.mean(means, axis=0)), ""])
    return [["set", "frozen", "one head", "in hindsight", "`tune`", "gain"], *rows]


def audit_figures(name: str) -> Scores:
    """Look up what an audit of a set finds: the values of each seed, by score."""
    found: Scores = next(sets[name] for sets in load(AUDIT).values.values() if name in sets)
    return found


def audit_gain(name: str, part: str = "mean") -> float:
    """By how much the AUROC of the audit is above that of frozen kNN: the mean over draws, or its standard "error"."""
    gains = np.subtract(audit_figures(name)["audit"], audit_figures(name)[KNN])
    return float(gains.mean() if part == "mean" else gains.std(ddof=1) / np.sqrt(len(gains)))


def audit_table() -> Cells:
    """Make the table of AUROC and precision of audits: header and rows."""
    parts = ("frozen neighbours", "trained neighbours", "ridge residual")
    rows = []
    for name, title in AUDITED.items():
        values = {key: fmean(found) for key, found in audit_figures(name).items()}
        areas = [values.get(key) for key in ("audit", KNN, *parts, "cleanlab")]
        precisions = [values["precision, audit"], values[f"precision, {KNN}"]]
        rows.append([title, *("" if area is None else f"{area:.3f}" for area in areas)])
        rows[-1] += [f"{value:.2f}" for value in precisions]
    header = ["set", "AUROC: audit", KNN, *parts, "cleanlab", "precision: audit", KNN]
    return [header, *rows]


def sequence_figures() -> Mapping[str, Mapping[str, float]]:
    """Look up the figures of searches in sets of sequences, by "set, what is searched by"."""
    found: Mapping[str, Mapping[str, float]] = load("sequence_sets").values["sequence_sets"]
    return found


def sequence_table() -> Cells:
    """Make the table of searches in sets of sequences: header and rows."""
    rows = []
    for name, title in SEQUENCE_SETS.items():
        for row, by in {**SEQUENCES, "embedding": "embedding"}.items():
            values = sequence_figures()[f"{name}, {row}"]
            again = "" if row == "exact" else f" ({values['recall@10, 30 re-ranked']:.3f})"
            cells = [f"{values['accuracy']:.3f}", f"{values['recall@10']:.3f}{again}", f"{values['ms']:.1f}"]
            rows.append([title if row == "exact" else "", by, *cells])
    return [["set", "searched by", "accuracy", "recall@10", "ms a query"], *rows]


def sequence_accuracy_gap() -> float:
    """The largest difference between the accuracy of the embedding and that of DTW."""
    found = sequence_figures()
    return max(
        abs(found[f"{name}, embedding"]["accuracy"] - found[f"{name}, exact"]["accuracy"]) for name in SEQUENCE_SETS
    )


def motion_figures(name: str) -> float:
    """Look up the score@10 of "arm, motion" and the like."""
    return float(load("motions").values["motions"][name]["score@10"])


def motion_table() -> Cells:
    """Make the table of embeddings of arms: header and rows."""
    titles = {"frozen": "frozen features", "angles alone": "an embedding of the angles alone"}
    titles["motion"] = "an embedding of the motion"
    rows = [[title, f"{motion_figures(f'arm, {name}'):.2f}"] for name, title in titles.items()]
    return [["nearest training pictures by", "score@10"], *rows]


def time_table() -> Cells:
    """Make the table of the seconds that label distances of sequences take: header and rows."""
    titles = {"dtw, band 0": "`dtw`", "dtw, band 10": "`dtw(band=10)`", "edit": "`edit`, 300 texts of 100 letters"}
    rows = []
    for name, title in titles.items():
        seconds: dict[str, float] = load("sequence_times").values["sequences"][name]
        others = {who: value for who, value in seconds.items() if not who.startswith("cml")}
        best = min(others, key=others.__getitem__)
        lists = seconds.get("cml, lists")
        rows.append(
            [title, f"{seconds['cml']:.2f}", f"{others[best]:.2f} ({best})", "" if lists is None else f"{lists:.2f}"]
        )
    return [["", "cml, all pairs", "fastest library, all pairs", "cml, lists of the nearest 10"], *rows]


def start_score(name: str, start: str) -> float:
    """Look up the mean score@10 of heads by log-ratio: "auto", "random" or "pca"; or "frozen", of the features."""
    sets: dict[str, Any] = load("head_start").values["auto" if start == "frozen" else start]["sets"]
    return fmean(sets[name]["frozen" if start == "frozen" else "log-ratio"])


def start_table() -> Cells:
    """Make the table of heads by their start: header and rows."""
    rows = [
        [title, *(f"{start_score(name, start):.3f}" for start in ("frozen", "random", "auto"))]
        for name, title in STARTED.items()
    ]
    return [["dataset", "frozen features", "random start", "`auto`: principal components"], *rows]


TABLES = {
    TUNE: tune_table,
    AUDIT: audit_table,
    "sequence_sets": sequence_table,
    "motions": motion_table,
    "sequence_times": time_table,
    "head_start": start_table,
}
NAMES: dict[str, Any] = {
    "tune_mean": tune_mean,
    "tune_behind": tune_behind,
    "tune_on_digits": tune_on_digits,
    "tune_ranks": tune_ranks,
    "tuned": tuned,
    "audit_gain": audit_gain,
    "sequence_accuracy_gap": sequence_accuracy_gap,
    "motion_figures": motion_figures,
    "start_score": start_score,
}
"""What expressions on pages may call."""
