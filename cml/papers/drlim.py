"""Dimensionality reduction by learning an invariant mapping, on shifted digits, beside locally linear embedding.

The published experiment is on MNIST's 4s and 9s. This one is on those of scikit-learn, which need no download. Not for
the loss alone: that is ``binary(loss=contrastive(normalize=False), rule=threshold)``.

Reference: Hadsell, Chopra, LeCun: Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cml.array_types import Bools, Float64, Int64
from cml.doors.fit import fit
from cml.errors import UserError
from cml.option_types import check_options
from cml.papers import DRLIM
from cml.retrieval import text_table
from cml.retrieval.comparison import Interval, interval_text, over_seeds
from cml.retrieval.metrics import MetricInfo
from cml.storage.atomic import atomic_file
from cml.storage.json_file import write_json
from cml.training.config import TrainConfig

DIGITS = (4, 9)
SHIFTS = (-2, -1, 0, 1, 2)  # pixels to the right; of 28 pixels the paper has 3 and 6
NEIGHBORS = 5  # of the graph, as published
_SIDE = 8 + 2 * max(SHIFTS)  # pixels of a shifted digit
_LARGEST = 16  # grey levels of scikit-learn's digits
_TEST_SHARE = 0.4
LEARNED, LINEAR, COMPONENTS = "learned mapping", "locally linear embedding", "principal components"
MEASURES = {
    "same digit": "share of the 5 nearest other digits on the map that are the same digit",
    "graph": "share of the 5 nearest other digits on the map that are among the 5 nearest by unshifted pixels",
    "shift": "mean distance between two shifts of a digit, relative to that between any two points; 0 is invariant",
}
_SHARE = MetricInfo(lowest=0.0, highest=1.0)
_RANGES = {"same digit": _SHARE, "graph": _SHARE, "shift": MetricInfo(lowest=0.0)}


@dataclass(frozen=True)
class DigitMaps:
    """The result of the experiment."""

    figures: Mapping[str, Mapping[str, Interval]]  # method to measure to mean and 95 % interval over seeds
    maps: Mapping[str, Float64]  # method to the points (N, 2) of the test digits, of the first seed
    digits: Int64  # the digit of each point, (N,)
    shifts: Int64  # its shift in pixels, (N,)
    seeds: int  # number of seeds

    def grid(self) -> list[list[str]]:
        """Header and rows as text."""
        rows = [
            [method, *(interval_text(figures[measure]) for measure in MEASURES)]
            for method, figures in self.figures.items()
        ]
        return [["map", *MEASURES], *rows]

    def notes(self) -> list[str]:
        """Sentences that say what the figures are."""
        return [
            f"{DRLIM}. It has maps and no numbers.",
            *(f"{name}: {text}." for name, text in MEASURES.items()),
            "All maps are of digits that were not trained on; 95 % intervals are over seeds, each with another split.",
            f"Digits {DIGITS[0]} and {DIGITS[1]} of scikit-learn, 8 x 8 pixels, in {len(SHIFTS)} shifts; the paper has "
            "those of MNIST.",
        ]

    def markdown(self) -> str:
        """Table and notes as Markdown."""
        return "\n".join([text_table.markdown(self.grid()), "", *(f"- {line}" for line in self.notes()), ""])

    def __str__(self) -> str:
        return "\n".join([text_table.align_columns(self.grid()), *self.notes()])


@dataclass(frozen=True)
class DrlimOptions:
    """How the mapping is trained."""

    steps: int = 600  # number of steps
    batch_size: int = 256  # points in a batch
    margin: float = 1.0  # distance on the map that points of two digits without a link should have at least
    seeds: int = 3  # runs, each with another split and start
    items: int = 0  # digits at most, before they are shifted; 0 for all 361

    def check(self) -> None:
        """Refuse options that are out of range, with a UserError."""
        if self.items and self.items < 40:
            raise UserError(f"'items' must be at least 40, so that neighbours exist, or 0. Got {self.items} instead.")
        if self.seeds < 1:
            raise UserError(f"'seeds' must be at least 1. Got {self.seeds} instead.")


def reproduce_drlim(out: Path, options: DrlimOptions | None = None) -> DigitMaps:
    """Train the mapping, and write ``reproduction.json``, ``reproduction.md`` and ``map.svg`` into a folder."""
    options = check_options(options or DrlimOptions())
    runs = [_run(options, seed) for seed in range(options.seeds)]
    first = runs[0]
    figures = {method: _estimate([run.measure(method) for run in runs]) for method in first.maps}
    result = DigitMaps(figures, first.maps, first.digits, first.shifts, options.seeds)
    out.mkdir(parents=True, exist_ok=True)
    points = {method: points.round(5).tolist() for method, points in result.maps.items()}
    write_json(
        out / "reproduction.json",
        {
            "figures": figures,
            "notes": result.notes(),
            "maps": points,
            "digits": result.digits.tolist(),
            "shifts": result.shifts.tolist(),
        },
    )
    with atomic_file(out / "reproduction.md") as temporary:
        temporary.write_text(result.markdown(), "utf-8")
    draw_maps(result, out / "map.svg")
    return result


def _estimate(measured: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    """Means and intervals over seeds, cut to what a measure can be."""
    return {name: over_seeds([row[name] for row in measured], _RANGES[name]) for name in MEASURES}


def shift_digits(
    digits: Float64,  # (N, 8, 8) grey levels
    shifts: Sequence[int],  # S shifts in pixels, from -2 to 2
) -> Float64:  # (N, S, 12, 12) grey levels
    """Shift digits to the right on a wider black ground."""
    margin = max(SHIFTS)
    wide = np.zeros((len(digits), len(shifts), _SIDE, _SIDE))
    for column, shift in enumerate(shifts):
        wide[:, column, margin : margin + 8, margin + shift : margin + shift + 8] = digits
    return wide


def link_neighbors(
    pixels: Float64,  # (N, P) of unshifted digits, compared by Euclidean distance
    k: int,
) -> Bools:  # (N, N): whether one of two items is among the k nearest of the other; False for an item and itself
    """Link each item with its k nearest neighbours: the graph of the paper."""
    near = _nearest(pixels, k)
    links = np.zeros((len(pixels), len(pixels)), bool)
    links[np.arange(len(pixels))[:, None], near] = True
    return links | links.T


@dataclass(frozen=True)
class _Run:
    """The maps of a seed, of shifted test digits: all shifts of the first digit, then of the second, and so on."""

    maps: Mapping[str, Float64]
    digits: Int64  # of each point
    shifts: Int64
    pixels: Float64  # of each unshifted test digit

    def measure(self, method: str) -> dict[str, float]:
        """The figures of a map."""
        points, copies = self.maps[method], len(SHIFTS)
        originals = np.repeat(np.arange(len(self.pixels)), copies)
        near = _nearest(points, NEIGHBORS, originals)
        links = _nearest(self.pixels, NEIGHBORS)
        is_linked = (originals[near][:, :, None] == links[originals][:, None]).any(axis=2)
        between = np.linalg.norm(points[:, None] - points, axis=2)
        same = (originals[:, None] == originals) & ~np.eye(len(points), dtype=bool)
        return {
            "same digit": float((self.digits[near] == self.digits[:, None]).mean()),
            "graph": float(is_linked.mean()),
            "shift": float(between[same].mean() / between[~np.eye(len(points), dtype=bool)].mean()),
        }


def _nearest(points: Float64, k: int, owners: Int64 | None = None) -> Int64:
    """The k nearest points (N, k) of each, of other owners; by default each point is its own."""
    owners = np.arange(len(points)) if owners is None else owners
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    distances[owners[:, None] == owners] = np.inf
    order: Int64 = distances.argsort(axis=1, kind="stable")
    return order[:, :k]


def _run(options: DrlimOptions, seed: int) -> _Run:
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.manifold import LocallyLinearEmbedding

    data = load_digits()
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.flatnonzero(np.isin(data.target, DIGITS)))[: options.items or None]
    test_count = round(_TEST_SHARE * len(chosen))
    parts = {"test": chosen[:test_count], "train": chosen[test_count:]}
    shifted = {name: shift_digits(data.images[rows], SHIFTS).reshape(-1, _SIDE, _SIDE) for name, rows in parts.items()}
    flat = {name: images.reshape(len(images), -1) for name, images in shifted.items()}
    images = {
        name: np.repeat(np.rint(pixels * (255 / _LARGEST)).astype(np.uint8)[..., None], 3, axis=3)
        for name, pixels in shifted.items()
    }
    links = link_neighbors(data.data[parts["train"]], NEIGHBORS) | np.eye(len(parts["train"]), dtype=bool)
    distances = np.where(links, 0.0, 1.0).astype(np.float32)
    distances = distances.repeat(len(SHIFTS), axis=0).repeat(len(SHIFTS), axis=1)  # shifts of linked digits are linked
    contrastive = f"loss=contrastive(margin={options.margin}, normalize=False)"
    with warnings.catch_warnings():
        # random batches hold no link of a few points; scikit-learn regularises matrices that are close to singular
        warnings.simplefilter("ignore")
        model = fit(
            images["train"],
            np.arange(len(images["train"])),
            config=TrainConfig(
                loss=f"binary({contrastive}, rule=threshold, distance=0.5)",
                sampler=f"random(batch_size={min(options.batch_size, len(images['train']))})",
                backbone="small-cnn(layers=4)",
                weights="none",
                image_size=(24, 24),
                dimension=2,
                steps=options.steps,
                learning_rate=2e-3,
                warmup=20,
                seed=seed,
                workers=0,
            ),
            label_distance=distances,
            quiet=True,
        )
        linear = LocallyLinearEmbedding(n_neighbors=NEIGHBORS, random_state=seed, eigen_solver="dense")
        linear.fit(flat["train"])
    maps = {
        LEARNED: model.embed(images["test"]).astype(np.float64),
        LINEAR: np.asarray(linear.transform(flat["test"])),
        COMPONENTS: np.asarray(PCA(2, random_state=seed).fit(flat["train"]).transform(flat["test"])),
    }
    digits = np.repeat(data.target[parts["test"]], len(SHIFTS))
    return _Run(maps, digits, np.tile(SHIFTS, test_count), data.data[parts["test"]])


def draw_maps(result: DigitMaps, path: Path) -> None:
    """Draw the maps beside each other: colours are digits, symbols shifts."""
    from cml.reporting.figure import COLORS, new_figure, save_figure

    markers = ("<", "v", "o", "^", ">")
    figure = new_figure(10.5, 3.6)
    axes = figure.subplots(1, len(result.maps), squeeze=False)[0]
    for axis, (method, points) in zip(axes, result.maps.items(), strict=True):
        for digit, color in zip(DIGITS, COLORS, strict=False):
            for shift, marker in zip(SHIFTS, markers, strict=True):
                shown = (result.digits == digit) & (result.shifts == shift)
                label = f"{digit}" if shift == 0 else None
                axis.scatter(*points[shown].T, s=9, c=color, marker=marker, linewidths=0, alpha=0.6, label=label)
        axis.set_title(method)
        axis.set_xticks([])
        axis.set_yticks([])
    axes[0].legend(title="digit", loc="best", frameon=False)
    figure.supxlabel("A symbol for each shift: two pixels to the left, one, none, one and two to the right", size=9)
    save_figure(figure, path)
