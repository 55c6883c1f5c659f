"""Time and memory of a linear head on many vectors: training, and evaluation of some queries among all of them.

Run: python tests/benchmarks/vectors.py [--rows 100000] [--size 768] [--mapped] [--queries 1000] [--label pose]

Rows are drawn with a few strong directions, on which labels of 3 numbers depend, or poses of 16 joints. With
``--mapped`` they are float16 in a memory-mapped file, which does not count as memory of the process. Seconds are
wall-clock and CPU time; the last column is the largest anonymous memory (RssAnon) of the process so far, sampled 50
times a second.

The evaluation of the model has rows of the vectors in three forms; it is loaded, so that it has none of a ridge
regression. Two evaluations of one embedding alone come before it: of the model's, and of the vectors as they are. What
the three rows add to the first is printed over the second.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

import cml
from cml.array_types import Float64, Floating
from cml.retrieval import Evaluation, evaluate_embeddings

_ROWS_AT_ONCE = 1 << 14
_DIRECTIONS = 8


def main(arguments: Sequence[str] | None = None) -> None:
    """Print seconds and memory of both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=768)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--mapped", action="store_true", help="float16 in a memory-mapped file")
    parser.add_argument("--label", choices=("numbers", "pose"), default="numbers")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    import torch  # noqa: F401 - not part of what is timed

    distance = {"numbers": "euclidean", "pose": "keypoints"}[options.label]
    with tempfile.TemporaryDirectory() as folder:
        rows, labels = draw(options.rows, options.size, Path(folder) / "rows.npy" if options.mapped else None)
        sampler = f"random(batch_size={options.batch})"
        if options.label == "pose":
            labels = draw_poses(labels)
        fitted = measure(
            lambda: cml.fit(rows, labels, label_distance=distance, steps=options.steps, sampler=sampler, quiet=True)
        )
        model = cml.load(fitted.pop("result").save(Path(folder) / "model"), label_distance=distance)
        count = options.queries
        query, searched = rows[:count], rows[count:]
        given = labels[:count], labels[count:]
        few = (query[:40], given[0][:40], searched[:400], given[1][:400])
        model.evaluate(*few)  # compiles

        def evaluate_alone(query_embeddings: Floating, embeddings: Floating) -> Evaluation:
            return evaluate_embeddings(query_embeddings, given[0], embeddings, given[1], label_distance=distance)

        narrow = measure(lambda: evaluate_alone(model.embed(query), model.embed(searched)))
        wide = measure(lambda: evaluate_alone(query, searched))
        evaluated = measure(lambda: model.evaluate(query, given[0], searched, given[1]))
        result = [part.pop("result") for part in (narrow, wide, evaluated)][-1]
    parts = {"fit": fitted, "embedding": narrow, "vectors": wide, "evaluate": evaluated}
    figures: dict[str, Any] = {"rows": options.rows, "size": options.size, "queries": options.queries, **parts}
    for name, part in parts.items():
        print(
            f"{name:9} {part['seconds']:6.1f} s, {part['processor_seconds']:6.1f} s of CPU time, "
            f"{part['anonymous_bytes'] / 1e9:.2f} GB"
        )
    one, alone, whole = (part["processor_seconds"] for part in (narrow, wide, evaluated))
    figures["whole_over_vectors"], figures["added_over_vectors"] = whole / alone, (whole - one) / alone
    print(f"the model's evaluation takes {whole / alone:.2f} times that of the vectors alone")
    print(f"its three rows of vectors add {(whole - one) / alone:.2f} times that of the vectors alone")
    figures["spearman_rho"] = result.rows["embedding"]["spearman_rho"].mean
    print(f"spearman_rho {figures['spearman_rho']:.3f}")
    write_figures(options.json, figures)


def draw(count: int, size: int, path: Path | None) -> tuple[Floating, Float64]:
    """Draw vectors and labels.

    Args:
        count: N.
        size: F.
        path: A file for float16 vectors; None for float32 in memory.

    Returns:
        The vectors (N, F) and labels (N, 3).
    """
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(_DIRECTIONS, size)).astype(np.float32)
    rows: Floating = (
        np.empty((count, size), np.float32)
        if path is None
        else np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(count, size))
    )
    labels = np.empty((count, 3))
    for start in range(0, count, _ROWS_AT_ONCE):
        part = slice(start, min(start + _ROWS_AT_ONCE, count))
        latent = rng.normal(size=(part.stop - start, _DIRECTIONS)).astype(np.float32)
        rows[part] = latent @ basis + rng.normal(0, 2, (len(latent), size)).astype(np.float32)
        labels[part] = np.tanh(latent[:, :3]) + rng.normal(0, 0.05, (len(latent), 3))
    if path is None:
        return rows, labels
    rows.flush()  # type: ignore[attr-defined]
    del rows
    return np.load(path, mmap_mode="r"), labels


def draw_poses(places: Float64) -> Float64:
    """Make poses of 16 joints.

    Args:
        places: (N, 3) numbers, on which the joints depend.

    Returns:
        (N, 16, 3): x, y and visibility.
    """
    rng = np.random.default_rng(1)
    joints = 100 * np.tensordot(places, rng.normal(size=(3, 16, 2)), axes=1)  # (N, 16, 2)
    joints += rng.normal(0, 5, joints.shape)
    return np.concatenate([joints, np.ones((*joints.shape[:2], 1))], axis=2)


def measure(call: Callable[[], Any]) -> dict[str, Any]:
    """Call a function, and measure its seconds and the largest anonymous memory meanwhile.

    Args:
        call: The function.

    Returns:
        Its result and the figures.
    """
    largest, is_done = [_anonymous_bytes()], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.02):
            largest[0] = max(largest[0], _anonymous_bytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    start, processor = time.perf_counter(), time.process_time()
    result = call()
    seconds, used = time.perf_counter() - start, time.process_time() - processor
    is_done.set()
    watcher.join()
    return {"result": result, "seconds": seconds, "processor_seconds": used, "anonymous_bytes": largest[0]}


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
