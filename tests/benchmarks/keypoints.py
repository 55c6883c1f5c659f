"""A block of keypoint distances against the plain matrix product of the same sizes. Bar: at most 5 times its time.

    python tests/benchmarks/keypoints.py [--rows 1000] [--columns 20000] [--rounds 7]

The plain product is (1000, 48) x (48, 20000) in float64: x, y and visibility of 16 joints, without the squares, the
division by the shared joints, the exact rounding. Both sides run alternately on one BLAS thread; minima are compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from threadpoolctl import threadpool_limits

from cml.distances.poses.keypoints import Keypoints, Normalization

JOINTS, BAR = 16, 5.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    rows, columns = options.rows, options.columns
    rng = np.random.default_rng(0)
    poses = np.empty((columns, JOINTS, 3))
    poses[:, :, :2] = rng.uniform(0, 224, (columns, JOINTS, 2))
    poses[:, :, 2] = rng.random((columns, JOINTS)) < 0.9
    flat = poses.reshape(columns, -1)
    figures = {}
    with threadpool_limits(1, user_api="blas"):
        for normalization in ("crop", "centered"):
            kind: Normalization = normalization
            distance = Keypoints(kind)
            labels = distance.encode(list(poses))
            block, plain = [], []
            block_used, plain_used = [], []
            for _ in range(options.rounds):
                start, used = time.perf_counter(), time.process_time()
                distance.pairwise(labels[:rows], labels)
                middle, used_between = time.perf_counter(), time.process_time()
                _ = flat[:rows] @ flat.T
                block.append(middle - start)
                plain.append(time.perf_counter() - middle)
                block_used.append(used_between - used)
                plain_used.append(time.process_time() - used_between)
            print(
                f"{kind:9} block {min(block) * 1e3:.0f} ms, plain product {min(plain) * 1e3:.0f} ms (bar {BAR:.0f} x)"
            )
            ratio = min(block) / min(plain)
            print(f"{kind:9} ratio {ratio:.1f}")
            processor_ratio = min(block_used) / min(plain_used)
            seconds = {"seconds": min(block), "product_seconds": min(plain)}
            figures[kind] = {**seconds, "ratio": ratio, "processor_ratio": processor_ratio}
    write_figures(options.json, {"rows": rows, "columns": columns, "normalizations": figures})


if __name__ == "__main__":
    main()
