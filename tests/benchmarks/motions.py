"""What comes next as the label: frames of an arm under a moved camera, and of a car, by the motion that follows.

    python tests/benchmarks/motions.py [--sets arm steering] [--frames 900] [--seeds 3] [--picture FILE] [--json FILE]

The arm has two joints and turns them towards a dot at a limited speed. A frame's label is its next 16 pairs of joint
angles in degrees, compared by dynamic time warping. Training frames are seen by one camera, and the queries by another
that is turned, shifted and farther away. Steering photographs (``CML_DATA``, donkeycar_tub) have the next ten angles as
labels; blocks of 50 frames are queries or training frames, ten apart. Features are those of a frozen
EfficientNet-Lite0, and each method finds the nearest training frames of a query:

- frozen: by the features
- angles alone: by an embedding of the features, trained with the same loss on the angles of the frame itself
- motion: by one that was trained on the label

score@10 is 1 for the best order and 0 for chance; "distance" is the mean distance of the motions of the first 10.
"""

from __future__ import annotations

import argparse
import json
import os
import tarfile
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from PIL import Image, ImageDraw
from threadpoolctl import threadpool_limits

import cml
from cml.array_types import Float32, Float64, Int64
from cml.retrieval import evaluate_embeddings

SIDE, LENGTHS, SPEED, AHEAD, STEERED = 96, (0.5, 0.4), 8.0, 16, 10
FAR = {"turn": 20.0, "scale": 0.85, "shift": 0.08}  # of the other camera: degrees, and shares of the picture


class Frames(NamedTuple):
    """Frames of one side."""

    pictures: list[Image.Image]
    now: Float64  # (N, F) angles of each frame
    motions: Float64  # (N, T, F) those that follow
    states: list[Any]  # what the arm is drawn from


class State(NamedTuple):
    """An arm, what it turns to, and the camera that sees it."""

    angles: Float64  # (2,) degrees
    goal: Float64  # (2,) the angles that reach the dot
    camera: tuple[float, float, float, float]  # turn, scale, shift
    shade: int


def reach(angles: Float64) -> Float64:
    """Shoulder, elbow and hand of an arm: (3, 2)."""
    turns = np.deg2rad(np.cumsum(angles))
    bones = np.array(LENGTHS)[:, None] * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    return np.concatenate([np.zeros((1, 2)), np.cumsum(bones, axis=0)])


def move(state: State) -> Float64:
    """The next angles (16, 2): each joint turns to its goal, at most ``SPEED`` degrees a step."""
    steps = np.arange(1, AHEAD + 1)[:, None]
    way = state.goal - state.angles
    return np.asarray(state.angles + np.sign(way) * np.minimum(np.abs(way), SPEED * steps))


