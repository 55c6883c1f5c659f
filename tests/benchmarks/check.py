"""``cml check`` of many items: how long the images take to read, and how long everything else takes.

    python tests/benchmarks/check.py [--items 100000] [--side 32] [--labels number pose]

The images are drawn and all differ. One of ten items is for testing, one of 1,000 of these is a copy of a training
image. Printed are the seconds of the CPU, which do not depend on what else the machine does: of reading and decoding
the images, as ``cml check`` does without any rule, of the thumbnails, of opening the dataset and of its label distance,
and of the rules.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from large_dataset import write_large
from PIL import Image

from cml.data.check_dataset import check_dataset
from cml.data.prepared import PreparedDataset
from cml.plausibility.thumbnails import Thumbnails
from cml.runs.dataset_findings import find_suspicious
from cml.runs.distances import describe_ties, find_label_faults


def draw_images(folder: Path, side: int) -> None:
    """Put a picture of its own in place of each image."""
    rng = np.random.default_rng(0)
    train = sorted((folder / "train" / "images").iterdir())
    for number, path in enumerate([*train, *sorted((folder / "test" / "images").iterdir())]):
        path.unlink()
        if number >= len(train) and number % 1000 == 0:
            path.write_bytes(train[number % len(train)].read_bytes())
            continue
        coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8))
        coarse.resize((side, side), Image.Resampling.BILINEAR).save(path, quality=90)


def call_poses(folder: Path) -> None:
    """Say in dataset.json that the labels are poses, so that the rules of people are applied too."""
    path = folder / "dataset.json"
    info = json.loads(path.read_text())
    details = {"joints": [f"joint {number}" for number in range(1, 17)], "image_size": [288, 288]}
    path.write_text(json.dumps({**info, "task": "pose", "label_unit": "px", "details": details}))


def measure(folder: Path) -> dict[str, float]:
    """Seconds of the CPU, in all threads together, of each part of ``cml check``."""
    seconds: dict[str, float] = {}

    def lap(name: str) -> None:
        nonlocal begin
        seconds[name] = time.process_time() - begin
        begin = time.process_time()

    begin = time.process_time()
    assert check_dataset(folder) == []
    lap("reading the images")
    thumbnails = Thumbnails()
    check_dataset(folder, look=thumbnails.add)
    lap("the same with thumbnails")
    assert find_label_faults(folder) == []
    describe_ties(folder)
    dataset = PreparedDataset.open(folder)
    lap("labels")
    findings = find_suspicious(dataset, thumbnails)
    lap("rules")
    print("; ".join(str(finding) for finding in findings) or "no findings")
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--labels", nargs="+", default=["number", "pose"])
    options = parser.parse_args(arguments)
    for label in options.labels:
        with tempfile.TemporaryDirectory() as folder:
            dataset = write_large(Path(folder) / label, options.items, label, side=options.side)
            draw_images(dataset, options.side)
            if label == "pose":
                call_poses(dataset)
            seconds = measure(dataset)
            reading = seconds["reading the images"]
            thumbnails = seconds["the same with thumbnails"] - reading
            beyond = thumbnails + seconds["labels"] + seconds["rules"]
            print(
                f"{label}: {reading:.1f} s to read {options.items:,} images; beyond that {beyond:.1f} s "
                f"(thumbnails {thumbnails:.1f}, labels {seconds['labels']:.1f}, rules {seconds['rules']:.1f})"
            )


if __name__ == "__main__":
    main()
