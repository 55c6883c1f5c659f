"""Which stop words a distance of captions should leave out: whether one caption of a photograph finds the others.

Run: python tests/benchmarks/caption_stop_words.py [--images 1000] [--parts 3]

Each part of 4,000 COCO photographs is a set of its own: the first caption of every photograph is a
query, and the next four captions of every photograph are the gallery. A line has recall@1, recall@10 and the processor
time of one list of stop words, and the share of captions that lose a word of number, place or state by it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
from captions_neighbors import coco_captions  # beside this file
from figures_file import add_json_option, write_figures

from cml import distances
from cml.distances.captions.tokens import stop_words, tokenize

LISTS = ("english", "function", "none")
CONTENT = frozenset(
    {"two", "three", "four", "five", "six", "eight", "nine", "ten", "full", "empty", "without", "fire", "computer"}
    | {"front", "top", "bottom", "side", "back", "behind", "above", "below", "under", "over", "across", "through"}
    | {"down", "up", "off", "out", "inside", "between", "around", "along", "near", "few", "many", "several"}
)
_GALLERY_CAPTIONS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each list of stop words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000, help="photographs of a part")
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--vectors", default="glove-6b-50d")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    images = [captions for captions in coco_captions() if len(captions) > _GALLERY_CAPTIONS]
    parts = [images[start : start + options.images] for start in range(0, len(images), options.images)]
    figures = {}
    for name in LISTS:
        before = time.process_time()
        ranks = np.concatenate([rank_own(part, name, options.vectors) for part in parts[: options.parts]])
        figures[name] = {
            "recall@1": float((ranks < 1).mean()),
            "recall@10": float((ranks < 10).mean()),
            "seconds": time.process_time() - before,
            "losing": share_losing_content(images, name),
        }
        print(name, {key: round(value, 3) for key, value in figures[name].items()}, flush=True)
    write_figures(options.json, {"images": options.images, "parts": options.parts, "stop_words": figures})


def rank_own(images: Sequence[Sequence[str]], name: str, vectors: str) -> np.ndarray:
    """How many photographs are nearer to the first caption of a photograph than its other captions are, (N,)."""
    distance = distances.get("captions", vectors=vectors, stop_words=name, empty_caption="drop")
    queries = distance.encode([captions[:1] for captions in images])
    gallery = distance.encode([captions[1 : 1 + _GALLERY_CAPTIONS] for captions in images])
    between = distance.pairwise(queries, gallery)
    ranks: np.ndarray = (between < np.diag(between)[:, None]).sum(axis=1)
    return ranks


def share_losing_content(images: Sequence[Sequence[str]], name: str) -> float:
    """The share of captions in which a word of ``CONTENT`` is left out."""
    lost = CONTENT & stop_words(name)
    losing = [bool(lost & set(tokenize(text, rule="words", lower=True))) for captions in images for text in captions]
    return float(np.mean(losing))


if __name__ == "__main__":
    main()
