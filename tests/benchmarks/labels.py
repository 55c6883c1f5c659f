"""Processor time and memory of reading labels: COCO's JSON of 118,000 images, and a CSV file of a million rows.

Run: python tests/benchmarks/labels.py [coco | csv] [--share 1.0]
Bars: 118,000 images' annotations in 60 s of processor time and 1.5 GB; 10^6 rows x 5 in 40 s and 500 MB. The labels are
drawn, with seven people or boxes an image, as COCO has; images are not read, the split and the files are not written.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cml.data_prep.readers import read_labels
from cml.data_prep.sources.table import Table

IMAGES, ENTRIES, ROWS = 118_000, 860_000, 1_000_000


def draw_coco(path: Path, share: float) -> int:
    """Write annotations as COCO's instances have them: a box, a polygon of ten points, a category."""
    count, images = round(share * ENTRIES), round(share * IMAGES)
    rng = np.random.default_rng(0)
    boxes, outlines = (
        rng.uniform(0, 300, (count, 4)).round(2).tolist(),
        rng.uniform(0, 640, (count, 20)).round(2).tolist(),
    )
    photos = [{"id": n, "file_name": f"{n:012d}.jpg", "width": 640, "height": 480} for n in range(images)]
    entries = [
        {"id": n, "image_id": n % images, "category_id": 1 + n % 80, "bbox": boxes[n], "area": 100.5, "iscrowd": 0,
         "segmentation": [outlines[n]]} for n in range(count)
    ]  # fmt: skip
    kinds = [{"id": n, "name": f"kind {n}"} for n in range(1, 81)]
    path.write_text(json.dumps({"images": photos, "annotations": entries, "categories": kinds}))
    return count


def draw_csv(path: Path, share: float) -> int:
    """Write rows of five numbers."""
    count = round(share * ROWS)
    with path.open("w") as file:
        file.write("a,b,c,d,age\n")
        np.savetxt(file, np.random.default_rng(0).normal(size=(count, 5)), "%.5f", ",")
    return count


def read_coco(path: Path) -> int:
    """Read the rows one by one, as sources do."""
    return sum(1 for _ in read_labels(path, "boxes"))


def read_csv(path: Path) -> int:
    """Prepare a dataset of vectors, up to what is written."""
    out = Path(path).parent / "set"
    dataset = Table(path, features=("a", "b", "c", "d"), label_columns=("age",)).prepare(out)
    return sum(dataset.info.counts.values())


CASES: dict[str, tuple[Callable[[Path, float], int], Callable[[Path], int], str]] = {
    "coco": (draw_coco, read_coco, "a.json"),
    "csv": (draw_csv, read_csv, "a.csv"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw a file in a process of its own, read it, and print what that took."""
    import multiprocessing

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows")
    given = parser.parse_args(arguments)
    draw, read, name = CASES[given.case]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        drawing = multiprocessing.Process(target=draw, args=(path, given.share))
        drawing.start()
        drawing.join()
        start = time.process_time()
        count = read(path)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds = time.process_time() - start
        size = path.stat().st_size / 1e6
        print(f"{given.case}: {count:,} rows of {size:.0f} MB in {seconds:.1f} s, {peak / 1024:.0f} MB")


if __name__ == "__main__":
    main()
