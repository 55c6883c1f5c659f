"""Throughput of the captioning export against the bare loop ``model(images)`` on the same loader. Bar: at least 95 %.

    python tests/benchmarks/export.py [--images 128] [--scale 1] [--layouts directory hdf5 lmdb] [--att-sizes 7 14]

Images of COCO's most frequent sizes (``--scale 0.5``: at half of them, a quarter of the network's work for as much to
write) are drawn into a temporary folder. All sides decode and batch them in the same way; the bare loop runs the
network and drops what it gives, an export pools, converts, writes and forces features to the disk. Every export runs
between two bare loops and is compared with their mean; the median over the rounds counts, because the machine may be
shared and its speed drifts. The ratio of processor times is printed beside that of throughputs. The clock of an export
starts when it begins with its images: what comes before, the digest of the weights above all, takes as long for 100
images as for 100,000.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from PIL import Image

from cml.array_types import Float64
from cml.data.decoding import decode_chunks
from cml.data.image_list import ImageList
from cml.export.captioning import CHUNK, CaptioningFeatures, export_captioning, same_size_batches
from cml.export.captioning_view import CaptioningView
from cml.export.feature_stores import Layout
from cml.export.trunk import open_trunk
from cml.processes.freed_memory import keep_freed_memory

BAR = 0.95
SIZES = ((480, 640), (480, 640), (640, 480), (427, 640))  # height and width
DECODING = 2  # images at a time


def draw_images(folder: Path, count: int, scale: float) -> None:
    """Smooth pictures with some detail, as JPEG."""
    rng = np.random.default_rng(0)
    for number in range(count):
        height, width = (round(scale * side) for side in SIZES[number % len(SIZES)])
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height))
        noisy = np.asarray(coarse).astype(np.int16) + rng.integers(-12, 13, (height, width, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number + 1:012}.jpg", quality=90)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--layouts", nargs="+", choices=get_args(Layout), default=get_args(Layout))
    parser.add_argument("--att-sizes", nargs="+", type=int, choices=(7, 14), default=(7, 14))
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2, help="of torch; several spin where others are busy")
    add_json_option(parser)
    options = parser.parse_args(arguments)

    keep_freed_memory()  # as every command does
    torch.set_num_threads(options.threads)
    model = open_trunk(options.backbone, device="cpu").model
    kinds = [
        CaptioningFeatures(layout=layout, att_size=side) for layout in options.layouts for side in options.att_sizes
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "images").mkdir()
        draw_images(folder / "images", options.images, options.scale)
        images = ImageList.open(folder / "images").with_coco_ids()
        view = CaptioningView(kinds[0].view, model.config.image_size, kinds[0].longest)

        def clock() -> tuple[float, float]:
            return time.perf_counter(), time.process_time()

        def bare() -> tuple[float, float]:
            begin = clock()
            with torch.inference_mode():
                for chunk in decode_chunks(images.paths, view, size=CHUNK, threads=DECODING, skip_bad=False):
                    for _, pixels in same_size_batches(chunk, 1):
                        model.features(torch.from_numpy(pixels).permute(0, 3, 1, 2))
            return begin

        def export(kind: CaptioningFeatures) -> tuple[float, float]:
            begin = []
            export_captioning(
                model, images, folder / "out", kind, threads=DECODING, quiet=True, tell=lambda _: begin.append(clock())
            )
            return begin[0]

        def measured(side: Callable[[], tuple[float, float]]) -> Float64:
            begin = side()
            spent = np.subtract(clock(), begin)
            shutil.rmtree(folder / "out", ignore_errors=True)
            return spent

        bare()  # the first pass finds the fastest kernels
        ratios: dict[str, list[Float64]] = {f"{kind.layout}, S = {kind.att_size}": [] for kind in kinds}
        before, bares = measured(bare), []
        for number in range(options.rounds):
            for kind, (name, found) in zip(kinds, ratios.items(), strict=True):
                wall, busy = spent = measured(functools.partial(export, kind))
                after = measured(bare)
                found.append((before + after) / 2 / spent)
                print(
                    f"{number + 1}: {name}: {wall:.2f} s, processor {busy:.2f} s; ratio {found[-1][0]:.3f}", flush=True
                )
                before = after
                bares.append(after[0])
    print(f"{options.images / np.median(bares):.1f} images/s in the bare loop")
    figures = dict[str, dict[int, dict[str, float]]]()
    for kind, (name, found) in zip(kinds, ratios.items(), strict=True):
        throughput, busy = np.median(found, axis=0)
        figures.setdefault(kind.layout, {})[kind.att_size] = {"throughput": throughput, "processor": busy}
        print(f"{name}: throughput {throughput:.3f} of the bare loop's (bar {BAR}), processor time {busy:.3f}")
    sizes = {"images": options.images, "scale": options.scale, "bare_seconds": bares}
    write_figures(options.json, {**sizes, "layouts": figures})


if __name__ == "__main__":
    main()
