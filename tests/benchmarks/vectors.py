"""Time and memory of a linear head on many vectors: training, and evaluation of some queries among all of them.

Run: python tests/benchmarks/vectors.py [--rows 100000] [--size 768] [--mapped] [--queries 1000]

Rows are drawn with a few strong directions, on which labels of 3 numbers depend. With ``--mapped`` they are float16 in
a memory-mapped file, which does not count as memory of the process. Seconds are wall-clock and CPU time; the last
column is the largest anonymous memory (RssAnon) of the process so far, sampled 50 times a second.
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
    add_json_option(parser)
    options = parser.parse_args(arguments)
    import torch  # noqa: F401 - not part of what is timed

    with tempfile.TemporaryDirectory() as folder:
        rows, labels = draw(options.rows, options.size, Path(folder) / "rows.npy" if options.mapped else None)
        sampler = f"random(batch_size={options.batch})"
        fitted = measure(lambda: cml.fit(rows, labels, steps=options.steps, sampler=sampler, quiet=True))
        model = fitted.pop("result")
        queries = np.arange(options.queries) * (options.rows // options.queries)
        gallery = np.setdiff1d(np.arange(options.rows), queries) if not options.mapped else slice(None)
        evaluated = measure(lambda: model.evaluate(rows[queries], labels[queries], rows[gallery], labels[gallery]))
        result = evaluated.pop("result")
    figures: dict[str, Any] = {"rows": options.rows, "size": options.size, "fit": fitted, "evaluate": evaluated}
    for name, part in (("fit", fitted), ("evaluate", evaluated)):
        print(
            f"{name:9} {part['seconds']:6.1f} s, {part['processor_seconds']:6.1f} s of CPU time, "
            f"{part['anonymous_bytes'] / 1e9:.2f} GB"
        )
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
