"""Label distances that training with captions asks for: blocks on demand against the matrix of a small training set.

    python tests/benchmarks/caption_blocks.py [--items 2000] [--batch 150] [--rounds 5]

2,000 drawn scenes, batches of 150 with every item an anchor. Processor time of one thread: of a block on demand, of the
matrix (a part of its rows, scaled up), and of a block read from it. The last line says after how many batches the
matrix has paid, and how many times as fast a comparison of 21 runs of 250 batches gets its label distances.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cml.data_prep.synthetic.scenes.arrangement import sample_things
from cml.data_prep.synthetic.scenes.captions import describe
from cml.data_prep.synthetic.things.picture import RING
from cml.distances.captions.distance import Captions
from cml.distances.precomputed import Precomputed

STEPS, RUNS = 250, 21


def seconds(run: Callable[[], object], rounds: int) -> float:
    """Least processor time of some rounds."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    items, size, rounds = options.items, options.batch, options.rounds
    captions = []
    for item in range(items):
        rng = np.random.default_rng(item)
        captions.append(list(describe(sample_things(rng, item % len(RING)), rng)))
    distance = Captions("scene-words")
    labels = distance.encode(captions)
    batch = labels[np.random.default_rng(0).permutation(items)[:size]]
    distance.pairwise(batch, batch)  # compiles
    on_demand = seconds(lambda: distance.pairwise(batch, batch), rounds)
    rows = 40
    strip = seconds(lambda: distance.pairwise(labels[:rows], labels[items // 2 :]), rounds)
    matrix = strip * (items * (items - 1) / 2) / (rows * items / 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrix.npy"
        np.save(path, np.zeros((items, items), np.float32))
        stored = Precomputed(str(path), symmetric=True)
        chosen = stored.encode(np.random.default_rng(0).permutation(items)[:size].tolist())
        read = seconds(lambda: stored.pairwise(chosen, chosen), rounds)
    print(f"a block of {size} x {size}: {1000 * on_demand:.0f} ms on demand, {1000 * read:.1f} ms from the matrix")
    print(f"the matrix of {items} items: {matrix:.0f} s of one processor, once")
    every = RUNS * STEPS
    ratio = every * on_demand / (matrix + every * read)
    print(f"paid after {matrix / (on_demand - read):.0f} batches; {RUNS} runs of {STEPS}: {ratio:.1f} times as fast")


if __name__ == "__main__":
    main()
