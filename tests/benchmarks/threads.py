"""What the number of torch threads changes in training: how far weights and embeddings are apart after some steps.

Run: python tests/benchmarks/threads.py [--steps 50]

Trains small-cnn on 120 random pictures of 32 px with the same seed: twice with one thread, twice with two. The last
line is the largest difference of a weight between one and two threads, as a multiple of the largest weight.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from torch import Tensor

import cml


def weights(steps: int, threads: int) -> tuple[Tensor, Tensor]:
    """All weights in a row, and the embeddings of the training images."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (120, 32, 32, 3), np.uint8), rng.uniform(0, 1, 120)
    config = cml.TrainConfig(
        backbone="small-cnn",
        weights="none",
        image_size=(32, 32),
        sampler="random(batch_size=40)",
        steps=steps,
        workers=0,
        device="cpu",
    )
    torch.set_num_threads(threads)
    model = cml.fit(images, labels, config, quiet=True)
    return torch.cat([value.flatten().double() for value in model.state_dict().values()]), torch.from_numpy(
        model.embed(images)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=50)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    steps = options.steps
    one, again, two, twice = (weights(steps, threads) for threads in (1, 1, 2, 2))
    equal = {"one_thread": torch.equal(one[0], again[0]), "two_threads": torch.equal(two[0], twice[0])}
    print(f"one thread twice: {'identical' if equal['one_thread'] else 'different'}")
    print(f"two threads twice: {'identical' if equal['two_threads'] else 'different'}")
    apart, embeddings = (one[0] - two[0]).abs().max().item(), (one[1] - two[1]).abs().max().item()
    print(f"one against two: weights up to {apart:.2e} apart, embeddings of length 1 up to {embeddings:.2e}")
    print(f"{apart / one[0].abs().max().item():.2e}")
    differences = {"weight_difference": apart, "embedding_difference": embeddings}
    write_figures(options.json, {"steps": steps, "equal": equal, **differences})


if __name__ == "__main__":
    main()
