"""Preparation: 288 px person crops out of 640 x 480 JPEG photographs, from the files to a finished dataset.

Run: python tests/benchmarks/prepare.py [--photos 400] [--threads 2]

Photographs are scikit-learn's sample images, shifted and saved with quality 90; boxes are as large as those of people
in COCO, many beyond the photograph's border. Each round prepares all of them into a new folder. The machine may be
shared, so the best round counts, and processor time is printed beside it: what an idle machine of two cores would
need at least. The last line is the speed as a multiple of the bar, 150 crops a second.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from PIL import Image
from sklearn.datasets import load_sample_images

from cml.data.dataset_info import DatasetInfo
from cml.data.prepared_writer import Item, write_dataset
from cml.data_prep.person_crop import box_around, crop_file

BAR = 150  # crops a second on two cores
ROUNDS = 5
SIZE = 288


def write_photos(folder: Path, count: int) -> list[Path]:
    """Photographs of 640 x 480 as a camera would save them."""
    rng = np.random.default_rng(0)
    samples = [np.asarray(Image.fromarray(image).resize((640, 480))) for image in load_sample_images().images]
    paths = []
    for number in range(count):
        pixels = np.roll(samples[number % 2], (int(rng.integers(480)), int(rng.integers(640))), (0, 1))
        paths.append(folder / f"{number:05d}.jpg")
        Image.fromarray(pixels).save(paths[-1], quality=90)
    return paths


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=400, help="photographs to crop in a round")
    parser.add_argument("--threads", type=int, default=2, help="threads to crop on")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    rng = np.random.default_rng(1)
    info = DatasetInfo("bench", "pose", "keypoints", "px", "", "drawn", "free", made_with={"source": "bench"})
    with tempfile.TemporaryDirectory() as folder:
        photos = write_photos(Path(folder), options.photos)
        items = []
        for number, photo in enumerate(photos):
            box = box_around(rng.uniform(150, 490), rng.uniform(120, 360), rng.uniform(250, 550))
            image = functools.partial(crop_file, photo, box, SIZE)
            items.append(Item(photo.stem, ("train", "query", "gallery")[number % 3], image, np.zeros((16, 3))))
        best, busy = np.inf, np.inf
        for number in range(ROUNDS):
            began, spent = time.perf_counter(), time.process_time()
            write_dataset(Path(folder) / str(number), info, items, threads=options.threads)
            best = min(best, time.perf_counter() - began)
            busy = min(busy, time.process_time() - spent)
    crops = options.photos
    print(f"{crops / best:.0f} crops/s on {options.threads} threads; {1000 * busy / crops:.1f} ms of processor a crop")
    print(f"times the bar of {BAR} crops/s: {crops / best / BAR:.2f}")
    figures = {"crops_per_second": crops / best, "processor_seconds": busy / crops, "threads": options.threads}
    write_figures(options.json, {"crops": crops, "side": SIZE, **figures})


if __name__ == "__main__":
    main()
