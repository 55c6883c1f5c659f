"""Layout distances against the loop over pairs that a user would write. Bars: at least 200 times as fast, 1e-6 equal.

    python tests/benchmarks/layout.py [--maps 1000 4000] [--pairs 2000] [--rounds 3]

1,000 maps of 60x60 with 5 classes: all pairs by cml, a sample of pairs by the loop, its time scaled to all pairs.
Then the whole matrix of 4,000 maps. Bars: 10 s and 2 GB on 2 cores. Peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

from cml.array_types import UInt8
from cml.distances.layout.distance import Layout

SIDE, CLASSES = 60, 5


def rooms(n: int) -> UInt8:
    """N random room layouts (N, 60, 60): ceiling, floor and three walls with drawn borders."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    top, bottom = rng.uniform(0.05, 0.35, (2, n, 1, 1))
    left, right = rng.uniform(0.05, 0.45, (2, n, 1, 1))
    slope = rng.uniform(-0.2, 0.2, (2, n, 1, 1))
    maps = np.where(x < left, 2, np.where(x > 1 - right, 3, 1))
    maps = np.where(y < top + slope[0] * x, 5, np.where(y > 1 - bottom + slope[1] * x, 4, maps))
    return maps.astype(np.uint8)


def one_pair(a: UInt8, b: UInt8) -> float:
    """1 - mIoU as a user would write it."""
    ious = []
    for one in range(1, CLASSES + 1):
        in_a, in_b = a == one, b == one
        either = np.logical_or(in_a, in_b).sum()
        if either:
            ious.append(np.logical_and(in_a, in_b).sum() / either)
    return 1 - float(np.mean(ious))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", type=int, nargs=2, default=(1000, 4000))
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    less, more = options.maps
    distance = Layout(resolution=SIDE)
    maps = rooms(more)
    few, all_maps = distance.encode(list(maps[:less])), distance.encode(list(maps))
    pairs = np.random.default_rng(1).integers(0, less, (options.pairs, 2))
    fast, slow, error = [], [], 0.0
    for _ in range(options.rounds):
        start = time.perf_counter()
        matrix = distance.pairwise(few, few)
        fast.append(time.perf_counter() - start)
        start = time.perf_counter()
        loop = [one_pair(maps[i], maps[j]) for i, j in pairs]
        slow.append((time.perf_counter() - start) * less * less / options.pairs)
        error = max(error, float(np.abs(matrix[pairs[:, 0], pairs[:, 1]] - loop).max()))
    print(f"N={less:,}: {min(fast):.2f} s, loop {min(slow):.0f} s, largest difference {error:.1e} (bar 1e-6)")
    start, used = time.perf_counter(), time.process_time()
    distance.pairwise(all_maps, all_maps)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"N={more:,}: {seconds:.1f} s (bar 10), peak memory {peak / 1e9:.2f} GB (bar 2)")
    many = {"maps": more, "seconds": seconds, "processor_seconds": used, "peak_bytes": peak}
    start = time.perf_counter()
    matched = Layout(resolution=SIDE, matching="hungarian")
    matched.pairwise(few, few)
    seconds = time.perf_counter() - start
    print(f"N={less:,} with matching=hungarian: {seconds:.2f} s")
    ratio = min(slow) / min(fast)
    print(f"ratio: {ratio:.0f} (bar 200)")
    few_figures = {"maps": less, "seconds": min(fast), "loop_seconds": min(slow), "hungarian_seconds": seconds}
    write_figures(options.json, {"ratio": ratio, "difference": error, "few": few_figures, "many": many})


if __name__ == "__main__":
    main()
