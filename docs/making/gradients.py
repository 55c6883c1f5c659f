"""Figures of the gradients of losses: how a gradient step moves the items of a small batch.

    python docs/making/gradients.py LOSS FIGURE.svg [PLUGIN.py]

draws the gradient of one loss, which may be registered by the plugin.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure

from cml import losses, plugins
from cml.array_types import Float64

INK, PULL, PUSH = "#808890", "#3f7fd0", "#d9792b"  # readable on white and on black
ITEMS = 60
SETTINGS = {"binary": {"loss": "triplet"}}
Points = Float64


def draw(name: str, path: Path) -> None:
    """Draw the gradient of the registered loss ``name`` as an SVG file."""
    kind = losses.registry.entry(name).labels  # type: ignore[attr-defined]
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.add_subplot()
    if kind == "label distances":
        over_label_distances(name, axes)
    elif kind == "classes":
        over_classes(name, axes)
    elif kind == "triplets":
        over_triplets(name, axes)
    else:
        over_vectors(name, axes)
    plain(axes)
    save(figure, path)


def over_label_distances(name: str, axes) -> None:  # noqa: ANN001 - matplotlib's
    """Plot the items of one anchor on the unit circle, by label distance and angle to it, with their gradient steps."""
    rng = np.random.default_rng(0)
    label_distances = np.sort(rng.uniform(0.02, 1, ITEMS))
    angles = torch.tensor(rng.uniform(0.05, np.pi - 0.05, ITEMS), requires_grad=True)
    anchor = torch.zeros(1, dtype=torch.float64)
    at = torch.cat([anchor, angles])
    points = torch.stack([at.cos(), at.sin()], dim=1)
    targets = torch.tensor([[0.0, *label_distances]])
    loss = losses.registry.make(name, **SETTINGS.get(name, {}))
    sample = torch.tensor(np.abs(np.subtract.outer(label_distances, label_distances)))
    loss.fit(sample[sample > 0])  # type: ignore[attr-defined]
    (slopes,) = torch.autograd.grad(loss(points, targets), angles)
    arrows(axes, label_distances, np.degrees(angles.detach().numpy()), -slopes.numpy())
    axes.set(xlabel="label distance to the anchor", ylabel="angle to the anchor, degrees", ylim=(-5, 185))


def arrows(axes, across: Points, up: Points, move: Points) -> None:  # noqa: ANN001 - matplotlib's
    """Plot items as points with vertical arrows, whose lengths are square roots so that small ones are visible."""
    length = 28 * np.sign(move) * np.sqrt(np.abs(move) / max(np.abs(move).max(), 1e-12))
    for colour, part, text in ((PULL, move < 0, "pulled to the anchor"), (PUSH, move > 0, "pushed away")):
        axes.quiver(
            across[part], up[part], 0 * length[part], length[part],
            angles="xy", scale_units="xy", scale=1, color=colour, width=0.0045, label=text,
        )  # fmt: skip
    axes.plot(across, up, "o", color=INK, markersize=2.5)
    legend = axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)
    for text in legend.get_texts():
        text.set_color(INK)


def over_triplets(name: str, axes) -> None:  # noqa: ANN001 - matplotlib's
    """Plot triplets of one anchor on the unit circle, side by side, with the gradient steps of their two items."""
    rng = np.random.default_rng(0)
    count = ITEMS // 2
    angles = torch.tensor(rng.uniform(0.05, np.pi - 0.05, 2 * count), requires_grad=True)
    at = torch.cat([torch.zeros(1, dtype=torch.float64), angles])
    points = torch.stack([at.cos(), at.sin()], dim=1)
    nearer = torch.arange(1, count + 1)
    ones = torch.ones_like(nearer)
    loss = losses.registry.make(name)
    value = loss(points, torch.stack([0 * ones, nearer, nearer + count, ones], dim=1))
    (slopes,) = torch.autograd.grad(value, angles)
    across = np.tile(np.arange(1.0, count + 1), 2)
    arrows(axes, across, np.degrees(angles.detach().numpy()), -slopes.numpy())
    axes.set(xlabel="triplet, with its two items", ylabel="angle to the anchor, degrees", ylim=(-5, 185))


def over_classes(name: str, axes) -> None:  # noqa: ANN001 - matplotlib's
    """Plot items of three classes in a plane with their gradient steps."""
    torch.manual_seed(0)
    rng = np.random.default_rng(3)
    classes = torch.tensor(np.repeat([0, 1, 2], 6))
    middle = np.array([0.4, 2.3, 4.6])[classes]
    at = torch.tensor(middle + rng.normal(0, 0.55, len(classes)))
    points = torch.stack([at.cos(), at.sin()], dim=1).float().requires_grad_(True)
    words = {"vectors": word_vectors()} if name == "language-guidance" else {}
    few = {"per_class": 2, "share": 0.8} if name == "proxy-gml" else {}
    loss = losses.registry.make(name, **words, **few)
    takes_names = "names" in inspect.signature(loss.prepare).parameters
    class_names = {"names": ["red bird", "blue bird", "car"]} if takes_names else {}
    loss.prepare(classes, dimension=2, generator=torch.Generator().manual_seed(2), **class_names)
    (slopes,) = torch.autograd.grad(loss(points, classes), points)
    positions, move = points.detach().numpy(), -slopes.numpy()
    move = move - (move * positions).sum(axis=1, keepdims=True) * positions  # along the circle
    move *= 0.45 / max(np.linalg.norm(move, axis=1).max(), 1e-12)
    around = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(around), np.sin(around), color=INK, linewidth=0.5)
    for number, colour in enumerate((PULL, PUSH, "#5aa35a")):
        members = (classes == number).numpy()
        axes.plot(*positions[members].T, "o", color=colour, markersize=4)
        axes.quiver(
            *positions[members].T, *move[members].T, angles="xy", scale_units="xy", scale=1, color=colour, width=0.006
        )
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal")
    axes.set_axis_off()


def over_vectors(name: str, axes) -> None:  # noqa: ANN001 - matplotlib's
    """Plot predictions against true labels, with the gradient steps of the predictions."""
    rng = np.random.default_rng(0)
    labels = np.sort(rng.uniform(20, 70, 40))
    loss = losses.registry.make(name)
    loss.prepare(torch.tensor(labels[:, None]), dimension=1)
    predictions = torch.tensor((labels - labels.mean()) / labels.std() + rng.normal(0, 0.6, 40))
    predictions = predictions[:, None].float().requires_grad_(True)
    (slopes,) = torch.autograd.grad(loss(predictions, torch.tensor(labels[:, None]).float()), predictions)
    move = -slopes.numpy()[:, 0]
    axes.quiver(
        labels, predictions.detach().numpy()[:, 0], 0 * move, 0.8 * move / np.abs(move).max(),
        angles="xy", scale_units="xy", scale=1, color=PULL, width=0.0045,
    )  # fmt: skip
    axes.plot(labels, predictions.detach().numpy()[:, 0], "o", color=INK, markersize=2.5)
    axes.set(xlabel="label", ylabel="embedding: the standardised prediction")


def word_vectors() -> str:
    """Write a file of word vectors for the class names of the figure, and return its path."""
    import tempfile

    path = Path(tempfile.mkdtemp()) / "words.txt"
    path.write_text("red 1 0 0.2\nblue 0.8 0.3 0.1\nbird 0.2 1 0\ncar -1 0.1 0.5\n")
    return str(path)


def save(figure: Figure, path: Path) -> None:
    """Save a figure without a background; in SVG files, text stays text."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "cml"}):
        figure.savefig(path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None)


def plain(axes) -> None:  # noqa: ANN001 - matplotlib's
    """Style axes so that they are readable on white and on black."""
    axes.tick_params(colors=INK, labelsize=8)
    axes.xaxis.label.set(color=INK, size=9)
    axes.yaxis.label.set(color=INK, size=9)
    for side, spine in axes.spines.items():
        spine.set(color=INK, visible=side in ("left", "bottom"))


def main(name: str, path: str, *files: str) -> None:
    """Load plugins and draw the gradient of one loss."""
    for file in files:
        plugins.load(file)
    draw(name, Path(path))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
