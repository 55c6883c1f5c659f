"""Label distances that training with captions asks for: blocks on demand against the matrix of a small training set.

    python tests/benchmarks/caption_blocks.py

2,000 drawn scenes, batches of 150 with every item an anchor. Processor time of one thread: of a block on demand, of the
matrix (a part of its rows, scaled up), and of a block read from it. The last line says after how many batches the
matrix has paid, and how many times as fast a comparison of 21 runs of 250 batches gets its label distances.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cml.data_prep.drawn.scenes.captions import describe
from cml.data_prep.drawn.scenes.scenes import RING, sample_things
from cml.distances.captions.distance import Captions
from cml.distances.precomputed import Precomputed

ITEMS, BATCH, STEPS, RUNS, ROUNDS = 2000, 150, 250, 21, 5


def seconds(run: Callable[[], object]) -> float:
    """Least processor time of some rounds."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    """Measure and print."""
    captions = []
    for item in range(ITEMS):
        rng = np.random.default_rng(item)
        captions.append(list(describe(sample_things(rng, item % len(RING)), rng)))
    distance = Captions("scene-words")
    labels = distance.encode(captions)
    batch = labels[np.random.default_rng(0).permutation(ITEMS)[:BATCH]]
    distance.pairwise(batch, batch)  # compiles
    on_demand = seconds(lambda: distance.pairwise(batch, batch))
    rows = 40
    strip = seconds(lambda: distance.pairwise(labels[:rows], labels[ITEMS // 2 :]))
    matrix = strip * (ITEMS * (ITEMS - 1) / 2) / (rows * ITEMS / 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrix.npy"
        np.save(path, np.zeros((ITEMS, ITEMS), np.float32))
        stored = Precomputed(str(path), symmetric=True)
        chosen = stored.encode(np.random.default_rng(0).permutation(ITEMS)[:BATCH].tolist())
        read = seconds(lambda: stored.pairwise(chosen, chosen))
    print(f"a block of {BATCH} x {BATCH}: {1000 * on_demand:.0f} ms on demand, {1000 * read:.1f} ms from the matrix")
    print(f"the matrix of {ITEMS} items: {matrix:.0f} s of one processor, once")
    every = RUNS * STEPS
    ratio = every * on_demand / (matrix + every * read)
    print(f"paid after {matrix / (on_demand - read):.0f} batches; {RUNS} runs of {STEPS}: {ratio:.1f} times as fast")


if __name__ == "__main__":
    main()
