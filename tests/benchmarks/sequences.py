"""Label distances of sequences beside dtaidistance, tslearn and rapidfuzz: matrices, and lists of the nearest 10.

    python tests/benchmarks/sequences.py [--items 1000] [--steps 100]

Tracks of 3 numbers a step are 40 closed curves, each repeated with other speed, offset and noise. Each library computes
by turns with the others, in one process with one thread, so that all meet the same machine; seconds are of processor
time. Bars: the matrix no slower than the fastest library's, and the lists in a fifth of its time. tslearn is left out
where it is not installed. A matrix of dtaidistance is one triangle, and so are cml's and tslearn's.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Callable, Sequence

import numpy as np
from dtaidistance import dtw_ndim
from figures_file import add_json_option, write_figures  # beside this file
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist
from threadpoolctl import threadpool_limits

import cml.distances
from cml.array_types import Float64

CURVES, K, BAND = 40, 10, 10


def draw_tracks(items: int, steps: int) -> list[Float64]:
    """Noisy repetitions of some closed curves, at changing speed."""
    rng = np.random.default_rng(0)
    amplitudes, phases = rng.normal(0, [[1], [0.5]], (CURVES, 2, 3)), rng.uniform(0, 2 * np.pi, (CURVES, 2, 3))
    tracks = []
    for item in range(items):
        curve = item % CURVES
        times = np.linspace(0, 2 * np.pi, steps) + 0.3 * np.sin(np.linspace(0, np.pi, steps)) * rng.normal()
        waves = np.sin(np.arange(1, 3)[:, None, None] * times[:, None] + phases[curve][:, None])
        track = (amplitudes[curve][:, None] * waves).sum(axis=0)
        tracks.append(track + rng.normal(0, 0.05, 3) + rng.normal(0, 0.02, track.shape))
    return tracks


def clock(call: Callable[[], object]) -> float:
    """Seconds of processor time."""
    start = time.process_time()
    call()
    return time.process_time() - start


def compare(tracks: list[Float64], band: int) -> dict[str, float]:
    """Seconds of matrices and lists."""
    distance = cml.distances.get("dtw", band=band)
    labels, few = distance.encode(tracks), distance.encode(tracks[:20])
    distance.pairwise(few, few)
    distance.neighbors(few, 3, threads=1)  # compiled
    calls: dict[str, Callable[[], object]] = {
        "cml": lambda: distance.pairwise(labels, labels),
        # a window of 1 is the diagonal
        "dtaidistance": lambda: dtw_ndim.distance_matrix_fast(
            tracks, window=band + 1 if band else None, parallel=False
        ),
        "cml, lists": lambda: distance.neighbors(labels, K, threads=1),
    }
    if importlib.util.find_spec("tslearn"):
        from tslearn.metrics import cdist_dtw

        limits = {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": band} if band else {}
        cdist_dtw(tracks[:3], **limits)
        calls["tslearn"] = lambda: cdist_dtw(tracks, **limits)
    return {name: clock(call) for name, call in calls.items()}


def compare_texts(items: int, steps: int) -> dict[str, float]:
    """Seconds of matrices of edit distances."""
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abcdefgh"), steps)) for _ in range(items)]
    distance = cml.distances.get("edit")
    labels = distance.encode(texts)
    distance.pairwise(labels[:3], labels[:3])
    return {
        "cml": clock(lambda: distance.pairwise(labels, labels)),
        "rapidfuzz": clock(lambda: cdist(texts, texts, scorer=Levenshtein.distance, workers=1)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    tracks = draw_tracks(options.items, options.steps)
    figures: dict[str, dict[str, float]] = {}
    with threadpool_limits(1):
        for band in (0, BAND):
            figures[f"dtw, band {band}"] = compare(tracks, band)
        figures["edit"] = compare_texts(min(options.items, 300), options.steps)
    for name, seconds in figures.items():
        least = min(value for who, value in seconds.items() if not who.startswith("cml"))
        shown = ", ".join(f"{who} {value:.2f} s ({value / least:.2f})" for who, value in seconds.items())
        print(f"{name}: {shown}", flush=True)
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
