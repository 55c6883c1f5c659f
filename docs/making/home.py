"""The live explorer and the picture of results on the home page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

import cml
from making.gradients import INK, PULL, PUSH, plain, save
from making.result_tables import overview

TRAINING, SHOWN = 600, 300
SIZE, NETWORK_SIZE = 80, 32  # pixels of a picture, and of what the network sees of it
STEPS = 120
SCALE = 3  # clocks are drawn this much larger and scaled down
GREEN = "#5aa35a"
METHODS = {
    "log-ratio": ("log-ratio", "o", PULL),
    "binary triplet, threshold": ("triplets by a threshold", "s", PUSH),
    "frozen features": ("frozen ImageNet features", "D", GREEN),
}


def write_explorer(path: Path) -> None:
    """Train a small network on drawn clocks, and write the explorer of 300 clocks that it has not seen.

    Args:
        path: The page, of less than 1 MB.
    """
    rng = np.random.default_rng(0)
    hours = rng.uniform(0, 12, TRAINING + SHOWN)
    clocks = [draw_clock(hour, rng) for hour in hours]
    images = np.stack([np.asarray(clock) for clock in clocks])
    model = cml.fit(
        images[:TRAINING], hours[:TRAINING], label_distance="circular(period=12)", backbone="small-cnn",
        weights="none", image_size=(NETWORK_SIZE, NETWORK_SIZE), sampler="random(batch_size=60)", steps=STEPS,
        workers=0, quiet=True,
    )  # fmt: skip
    model.explore(
        images[TRAINING:],
        hours[TRAINING:],
        path,
        names=[f"{int(hour) or 12}:{int(60 * (hour % 1)):02d}" for hour in hours[TRAINING:]],
        pictures=clocks[TRAINING:],
        maps=["pca"],
    )


def draw_clock(hour: float, rng: np.random.Generator) -> Image.Image:
    """Draw a clock of random colours, size and place that shows a time.

    Args:
        hour: The time, 0 to 12.
        rng: Draws everything else.
    """
    side = SCALE * SIZE
    wall, face = (tuple(rng.integers(low, 256, 3).tolist()) for low in (60, 150))
    ink = tuple(rng.integers(0, 90, 3).tolist())
    picture = Image.new("RGB", (side, side), wall)
    pen = ImageDraw.Draw(picture)
    middle = rng.uniform(0.42, 0.58, 2) * side
    radius = rng.uniform(0.27, 0.4) * side
    pen.circle(tuple(middle), radius, fill=face, outline=ink, width=SCALE * 2)

    def draw_line(turn: float, start: float, end: float, width: int) -> None:
        direction = radius * np.array([np.sin(2 * np.pi * turn), -np.cos(2 * np.pi * turn)])
        pen.line([*(middle + start * direction), *(middle + end * direction)], fill=ink, width=width)

    for mark in range(12):
        draw_line(mark / 12, 0.82, 0.95, SCALE)
    draw_line(hour / 12, 0, 0.5, 4 * SCALE)
    draw_line(hour % 1, 0, 0.78, 2 * SCALE)
    return picture.resize((SIZE, SIZE), Image.Resampling.LANCZOS)


def draw_results(path: Path) -> None:
    """Draw the label distances of the first 10 on all sets, between those of a random ranking and of the oracle."""
    header, *rows = overview()
    figure = Figure(figsize=(6.6, 3.4), layout="constrained")
    axes = figure.add_subplot()
    sets = [row[0].partition(",")[0] for row in rows]
    for method, (title, marker, colour) in METHODS.items():
        scores = [_score(row, header, method) for row in rows]
        axes.plot(scores, range(len(rows)), marker, color=colour, markersize=7, alpha=0.9, label=title)
    axes.set_yticks(range(len(sets)), sets)
    axes.invert_yaxis()
    axes.grid(axis="y", color=INK, alpha=0.25, linewidth=0.6)
    axes.set(xlim=(-0.02, 1.02), xlabel="from a random ranking (0) to the ranking by the labels themselves (1)")
    axes.legend(loc="lower right", frameon=False, fontsize=9, labelcolor=INK)
    plain(axes)
    axes.tick_params(axis="y", length=0, labelsize=9)
    save(figure, path)


def _score(row: list[str], header: list[str], method: str) -> float:
    """Place a method between chance, 0, and the oracle, 1, by the cells of a row of the overview."""
    value, chance, best = (float(row[header.index(name)].split(" ")[0]) for name in (method, "random", "oracle"))
    return (chance - value) / (chance - best)
