"""Memory of gradient-cached batches: 2,048 images of 64 px in parts of 128, against one batch of 128 alone.

Run by hand, on Linux: ``python tests/benchmarks/gradient_cache.py [--backbone resnet34]``. Every side is a process of
its own that makes one training step (log-ratio, every item an anchor, d = 128, batch normalisation in training mode).
Its peak memory is what the kernel says, less what the process held before the step: the network, its optimiser state
and torch itself. Images and label distances of the batch belong to the step. Whole peaks are printed too.

Then gradients: 2,048 images in parts of 128 against all at once, with batch normalisation fixed, for its statistics
are those of what goes through at once. The bars are 1.3 times the memory and a difference of 1e-5.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures_file import add_json_option, write_figures  # beside this file


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--backbone", default="resnet34")
    options.add_argument("--items", type=int, default=2048)
    options.add_argument("--micro-batch", type=int, default=128)
    options.add_argument("--gradients", default="small-cnn", help="backbone of the comparison of gradients, or none")
    options.add_argument("--child", type=int, default=0, help=argparse.SUPPRESS)
    add_json_option(options)
    chosen = options.parse_args(arguments)
    if chosen.child:
        step(chosen.backbone, chosen.child, chosen.micro_batch)
        return

    peaks, figures = {}, dict[str, Any]()
    for items in (chosen.micro_batch, chosen.items):
        command = [sys.executable, __file__, "--backbone", chosen.backbone, "--micro-batch", str(chosen.micro_batch)]
        told = subprocess.run(
            [*command, "--child", str(items)], check=True, capture_output=True, text=True, timeout=3600
        ).stdout
        before, peak, seconds = map(float, told.split())
        peaks[items] = (peak - before, peak)
        figures.setdefault("sides", []).append(
            {"images": items, "step_bytes": 2**20 * (peak - before), "peak_bytes": 2**20 * peak, "seconds": seconds}
        )
        print(
            f"{chosen.backbone}, {items:5} images: step {peak - before:.0f} MiB, whole {peak:.0f} MiB, {seconds:.1f} s"
        )
    if chosen.gradients != "none":
        difference = compare(chosen.gradients, chosen.items, chosen.micro_batch)
        print(f"{chosen.gradients}, {chosen.items} images: relative difference of gradients {difference:.1e}; bar 1e-5")
        figures["gradient_difference"] = difference
    ratio, whole = (a / b for a, b in zip(peaks[chosen.items], peaks[chosen.micro_batch], strict=True))
    print(f"peak of {chosen.items} over peak of {chosen.micro_batch}: {ratio:.2f} (whole process {whole:.2f}); bar 1.3")
    write_figures(chosen.json, {**figures, "ratio": ratio, "whole_ratio": whole})


def memory(name: str) -> float:
    """MiB of VmRSS (now) or VmHWM (peak) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def step(backbone: str, items: int, micro_batch: int) -> None:
    """One training step in this process: prints MiB before, peak MiB and seconds."""
    import torch

    from cml import losses
    from cml.distributed.gradient_cache import backward
    from cml.models.embedding import EmbeddingModel, ModelConfig

    model = EmbeddingModel(ModelConfig(backbone, "none", 128, True, (64, 64)))
    optimizer = torch.optim.AdamW(model.parameters())
    loss = losses.get("log-ratio", label_exponent=1.0, floor_quantile=0.0)

    def one(number: int) -> None:
        inputs = torch.randint(0, 256, (number, 3, 64, 64), dtype=torch.uint8)
        values = torch.rand(number, 1)
        label_distances = (values - values.T).abs_()
        optimizer.zero_grad()
        backward(model, lambda f: loss(f, label_distances), inputs, micro_batch=micro_batch)
        optimizer.step()

    one(4)  # what is made once: optimiser state, compiled kernels, libraries' own buffers
    optimizer.zero_grad()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    before = memory("VmRSS")
    began = time.perf_counter()
    one(items)
    print(before, memory("VmHWM"), time.perf_counter() - began)


def compare(backbone: str, items: int, micro_batch: int) -> float:
    """Relative difference of the gradients in parts and at once, batch normalisation fixed."""
    import torch

    from cml import losses
    from cml.distributed.gradient_cache import backward
    from cml.models.embedding import EmbeddingModel, ModelConfig

    torch.manual_seed(0)
    model = EmbeddingModel(ModelConfig(backbone, "none", 128, True, (64, 64))).eval()
    loss = losses.get("log-ratio", label_exponent=1.0, floor_quantile=0.0)
    inputs = torch.randint(0, 256, (items, 3, 64, 64), dtype=torch.uint8)
    values = torch.rand(items, 1)
    label_distances = (values - values.T).abs_()
    found = []
    for size in (micro_batch, None):
        model.zero_grad()
        backward(model, lambda f: loss(f, label_distances), inputs, micro_batch=size)
        found.append(torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None]))
    return float((found[0] - found[1]).norm() / found[1].norm())


if __name__ == "__main__":
    main()
