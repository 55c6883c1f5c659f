"""Time of the README's example of ``cml.fit``, beside that of another checkout of cml, as before a change.

Run: python tests/benchmarks/fit_example.py [--against CHECKOUT] [--rounds 10] [--json FILE]

The two take turns, each time in a process of its own. ``first`` is the first call in the process, with what it imports
and the workers that it starts; ``next`` is the median of the following calls. Ratios are this checkout's time divided
by the other's, the median over rounds with its quartiles, so that a busy machine slows both. ``processor`` is the time
that all processes computed, on which others have little effect.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from figures_file import add_json_option, write_figures  # beside this file

ROOT = Path(__file__).resolve().parents[2]
_TIMES = ("first", "next", "processor")
_LIMIT = 600  # seconds for a process
_CHILD = """
import json, os, statistics, sys, time
import numpy as np, torch
import cml

steps, calls = map(int, sys.argv[1:])
rng = np.random.default_rng(0)
places = rng.uniform(8, 56, 600)
blobs = np.exp(-((np.arange(64) - places[:, None]) ** 2) / 20)[:, None, :, None]
images = (255 * blobs * rng.uniform(0.3, 1, (600, 64, 1, 3))).astype(np.uint8)
seconds = []
for _ in range(calls):
    start = time.perf_counter()
    cml.fit(images[:400], places[:400], backbone="small-cnn", weights="none", image_size=(64, 64), steps=steps)
    seconds.append(time.perf_counter() - start)
times = os.times()
computed = times.user + times.system + times.children_user + times.children_system
print(json.dumps([seconds[0], statistics.median(seconds[1:]), computed]))
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the times of both checkouts and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, default=ROOT, help="the other checkout; by default this one, for noise")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--calls", type=int, default=4, help="calls of cml.fit in a process, at least 2")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    checkouts = [ROOT, options.against.resolve()]
    times: list[list[list[float]]] = [[], []]
    for number in range(options.rounds):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[side].append(_measure(checkouts[side], options.steps, options.calls))
    figures = {}
    for column, name in enumerate(_TIMES):
        ours, theirs = ([one[column] for one in side] for side in times)
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        seconds = f"{statistics.median(ours):.2f} s against {statistics.median(theirs):.2f} s"
        print(f"{name:<9}  {seconds}, ratio {middle:.3f} [{low:.3f}, {high:.3f}]")
        figures[name] = {"seconds": ours, "against": theirs, "ratio": middle}
    write_figures(options.json, figures)


def _measure(checkout: Path, steps: int, calls: int) -> list[float]:
    """The times of a process with the cml of a checkout, in the order of ``_TIMES``, in seconds."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", _CHILD, str(steps), str(calls)]
    told = subprocess.run(
        command, env=environment, cwd=checkout, capture_output=True, text=True, check=True, timeout=_LIMIT
    )
    times: list[float] = json.loads(told.stdout)
    return times


if __name__ == "__main__":
    main()
