"""Duplicates by features: which changed copies of training images are found, and what is found where there are none.

    python tests/benchmarks/feature_duplicates.py [--sets lspet coco zind donkeycar] [--backbone efficientnet-lite0]

25 training images are changed in one way and put among the test images. Printed is how many are found as duplicates of
their originals, for each way, and how many test images are found without them. The data is real (CML_DATA).
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

import cml
from cml.plausibility.feature_duplicates import find_feature_duplicates

COPIES = 25
SETS = {
    "lspet": ("lspet", "lspet400"),
    "coco": ("coco_captions", "coco_mini"),
    "zind": ("zind_layouts", "zind_layouts"),
    "donkeycar": ("donkeycar", "donkeycar_tub/tub.tar.gz"),
}


def compress(picture: Image.Image, quality: int) -> Image.Image:
    """A JPEG of the picture."""
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=quality)
    return Image.open(content).convert("RGB")


def shrink(picture: Image.Image, share: float) -> Image.Image:
    """The picture with shorter sides."""
    width, height = picture.size
    return picture.resize((round(width * share), round(height * share)), Image.Resampling.LANCZOS)


def trim(picture: Image.Image, share: float) -> Image.Image:
    """The picture without a share of each side."""
    width, height = round(picture.width * share), round(picture.height * share)
    return picture.crop((width, height, picture.width - width, picture.height - height))


CHANGES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "JPEG 80": lambda picture: compress(picture, 80),
    "JPEG 40": lambda picture: compress(picture, 40),
    "3/4": lambda picture: shrink(picture, 0.75),
    "3 % off": lambda picture: trim(picture, 0.03),
    "8 % off": lambda picture: trim(picture, 0.08),
    "brighter": lambda picture: picture.point(lambda level: min(255, int(1.15 * level))),
    "mirrored": ImageOps.mirror,
}


def measure(name: str, backbone: str, side: int, copies: int) -> dict[str, int]:
    """How many copies are found of each kind, and how many test images without copies ("none")."""
    source, place = SETS[name]
    data = Path(os.environ.get("CML_DATA", Path(__file__).parents[3] / "shared" / "data"))
    with tempfile.TemporaryDirectory() as folder:
        setting = {"source": data / place}
        dataset = cml.prepare(source, Path(folder) / "set", **setting)
        train = list(dataset.split("train").paths)
        test = list(dataset.split("query").paths)
        if not dataset.info.queries_are_gallery:
            test += dataset.split("gallery").paths
        changed = Path(folder) / "changed"
        changed.mkdir()
        paths = [*train, *test]
        for change in CHANGES.values():
            for path in train[:copies]:
                paths.append(changed / f"{len(paths):06}.png")
                with Image.open(path) as picture:
                    change(picture.convert("RGB")).save(paths[-1])
        weights = "none" if backbone == "small-cnn" else "imagenet"
        store = cml.features(
            paths, backbone=backbone, weights=weights, image_size=(side, side), out=Path(folder) / "store", quiet=True
        )
        rows = np.asarray(store.rows, np.float32)
    known, asked, further = np.split(rows, [len(train), len(train) + len(test)])
    ids = [str(number) for number in range(len(rows))]

    def count(more: np.ndarray) -> int:
        findings = find_feature_duplicates(ids, known, ids, np.concatenate([asked, more]))
        return findings[0].count if findings else 0

    none = count(further[:0])
    found = {change: count(rows) - none for change, rows in zip(CHANGES, np.split(further, len(CHANGES)), strict=True)}
    return {**found, "none": none}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a line for each dataset."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--side", type=int, default=128, help="pixels of the images that the backbone takes")
    parser.add_argument("--copies", type=int, default=COPIES)
    options = parser.parse_args(arguments)
    for name in options.sets:
        found = measure(name, options.backbone, options.side, options.copies)
        print(name, ", ".join(f"{kind}: {count}" for kind, count in found.items()), flush=True)


if __name__ == "__main__":
    main()
