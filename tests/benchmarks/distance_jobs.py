"""Peak memory and speed of distance jobs on MPII poses: matrix in both types, and neighbour lists. Bar: O(strip).

    python tests/benchmarks/distance_jobs.py [--scratch FOLDER] [--sizes 5000 10000 19919] [--kinds neighbors ..]

Each job runs in a process of its own, for 5,000 to 19,919 poses, on two threads. A job holds two strips of up to 4
million pairs (16 MB of float32) and what it takes to make them, whatever the number of poses. "Start" is the peak of
the process with its labels encoded and its code compiled, before the job. The result is written to the scratch folder
(a temporary one by default) and deleted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from figures_file import add_json_option, write_figures  # beside this file

from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import write_matrix, write_neighbors
from cml.distances.poses.keypoints import Keypoints

SIZES = (5_000, 10_000, 19_919)
KINDS = ("float32", "float16", "neighbors")
K = 100


def peak() -> float:
    """Peak memory of this process in MB, file pages included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def job(kind: str, count: int, folder: Path) -> None:
    """Do one job and print what it took as JSON."""
    from neighbors import ROOT, mpii_poses

    base = Path(os.environ.get("CML_DATA", ROOT.parent / "shared" / "data"))
    distance = Keypoints(squared=False)
    labels = distance.encode(list(mpii_poses(base / "mpii_poses")[:count]))
    distance.pairwise(labels[:2], labels[:2])  # compiled
    start = peak()
    options = JobOptions(bar_after=None)
    if kind == "neighbors":
        result = write_neighbors(distance, labels, folder, K, options=options)
    else:
        result = write_matrix(distance, labels, folder, dtype=kind, options=options)
    size = sum(path.stat().st_size for path in folder.glob("*.npy"))
    print(json.dumps({"start": start, "peak": peak(), "size": size, "rate": result.pairs / result.seconds}))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    if options.job:
        kind, count, folder = options.job
        job(kind, int(count), Path(folder))
        return
    base = options.scratch or Path(tempfile.mkdtemp())
    base.mkdir(parents=True, exist_ok=True)
    worst, figures = 0.0, dict[str, list[dict[str, float]]]()
    for kind in options.kinds:
        peaks = []
        for count in options.sizes:
            folder = base / f"{kind}-{count}"
            command = [sys.executable, __file__, "--job", kind, str(count), str(folder)]
            done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=3600).stdout)
            shutil.rmtree(folder)
            peaks.append(done["peak"] - done["start"])
            memory = {"peak_bytes": 1e6 * done["peak"], "start_bytes": 1e6 * done["start"]}
            sizes = {"poses": count, "file_bytes": done["size"], "pairs_per_second": done["rate"]}
            figures.setdefault(kind, []).append({**sizes, **memory})
            print(
                f"{kind:9} of {count:,} poses: {done['size'] / 1e6:,.0f} MB on disk, peak memory {done['peak']:.0f} MB "
                f"(start {done['start']:.0f} MB), {done['rate'] / 1e6:.1f} M pairs/s"
            )
        worst = max(worst, peaks[-1] / max(peaks[0], 0.1))
    few, many = options.sizes[0], options.sizes[-1]
    print(
        f"memory of a job, {many:,} poses / {few:,} poses: ratio {worst:.1f} at most "
        f"({(many / few) ** 2:.0f} for all pairs)"
    )
    write_figures(options.json, {"kinds": figures, "memory_ratio": worst})


if __name__ == "__main__":
    main()
