"""Throughput of the captioning export against the bare loop ``model(images)`` on the same loader. Bar: at least 95 %.

    python tests/benchmarks/export.py [--images 128] [--scale 1] [--layout directory] [--att-size 7] [--rounds 6]

Images of COCO's most frequent sizes (``--scale 0.5``: at half of them, a quarter of the network's work for as much to
write) are drawn into a temporary folder. Both sides decode and batch them in the same way; the bare loop runs the
network and drops what it gives, the export pools, converts, writes and forces features to the disk. They are measured
in turn, in changing order, and the least time of each counts, because the machine may be shared; processor time, which
others disturb less, is printed too.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from PIL import Image

from cml.export.captioning import CHUNK, CaptioningFeatures, export_captioning, same_size_batches
from cml.export.captioning_view import View
from cml.export.decoding import decoded_chunks
from cml.export.feature_stores import Layout
from cml.export.image_list import ImageList
from cml.export.trunk import open_trunk

BAR = 0.95
SIZES = ((480, 640), (480, 640), (640, 480), (427, 640))  # height and width
THREADS = 2


def draw_images(folder: Path, count: int, scale: float) -> None:
    """Smooth pictures with some detail, as JPEG."""
    rng = np.random.default_rng(0)
    for number in range(count):
        height, width = (round(scale * side) for side in SIZES[number % len(SIZES)])
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height))
        noisy = np.asarray(coarse).astype(np.int16) + rng.integers(-12, 13, (height, width, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number + 1:012}.jpg", quality=90)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--layout", choices=get_args(Layout), default="directory")
    parser.add_argument("--att-size", type=int, choices=(7, 14), default=7)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()

    torch.set_num_threads(2)
    model = open_trunk(options.backbone, device="cpu").model
    features = CaptioningFeatures(layout=options.layout, att_size=options.att_size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "images").mkdir()
        draw_images(folder / "images", options.images, options.scale)
        images = ImageList.open(folder / "images").with_coco_ids()
        view = View(features.view, model.config.image_size, features.longest)

        def bare() -> None:
            with torch.inference_mode():
                for chunk in decoded_chunks(images.paths, view, size=CHUNK, threads=THREADS, skip_bad=False):
                    for _, pixels in same_size_batches(chunk, 1):
                        model.features(torch.from_numpy(pixels).permute(0, 3, 1, 2))

        def export() -> None:
            export_captioning(model, images, folder / "out", features, threads=THREADS, quiet=True)
            shutil.rmtree(folder / "out")

        def seconds(run: Callable[[], None]) -> tuple[float, float]:
            begin, busy = time.perf_counter(), time.process_time()
            run()
            return time.perf_counter() - begin, time.process_time() - busy

        seconds(bare)  # the first pass finds the fastest kernels
        rounds = []
        for number in range(options.rounds):  # whoever comes second may be better or worse off
            if number % 2:
                exported = seconds(export)
                rounds.append((*seconds(bare), *exported))
            else:
                rounds.append((*seconds(bare), *seconds(export)))
            print("bare loop {:.2f} s, processor {:.2f} s; export {:.2f} s, {:.2f} s".format(*rounds[-1]), flush=True)
    wall, busy, export_wall, export_busy = (min(column) for column in zip(*rounds, strict=True))
    print(f"{options.images / wall:.1f} images/s bare, {options.images / export_wall:.1f} images/s exported")
    print(f"processor time of the bare loop to that of the export: {busy / export_busy:.3f}")
    print(f"ratio of throughputs: {wall / export_wall:.3f} (bar {BAR})")


if __name__ == "__main__":
    main()
