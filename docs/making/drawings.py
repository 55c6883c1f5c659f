"""The figures of the pages on concepts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from making.gradients import INK, PULL, PUSH, plain, save
from making.result_tables import DISTANCE, load

GREEN = "#5aa35a"
FROZEN = "frozen efficientnet-lite0"


def label_distances(path: Path) -> None:
    """Distances of seven ages: by age group, which has two values, and as differences."""
    figure = Figure(figsize=(7.6, 2.6), layout="constrained")
    ages = np.array([4, 7, 25, 31, 36, 60, 66])
    distances = np.abs(np.subtract.outer(ages, ages))
    groups = np.digitize(ages, [18, 50])
    for column, (matrix, title) in enumerate(
        [(np.not_equal.outer(groups, groups), "same age group or not"), (distances, "difference of ages")]
    ):
        axes = figure.add_subplot(1, 2, column + 1)
        axes.imshow(matrix, cmap="Blues_r")
        axes.set_xticks(range(len(ages)), ages)
        axes.set_yticks(range(len(ages)), ages)
        plain(axes)
        axes.set_title(title, color=INK, size=10)
    save(figure, path)


def ratios(path: Path) -> None:
    """Embedding distance against label distance on logarithmic axes, where the loss is 0 on a straight line."""
    rng = np.random.default_rng(0)
    figure = Figure(figsize=(7.6, 2.8), layout="constrained")
    label = np.sort(np.exp(rng.uniform(np.log(0.5), np.log(50), 24)))
    for column, (noise, title) in enumerate([(1.8, "before training"), (0.15, "after training")]):
        axes = figure.add_subplot(1, 2, column + 1)
        embedding = 0.02 * label**1.5 * np.exp(rng.normal(0, noise, len(label)))
        axes.loglog(label, 0.02 * label**1.5, color=INK, linewidth=1)
        axes.vlines(label, embedding, 0.02 * label**1.5, color=PUSH, linewidth=0.8)
        axes.loglog(label, embedding, "o", color=PULL, markersize=4)
        axes.set(xlabel="label distance to the anchor", ylabel="squared embedding distance")
        plain(axes)
        axes.set_title(title, color=INK, size=10)
        axes.minorticks_off()
    save(figure, path)


def anchors(path: Path) -> None:
    """The pairs of a batch that the loss compares, for two samplers."""
    figure = Figure(figsize=(7.6, 2.6), layout="constrained")
    for column, (rows, title) in enumerate([(12, "random: every item is an anchor"), (1, "dense: one anchor")]):
        axes = figure.add_subplot(1, 2, column + 1)
        used = np.zeros((12, 12))
        used[:rows] = 1
        used[np.diag_indices(12)] = 0
        axes.imshow(used, cmap="Blues", vmax=1.6)
        axes.set(xlabel="items of the batch", ylabel="anchors", xticks=[], yticks=[])
        plain(axes)
        axes.set_title(title, color=INK, size=10)
    save(figure, path)


def ties(path: Path) -> None:
    """The logarithm of the label distance, with and without a floor, and that of equal labels."""
    figure = Figure(figsize=(5.2, 2.8), layout="constrained")
    axes = figure.add_subplot()
    distances = np.linspace(0.02, 10, 400)
    axes.plot(distances, np.log(distances), color=INK, linestyle=":", label="log of the label distance")
    axes.plot(distances, np.log(distances.clip(0.8)), color=PULL, label="with a floor of 0.8")
    axes.plot([0], [np.log(0.4)], "o", color=PULL, label="equal labels: half of the floor", clip_on=False)
    axes.set(xlabel="label distance", ylabel="log label distance")
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    plain(axes)
    save(figure, path)


def gains(path: Path) -> None:
    """The gain of nDCG as a function of label distance, and the discount as a function of rank."""
    figure = Figure(figsize=(7.6, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    distances, ranks = np.linspace(0, 10, 200), np.arange(1, 21)
    left.plot(distances, 1 / (1 + distances), color=PULL)
    left.set(xlabel="label distance to the query", ylabel="gain 1 / (1 + d)", ylim=(0, 1.05))
    right.bar(ranks, 1 / np.log2(1 + ranks), color=GREEN, alpha=0.8)
    right.set(xlabel="rank", ylabel="discount")
    plain(left)
    plain(right)
    save(figure, path)


def intervals(path: Path) -> None:
    """Overlapping and separate confidence intervals: the results on steering angles."""
    figure = Figure(figsize=(6.4, 2.4), layout="constrained")
    axes = figure.add_subplot()
    values = load("steering").values
    figures = {**values["trained"], **values["references"]}
    colours = {"oracle": GREEN, "log-ratio": PULL, "dense triplet": PULL, FROZEN: PUSH, "random": PUSH}
    for row, (name, colour) in enumerate(reversed(colours.items())):
        mean, low, high = (figures[name][DISTANCE][key] for key in ("mean", "low", "high"))
        axes.errorbar(mean, row, xerr=[[mean - low], [high - mean]], fmt="o", color=colour, capsize=3)
        axes.text(-0.01, row, name, va="center", ha="right", color=INK, size=9)
    axes.set(xlabel="label distance of the first 10 (lower is better)", yticks=[], xlim=(0, 0.5), ylim=(-0.6, 4.6))
    plain(axes)
    axes.spines["left"].set_visible(False)
    save(figure, path)


DRAWINGS = {
    "label_distances": label_distances,
    "ratios": ratios,
    "anchors": anchors,
    "ties": ties,
    "gains": gains,
    "intervals": intervals,
}
