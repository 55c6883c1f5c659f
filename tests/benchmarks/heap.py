"""A step of training and a pass of a network, by processes that keep freed memory as every command does, or do not.

    python tests/benchmarks/heap.py [--rounds 5]

The processes run in turn; the ratio of median times and the most memory of each are printed last.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

WORK = {"small-cnn": (128, 64), "resnet18": (32, 128), "efficientnet-lite0": (1, 640)}  # images, pixels of a side
PASSES = ("efficientnet-lite0",)  # not trained


def work(backbone: str, keep: bool, threads: int, passes: int) -> dict[str, float]:
    """Seconds of a step or pass, megabytes at most."""
    import torch

    from cml.models.embedding import EmbeddingModel, ModelConfig
    from cml.processes.memory import keep_freed_memory

    if keep:
        keep_freed_memory()
    torch.set_num_threads(threads)
    count, side = WORK[backbone]
    model = EmbeddingModel(ModelConfig(backbone, "none", 128, False, (side, side))).train(backbone not in PASSES)
    images = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)
    seconds, processor = [], []
    for _ in range(passes):
        begin, used = time.perf_counter(), time.process_time()
        with torch.set_grad_enabled(model.training):
            embeddings = model(images)
        if model.training:
            torch.pdist(embeddings).mean().backward()
            model.zero_grad()
        seconds.append(time.perf_counter() - begin)
        processor.append(time.process_time() - used)
    return {
        "seconds": float(np.median(seconds[passes // 4 :])),
        "processor_seconds": float(np.median(processor[passes // 4 :])),
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--backbones", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--passes", type=int, default=8, help="in a process")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    if options.work is not None:
        backbone, keep = options.work
        print(json.dumps(work(backbone, keep == "keep", options.threads, options.passes)))
        return

    def measured(backbone: str, how: str) -> dict[str, Any]:
        settings = ["--threads", str(options.threads), "--passes", str(options.passes)]
        command = [sys.executable, __file__, *settings, "--work", backbone, how]
        found: dict[str, Any] = json.loads(
            subprocess.run(command, check=True, capture_output=True, timeout=3600).stdout
        )
        return found

    figures = {}
    for backbone in options.backbones:
        count, side = WORK[backbone]
        sides: dict[str, list[dict[str, float]]] = {"keep": [], "default": []}
        for _ in range(options.rounds):
            for how, found in sides.items():
                found.append(measured(backbone, how))
        seconds = {how: np.median([one["seconds"] for one in found]) for how, found in sides.items()}
        most = {how: max(one["megabytes"] for one in found) for how, found in sides.items()}
        print(
            f"{backbone}, {count} images of {side} px: {seconds['keep'] * 1000:.0f} ms instead of "
            f"{seconds['default'] * 1000:.0f} ms, {most['keep']:.0f} MB instead of {most['default']:.0f} MB; "
            f"{seconds['default'] / seconds['keep']:.2f} times as fast"
        )
        processor = {how: np.median([one["processor_seconds"] for one in found]) for how, found in sides.items()}
        gain, memory = seconds["default"] / seconds["keep"], most["keep"] / most["default"]
        ratios = {"ratio": gain, "processor_ratio": processor["default"] / processor["keep"], "memory_ratio": memory}
        figures[backbone] = {"seconds": seconds, "processor_seconds": processor, "megabytes": most, **ratios}
    write_figures(options.json, {"backbones": figures})


if __name__ == "__main__":
    main()
