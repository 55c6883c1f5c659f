"""One query in arrays, folders and ``cml.Index`` beside faiss's flat index, and one addition. Bars: 1.2 times, 15 ms.

    python tests/benchmarks/index.py [--queries 100] [--items N] [--million]

Rows lie on curved surfaces of 10 dimensions. In one process with one thread, each query is searched by the four in
turn, so that all meet the same machine; the ratio is that of the medians of processor time. An addition of one item to
100,000 x 128 is timed with the search that finds it. ``--million`` makes an index of a million items, and prints how
much of the true neighbours faiss finds in it, and how fast.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import faiss
import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

import cml
from cml.array_types import Float32
from cml.retrieval.gallery import Gallery
from cml.searching.embedding_folder import DIGESTED, EmbeddingFolder, encode_item
from cml.storage.regular_file import digest_file

SIZES, K, BAR, ADDITION_BAR = ((20_000, 128), (100_000, 128), (30_000, 768)), 10, 1.2, 15.0


def draw(items: int, dimension: int) -> Float32:
    """Rows of length 1 on a curved surface, with some noise."""
    rng = np.random.default_rng(0)
    hidden, weights = rng.normal(size=(items, 10)), rng.normal(size=(10, dimension))
    rows = np.tanh(hidden @ weights) + 0.05 * rng.normal(size=(items, dimension))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def clock(call: Callable[[], object]) -> float:
    """Seconds of processor time of this thread."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def write_folder(folder: Path, rows: Float32) -> EmbeddingFolder:
    """A folder as ``cml embed`` writes it."""
    folder.mkdir()
    np.save(folder / "embeddings.npy", rows)
    lines = [encode_item({"item_id": str(item), "value": item}) for item in range(len(rows))]
    (folder / "items.jsonl").write_bytes(b"".join(lines))
    about = {"format": 1, "run": "", "images": "", "items": len(rows), "skipped": 0, "dimension": rows.shape[1]}
    made = {"model": "m", "made_with": {"model": "m", "images": ""}}
    digests = {"sha256": {name: digest_file(folder / name) for name in DIGESTED}}
    (folder / "manifest.json").write_text(json.dumps(about | made | digests), encoding="ascii")
    return EmbeddingFolder.open(folder)


def compare(items: int, dimension: int, queries: int, place: Path) -> dict[str, float]:
    """Median milliseconds of one query."""
    rows = draw(items + queries, dimension)
    gallery, asked = rows[:items].copy(), rows[items:].copy()
    flat = faiss.IndexFlatL2(dimension)
    flat.add(gallery)
    held = Gallery(gallery)
    folder = write_folder(place / "folder", gallery)
    index = cml.Index.create(place / "index", dimension=dimension, digest="m")
    index.add(gallery, ids=range(items), labels=range(items))
    calls: dict[str, Callable[[Float32], object]] = {
        "faiss flat": lambda query: flat.search(query, K),
        "array": lambda query: held.search(query, K),
        "folder": lambda query: folder.search(query, K),
        "index": lambda query: index.search(query, K),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for row in range(-3, queries):
        query = asked[row : row + 1] if row >= 0 else asked[:1]
        for name, call in calls.items():
            spent = clock(lambda call=call, query=query: call(query))  # type: ignore[misc]
            if row >= 0:
                seconds[name].append(spent)
    for row in range(min(20, queries)):
        wanted = held.search(asked[row : row + 1], K)[1][0].tolist()
        assert [int(hit.item_id) for hit in index.search(asked[row : row + 1], K)[0]] == wanted
        assert [int(hit.item_id) for hit in folder.search(asked[row : row + 1], K)[0]] == wanted
    return {name: 1e3 * float(np.median(spent)) for name, spent in seconds.items()}


def add_one(items: int, queries: int, place: Path) -> float:
    """Median milliseconds of an addition and a search."""
    rows = draw(items + queries, 128)
    index = cml.Index.create(place / "index", dimension=128, digest="m")
    index.add(rows[:items], ids=range(items))
    index.search(rows[:1], K)

    def change(row: int) -> None:
        index.add(rows[row : row + 1], ids=[row])
        assert index.search(rows[row : row + 1], 1)[0][0].item_id == str(row)

    return 1e3 * float(np.median([clock(lambda row=row: change(row)) for row in range(items, len(rows))]))  # type: ignore[misc]


def search_million(place: Path) -> dict[str, float]:
    """Recall and milliseconds a query of faiss in an index of a million items, and of exact search."""
    rows = draw(1_000_200, 128)
    start = time.perf_counter()
    index = cml.Index.create(place / "index", dimension=128, digest="m")
    index.add(rows[:1_000_000], ids=range(1_000_000))
    built = time.perf_counter() - start
    recall, found = index.recall, {}
    for name, exact in (("faiss", False), ("exact", True)):
        index.search(rows[-1:], K, exact=exact)
        spent = [clock(lambda at=at, e=exact: index.search(rows[at : at + 1], K, exact=e)) for at in range(-200, -100)]  # type: ignore[misc]
        found[f"{name}_ms"] = 1e3 * float(np.median(spent))
    return {"recall": recall["value"] if recall else 1.0, "build_seconds": built, **found}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--items", type=int, help="items of 128 numbers, in place of the three sizes")
    parser.add_argument("--million", action="store_true", help="also an index of a million items")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    faiss.omp_set_num_threads(1)
    figures: dict[str, dict[str, float]] = {}
    for items, dimension in SIZES if options.items is None else ((options.items, 128),):
        with tempfile.TemporaryDirectory() as place:
            spent = compare(items, dimension, options.queries, Path(place))
        figures[f"{items} x {dimension}"] = spent
        ratios = ", ".join(f"{name} {spent[name] / spent['faiss flat']:.2f}" for name in ("array", "folder", "index"))
        print(
            f"{items:,} x {dimension}: faiss flat {spent['faiss flat']:.2f} ms; times that: {ratios} (bar {BAR})",
            flush=True,
        )
    with tempfile.TemporaryDirectory() as place:
        added_to = options.items or 100_000
        addition = add_one(added_to, min(50, options.queries), Path(place))
    print(f"one addition to {added_to:,} x 128 and a search: {addition:.1f} ms (bar {ADDITION_BAR:g})", flush=True)
    figures["addition"] = {"ms": addition}
    if options.million:
        with tempfile.TemporaryDirectory() as place:
            figures["million"] = search_million(Path(place))
        print("a million items: " + ", ".join(f"{name} {value:.3g}" for name, value in figures["million"].items()))
    write_figures(options.json, {"k": K, **figures})


if __name__ == "__main__":
    main()
