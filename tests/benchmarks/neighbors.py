"""Time and peak memory of the 10 nearest neighbours of each of 19,919 MPII poses. Bars: 60 s and 2 GB on 2 cores.

    python tests/benchmarks/neighbors.py [--poses FOLDER] [--count 19919]

The folder holds train_joints.csv and test_joints.csv. It defaults to mpii_poses in $CML_DATA or ../shared/data. Peak
memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

from cml.array_types import Float64
from cml.distances.poses.keypoints import Keypoints

ROOT = Path(__file__).resolve().parents[2]
BAR_SECONDS, BAR_BYTES = 60.0, 2e9


def mpii_poses(folder: Path) -> Float64:
    """All poses as (N, 16, 3): x, y, visible; coordinates <= 0 are missing."""
    rows = [
        [float(value) for value in line.split(",")[1:]]
        for name in ("train_joints.csv", "test_joints.csv")
        for line in (folder / name).read_text().splitlines()
    ]
    joints = np.array(rows).reshape(len(rows), 16, 2)
    return np.concatenate([joints, (joints > 0).all(axis=2, keepdims=True)], axis=2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    base = Path(os.environ.get("CML_DATA", ROOT.parent / "shared" / "data"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--poses", type=Path, default=base / "mpii_poses")
    parser.add_argument("--count", type=int, help="the first so many; all by default")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    poses = mpii_poses(options.poses)[: options.count]
    distance = Keypoints()
    labels = distance.encode(list(poses))
    start, used = time.perf_counter(), time.process_time()
    neighbors = distance.neighbors(labels, 10, threads=2)
    seconds, used = time.perf_counter() - start, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    nearest = np.median(neighbors.distances[:, 0])
    print(f"{len(poses):,} poses, nearest neighbour at {nearest:.1f} {distance.unit} (median)")
    print(f"{seconds:.1f} s (bar {BAR_SECONDS:.0f}), peak memory {peak / 1e9:.2f} GB (bar {BAR_BYTES / 1e9:.0f})")
    print(f"ratio to the bar: time {seconds / BAR_SECONDS:.2f}, memory {peak / BAR_BYTES:.2f}")
    figures = {"seconds": seconds, "processor_seconds": used, "peak_bytes": peak}
    write_figures(options.json, {"poses": len(poses), **figures})


if __name__ == "__main__":
    main()
