"""Exact 10 nearest of each of 4,000 COCO photographs by their captions, against brute force on a sample of rows.

    python tests/benchmarks/captions_neighbors.py [--images 4000]

Packaged GloVe (extra ``glove``), with and without stop words, two threads. Bar: 2 minutes on 2 cores, equal lists.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

from cml.distances.captions.distance import Captions
from cml.distances.nearest import nearest_columns
from cml.word_vectors.packaged_glove import PACKAGED

K, THREADS, CHECKED = 10, 2, 20


def data_folder() -> Path:
    """Where the real data lies."""
    return Path(os.environ.get("CML_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def coco_captions() -> list[list[str]]:
    """The captions of 4,000 COCO photographs."""
    captions = collections.defaultdict(list)
    for line in json.loads((data_folder() / "coco_captions" / "captions_val2017_4000.json").read_text())["annotations"]:
        captions[line["image_id"]].append(line["caption"])
    return list(captions.values())


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    captions = coco_captions()[: options.images]
    rows = np.random.default_rng(0).choice(len(captions), CHECKED, replace=False)
    slowest, figures = 0.0, {}
    for stop in ("none", "english"):
        distance = Captions(PACKAGED, stop_words=stop, empty_caption="drop")
        labels = distance.encode(captions)
        distance.neighbors(labels[:20], 1)  # compiled
        start, used = time.perf_counter(), time.process_time()
        found = distance.neighbors(labels, K, threads=THREADS)
        seconds, used = time.perf_counter() - start, time.process_time() - used
        slowest = max(slowest, seconds)
        start_brute = time.process_time()
        block = distance.pairwise(labels[rows], labels)
        brute = (time.process_time() - start_brute) / CHECKED * len(captions)
        block[np.arange(CHECKED), rows] = np.inf
        ids, distances = nearest_columns(block, K)
        equal = np.array_equal(ids, found.ids[rows]) and np.array_equal(distances, found.distances[rows])
        print(f"stop words {stop}: {seconds:.1f} s, {used:.1f} s of processor, all pairs {brute:.0f} s; equal: {equal}")
        figures[stop] = {"seconds": seconds, "processor_seconds": used, "all_pairs_seconds": brute, "equal": equal}
    print(f"slowest: {slowest:.1f} s (bar 120)")
    write_figures(options.json, {"images": len(captions), "k": K, "stop_words": figures})


if __name__ == "__main__":
    main()
