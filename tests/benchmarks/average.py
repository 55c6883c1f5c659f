"""What the exponential moving average of weights adds to a training step.

    python tests/benchmarks/average.py [--rounds 20]

Each step is followed by its update; the medians, their ratio and the size of the copy are printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file

from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.training.averaged_weights import AveragedWeights


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--backbones", nargs="+", default=["small-cnn", "efficientnet-lite0"])
    parser.add_argument("--images", type=int, default=60, help="in a batch")
    parser.add_argument("--size", type=int, default=64, help="pixels of a side")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures = {}
    for backbone in options.backbones:
        size = options.size, options.size
        model = EmbeddingModel(ModelConfig(backbone, "none", 128, True, size))
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        images = torch.randint(0, 256, (options.images, 3, *size), dtype=torch.uint8)
        average, steps, updates = AveragedWeights(model, 0.99), [], []
        processor: tuple[list[float], list[float]] = ([], [])
        for number in range(1, options.rounds + 1):
            begin, used = time.perf_counter(), time.process_time()
            optimizer.zero_grad()
            torch.pdist(model(images)).mean().backward()
            optimizer.step()
            steps.append(time.perf_counter() - begin)
            processor[0].append(time.process_time() - used)
            begin, used = time.perf_counter(), time.process_time()
            average.update(number)
            updates.append(time.perf_counter() - begin)
            processor[1].append(time.process_time() - used)
        step, update = np.median(steps), np.median(updates)
        megabytes = sum(one.nbytes for one in average.state_dict().values()) / 1e6
        print(
            f"{backbone}, {options.images} images of {options.size} px: step {1e3 * step:.1f} ms, average "
            f"{1e3 * update:.2f} ms ({100 * update / step:.2f} % of it), {megabytes:.1f} MB"
        )
        seconds = {"step_seconds": step, "update_seconds": update, "share": update / step}
        share = np.median(processor[1]) / np.median(processor[0])
        figures[backbone] = {**seconds, "processor_share": share, "copy_bytes": 1e6 * megabytes}
    write_figures(options.json, {"images": options.images, "side": options.size, "backbones": figures})


if __name__ == "__main__":
    main()
