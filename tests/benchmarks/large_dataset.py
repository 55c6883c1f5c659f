"""A prepared dataset of any size whose images are links to a few files: ``python large_dataset.py OUT N [LABEL]``.

LABEL is number (default), pose (16 joints) or captions (5 an image). Nine of ten items are for training. For measuring
what opening and training cost; there is nothing to learn in it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

FILES = 64  # pictures that differ; a file system allows some 65,000 links to one file
QUERIES = 100


def write_large(folder: Path, count: int, label: str = "number", *, side: int = 64) -> Path:
    """Write a dataset of ``count`` items into a folder that is not there yet."""
    column, make = _LABELS[label]
    rng = np.random.default_rng(0)
    train = count - max(2 * QUERIES, count // 10)
    for name, first, last in (("train", 0, train), ("test", train, count)):
        (folder / name / "images").mkdir(parents=True)
        pictures = [folder / name / "images" / f"picture{number}.jpg" for number in range(FILES)]
        for picture in pictures:
            Image.fromarray(rng.integers(0, 256, (side, side, 3), np.uint8)).save(picture)
        with (folder / name / "metadata.jsonl").open("w", encoding="utf-8", newline="\n") as lines:
            for item in range(first, last):
                os.link(pictures[item % FILES], folder / name / "images" / f"{item:08d}.jpg")
                role = "train" if name == "train" else "query" if item < train + QUERIES else "gallery"
                start = {"file_name": f"images/{item:08d}.jpg", "item_id": f"{item:08d}", "role": role}
                lines.write(json.dumps({**start, column: make(rng)}) + "\n")
        for picture in pictures:
            picture.unlink()
    texts = {"label_unit": "", "frame": "", "source": "drawn at random", "licence": "MIT"}
    counts = {"train": train, "query": QUERIES, "gallery": count - train - QUERIES}
    info = {"format": 1, "name": f"large-{label}", "task": "value", "label_column": column, **texts, "counts": counts}
    (folder / "dataset.json").write_text(json.dumps(info))
    return folder


def _pose(rng: np.random.Generator) -> list[list[float]]:
    joints = np.concatenate([rng.uniform(0, 288, (16, 2)).round(2), rng.integers(0, 2, (16, 1))], axis=1)
    return [[float(number) for number in joint] for joint in joints.tolist()]


def _captions(rng: np.random.Generator) -> list[str]:
    words = rng.choice(["a", "dog", "runs", "over", "green", "grass", "near", "the", "old", "house"], (5, 10))
    return [" ".join(row) for row in words.tolist()]


_LABELS: dict[str, tuple[str, Callable[[np.random.Generator], object]]] = {
    "number": ("value", lambda rng: round(float(rng.uniform(-1, 1)), 6)),
    "pose": ("keypoints", _pose),
    "captions": ("captions", _captions),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the dataset that the command line asks for."""
    out, count, *label = sys.argv[1:] if arguments is None else arguments
    write_large(Path(out), int(count), *label)


if __name__ == "__main__":
    main()