def draw_arm(state: State, side: int = SIDE, *, shows_motion: bool = False) -> Image.Image:
    """The picture of an arm; the end of its motion is pale where it is shown."""
    large = 4 * side
    image = Image.new("RGB", (large, large), (state.shade, state.shade, state.shade + 12))
    pen = ImageDraw.Draw(image)
    turn, scale, right, down = state.camera
    cosine, sine = np.cos(np.deg2rad(turn)), np.sin(np.deg2rad(turn))

    def place(points: Float64) -> list[tuple[float, float]]:
        seen = scale * points @ np.array([[cosine, sine], [-sine, cosine]])
        return [(large * (0.5 + right + 0.5 * x), large * (0.5 + down - 0.5 * y)) for x, y in seen.tolist()]

    def arm(angles: Float64, colours: Sequence[tuple[int, int, int]], width: int) -> None:
        joints = place(reach(angles))
        for one, other, colour in zip(joints, joints[1:], colours, strict=False):
            pen.line([one, other], colour, width)
        for x, y in joints:
            pen.ellipse([x - width, y - width, x + width, y + width], colours[-1])

    if shows_motion:
        arm(move(state)[-1], [(238, 190, 150)] * 3, large // 40)
    x, y = place(reach(state.goal)[-1:])[0]
    pen.ellipse([x - large / 22, y - large / 22, x + large / 22, y + large / 22], (40, 160, 70))
    arm(state.angles, [(200, 60, 40), (40, 80, 200), (30, 30, 30)], large // 28)
    return image.resize((side, side), Image.Resampling.LANCZOS)


def draw_frames(count: int, *, far: bool, seed: int) -> Frames:
    """Arms at random angles that turn to random goals, seen by one of the two cameras."""
    rng, states = np.random.default_rng(seed), []
    for _ in range(count):
        angles, goal = rng.uniform([0, -120], [180, 120], (2, 2))
        turn, scale, right, down = rng.normal(0, [2, 0.02, 0.01, 0.01])
        if far:
            turn, scale, right, down = turn + FAR["turn"], scale + FAR["scale"] - 1, right + FAR["shift"], down
        states.append(State(angles, goal, (turn, 1 + scale, right, 0.25 + down), int(rng.integers(190, 240))))
    now = np.stack([state.angles for state in states])
    return Frames([draw_arm(state) for state in states], now, np.stack([move(state) for state in states]), states)


def read_steering() -> tuple[Frames, Frames]:
    """Training frames and queries of a car."""
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    path = Path(os.environ.get("CML_DATA", default)) / "donkeycar_tub" / "tub.tar.gz"
    if not path.exists():
        raise SystemExit(f"The steering photographs are missing: {path}; set CML_DATA, or give --sets arm.")
    pictures, rows = {}, []
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            content = archive.extractfile(member)
            if content is None or name.startswith("._"):
                continue
            if name.endswith(".jpg"):
                pictures[name] = Image.open(BytesIO(content.read())).convert("RGB")
            elif name.endswith(".catalog"):
                rows += [json.loads(line) for line in content.read().splitlines()]
    angles = np.array([row["user/angle"] for row in rows])
    kept = [frame for frame in range(len(rows) - STEERED) if frame % 50 < 40]
    sides = [[frame for frame in kept if (frame // 50 % 4 == 3) == is_query] for is_query in (False, True)]
    made = [
        Frames(
            [pictures[rows[frame]["cam/image_array"]] for frame in side],
            angles[side][:, None],
            np.stack([angles[frame : frame + STEERED, None] for frame in side]),
            side,
        )
        for side in sides
    ]
    return made[0], made[1]


def embed_frames(frames: Frames) -> Float32:
    """Features of a frozen network."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "features"
        store = cml.features(frames.pictures, backbone="efficientnet-lite0", image_size=(96, 96), out=out, quiet=True)
        return np.array(store, np.float32)


def compare(train: Frames, queries: Frames, seeds: int) -> tuple[dict[str, dict[str, float]], dict[str, Int64]]:
    """Measure each method, and find the nearest training frames of each query; of several seeds the means."""
    gallery, asked = embed_frames(train), embed_frames(queries)
    spread = gallery.std(axis=0) + 1e-6
    frozen = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (asked, gallery)]
    sides = {"frozen": [frozen] * seeds, "angles alone": [], "motion": []}
    inputs = [(rows - gallery.mean(axis=0)) / spread for rows in (asked, gallery)]
    for seed in range(seeds):
        for name, labels, distance in (("angles alone", train.now, "euclidean"), ("motion", train.motions, "dtw")):
            settings: dict[str, Any] = {"label_distance": distance, "steps": 300, "seed": seed, "quiet": True}
            model = cml.fit(inputs[1], list(labels), backbone="mlp(256)", **settings)
            sides[name].append([model.embed(rows) for rows in inputs])
    scores: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for seed in range(seeds):
        others = {name: tuple(sides[name][seed]) for name in ("frozen", "angles alone")}
        found = evaluate_embeddings(
            sides["motion"][seed][0],
            list(queries.motions),
            sides["motion"][seed][1],
            list(train.motions),
            label_distance="dtw",
            others=others,
        )
        for name in sides:
            row = found.rows["embedding" if name == "motion" else name]
            scores[name].append((row["score@10"].mean, row["label_distance@10"].mean))
    figures = {
        name: dict(zip(("score@10", "distance"), np.mean(values, axis=0).tolist(), strict=True))
        for name, values in scores.items()
    }
    order = {}
    for name, embeddings in sides.items():
        one, other = (np.asarray(rows, np.float64) for rows in embeddings[0])
        order[name] = np.square(one[:, None] - other).sum(axis=2).argsort(axis=1)
    return figures, order


def draw_lists(train: Frames, queries: Frames, order: dict[str, Int64], path: Path) -> None:
    """Write a picture: queries to the left, and the nearest four training frames of each method beside them."""
    side, gap, shown, count = 88, 6, 5, 4
    width = side + len(order) * (count * side + 3 * gap)
    sheet = Image.new("RGB", (width, shown * (side + gap)), "white")
    for row in range(shown):
        top = row * (side + gap)
        sheet.paste(draw_arm(queries.states[row], side, shows_motion=True), (0, top))
        for column, places in enumerate(order.values()):
            for number, item in enumerate(places[row, :count].tolist()):
                left = side + 3 * gap + column * (count * side + 3 * gap) + number * side
                sheet.paste(draw_arm(train.states[item], side, shows_motion=True), (left, top))
    sheet.save(path, quality=88)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=("arm", "steering"), default=["arm", "steering"])
    parser.add_argument("--frames", type=int, default=900, help="training frames of the arm; a third as many queries")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="where to write queries of the arm and what is found for them")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures: dict[str, dict[str, float]] = {}
    with threadpool_limits(1):
        for name in options.sets:
            if name == "arm":
                train = draw_frames(options.frames, far=False, seed=0)
                queries = draw_frames(max(20, options.frames // 3), far=True, seed=1)
            else:
                train, queries = read_steering()
            rows, order = compare(train, queries, options.seeds)
            for row, cells in rows.items():
                shown = "  ".join(f"{key} {value:.3f}" for key, value in cells.items())
                print(f"{name:9} {row:14} {shown}", flush=True)
                figures[f"{name}, {row}"] = cells
            if name == "arm" and options.picture is not None:
                draw_lists(train, queries, order, options.picture)
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
