"""Real sequences: an embedding that is learned from dynamic time warping, beside features and the exact distance.

    python tests/benchmarks/sequence_sets.py [--sets GunPoint ..] [--folder DIR] [--seeds 3] [--json FILE]

The sets travel inside the package aeon (BSD-3), whose published splits are kept: movements of a hand (GunPoint,
PickupGestureWiimoteZ) and spoken vowels (JapaneseVowels). aeon is read from where it is installed and not imported:
``pip install --no-deps aeon``. Each test sequence is a query among the training sequences:

- accuracy: whether the nearest training sequence is of its class
- recall@10: the share of the 10 nearest by the exact distance among the 10 nearest found
- recall@10, 30 re-ranked: the same, where the nearest 30 are sorted by the exact distance
- ms: processor time a query, from the sequence to its list

The inputs of the embedding are the statistics and the curves, so that it is compared with what it starts from.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from threadpoolctl import threadpool_limits

import cml
from cml.array_types import Float32, Float64, Int64
from cml.data_prep.readers import read_labels
from cml.errors import DataError

SETS = ("GunPoint", "PickupGestureWiimoteZ", "JapaneseVowels")
K, CANDIDATES, STEPS_OF_A_CURVE = 10, 30, 24


class Sequences(NamedTuple):
    """One side of a set."""

    tracks: list[Float64]  # N sequences (T, F)
    classes: list[str]  # of each


def find_sets() -> Path:
    """The folder of the sets inside aeon."""
    found = importlib.util.find_spec("aeon")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("The sets travel inside the package aeon: pip install --no-deps aeon")
    return Path(found.submodule_search_locations[0]) / "datasets" / "data"


def read_set(folder: Path, part: str, most: int) -> Sequences:
    """Read the sequences of a .ts file: the columns of numbers, and the class."""
    tracks, classes = [], []
    for _, row in itertools.islice(read_labels(folder / f"{folder.name}_{part}.ts", "numbers"), most):
        if isinstance(row, DataError):
            raise row
        tracks.append(np.array([values for name, values in row.items() if name != "class"]).T)
        classes.append(row["class"])
    return Sequences(tracks, classes)


def measure_statistics(track: Float64) -> Float64:
    """Mean, spread, ends, extremes and mean change of each number, and the length."""
    change = np.abs(np.diff(track, axis=0)).mean(axis=0)
    parts = [track.mean(0), track.std(0), track[0], track[-1], track.min(0), track.max(0), change, [np.log(len(track))]]
    return np.concatenate(parts)


def resample(track: Float64) -> Float64:
    """A sequence at equally many steps."""
    places = np.linspace(0, len(track) - 1, STEPS_OF_A_CURVE)
    return np.concatenate([np.interp(places, np.arange(len(track)), column) for column in track.T])


def describe(tracks: Sequence[Float64], feature: Callable[[Float64], Float64]) -> Float64:
    """A feature of all sequences."""
    return np.stack([feature(track) for track in tracks])


def find_nearest(queries: Float64 | Float32, gallery: Float64 | Float32) -> Int64:
    """The gallery items of each query, nearest first."""
    apart = np.square(queries[:, None].astype(np.float64) - gallery[None]).sum(axis=2)
    return np.argsort(apart, axis=1, kind="stable")


def score(order: Int64, true: Float32, train: Sequences, test: Sequences) -> dict[str, float]:
    """Accuracy and recall of lists of gallery items."""
    classes = np.array(train.classes)
    exact = np.argsort(true, axis=1, kind="stable")[:, :K]
    near = order[:, :CANDIDATES]
    sorted_again = np.take_along_axis(near, np.take_along_axis(true, near, axis=1).argsort(axis=1), axis=1)
    return {
        "accuracy": float((classes[order[:, 0]] == np.array(test.classes)).mean()),
        "recall@10": _share(exact, order[:, :K]),
        "recall@10, 30 re-ranked": _share(exact, sorted_again[:, :K]),
    }


def _share(wanted: Int64, found: Int64) -> float:
    return float(np.mean([np.isin(row, other).mean() for row, other in zip(wanted, found, strict=True)]))


def compare(folder: Path, seeds: int, steps: int, most: int) -> dict[str, dict[str, float]]:
    """Measure each way of searching on one set; of several seeds the means."""
    train, test = read_set(folder, "TRAIN", most), read_set(folder, "TEST", most)
    distance = cml.distances.get("dtw")
    gallery, queries = distance.encode(train.tracks), distance.encode(test.tracks)
    distance.pairwise(queries[:1], gallery)  # compiled
    start = time.process_time()
    true = distance.pairwise(queries, gallery)
    took = 1000 * (time.process_time() - start) / len(test.tracks)
    rows = {"exact": {**score(np.argsort(true, axis=1, kind="stable"), true, train, test), "ms": took}}
    inputs: list[Float64] = []
    described = 0.0
    for title, feature in (("statistics", measure_statistics), ("curves", resample)):
        own = describe(train.tracks, feature)
        start = time.process_time()
        asked = describe(test.tracks, feature)
        mean, spread = own.mean(axis=0), own.std(axis=0) + 1e-9
        asked, own = (asked - mean) / spread, (own - mean) / spread
        described += 1000 * (time.process_time() - start) / len(test.tracks)
        order = find_nearest(asked, own)
        rows[f"frozen {title}"] = {
            **score(order, true, train, test), "ms": 1000 * (time.process_time() - start) / len(test.tracks)
        }  # fmt: skip
        inputs += [own, asked]
    taught, new = (np.concatenate(inputs[side::2], axis=1).astype(np.float32) for side in (0, 1))
    learned = []
    for seed in range(seeds):
        settings: dict[str, Any] = {"label_distance": "dtw", "backbone": "mlp(256, 256)", "steps": steps, "seed": seed}
        model = cml.fit(taught, train.tracks, quiet=True, **settings)
        embedded = model.embed(taught)
        start = time.process_time()
        order = find_nearest(model.embed(new), embedded)
        took = 1000 * (time.process_time() - start) / len(test.tracks)
        learned.append({**score(order, true, train, test), "ms": took + described})
    rows["embedding"] = {key: float(np.mean([one[key] for one in learned])) for key in learned[0]}
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--folder", type=Path, help="with a folder for each set; by default that of aeon")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--most", type=int, default=1000, help="sequences of a side at most")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    folder, figures = options.folder or find_sets(), dict[str, dict[str, float]]()
    with threadpool_limits(1):
        for name in options.sets:
            for row, cells in compare(folder / name, options.seeds, options.steps, options.most).items():
                print(
                    f"{name:22} {row:18}", "  ".join(f"{key} {value:.3f}" for key, value in cells.items()), flush=True
                )
                figures[f"{name}, {row}"] = cells
    write_figures(options.json, figures)


if __name__ == "__main__":
    main()
