"""Private memory that a memory-mapped matrix of label distances takes while it is checked, trained on and evaluated.

    python tests/benchmarks/matrix_memory.py [--items 20000] [--folder /tmp]

The matrix (N, N) of float32 holds the distances of drawn points and is written to ``--folder`` first, block by block.
Private memory is what the process cannot give back to its files (RssAnon); a thread reads its peak every 5 ms. The
figure of a stage is how far the peak lies above what the process held before the matrix was opened, with the model and
everything else that the stages make. Queries are evaluated in one thread, each of which has blocks of its own.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

import cml
from cml.distances import as_label_distance
from cml.retrieval import EvaluateOptions

_BLOCK = 500  # rows that are written at a time


def private_megabytes() -> float:
    """The private memory of this process."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


class Peak:
    """The most private memory while it is open, less what was there before."""

    def __init__(self) -> None:
        self.most = self._before = private_megabytes()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._closed.wait(0.005):
            self.most = max(self.most, private_megabytes())

    def above(self) -> float:
        """Megabytes so far."""
        return max(self.most, private_megabytes()) - self._before

    def __enter__(self) -> Peak:
        """Begin to watch."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop watching."""
        self._closed.set()
        self._thread.join()


def write_matrix(path: Path, points: np.ndarray) -> None:
    """Write the distances of all points to each other."""
    count = len(points)
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(count, count))
    for start in range(0, count, _BLOCK):
        rows = points[start : start + _BLOCK]
        matrix[start : start + _BLOCK] = np.sqrt(np.square(rows[:, None] - points).sum(axis=2))
    matrix.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where the matrix is written for as long as it is used")
    add_json_option(parser)
    given = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(given.items, 2)).astype(np.float32)
    rows = np.concatenate([points, rng.normal(size=(given.items, 6))], axis=1).astype(np.float32)
    queries = np.sort(rng.permutation(given.items)[: min(300, given.items // 2)])
    gallery = np.setdiff1d(np.arange(given.items), queries)

    def evaluate(model: cml.Model, labels: Any) -> None:  # noqa: ANN401 - an array or a list
        ours = [labels[rows] for rows in (queries, gallery)]
        model.evaluate(
            rows[queries], ours[0], rows[gallery], ours[1], options=EvaluateOptions(whole_ranking=False, threads=1)
        )

    # what is loaded or compiled once counts for nothing
    small = np.linalg.norm(points[:60, None] - points[:60], axis=2)
    cml.fit(rows[:60], label_distance=small, steps=2, quiet=True).evaluate(rows[:60], range(60))
    plain = cml.fit(rows, points, label_distance="euclidean", steps=20, quiet=True)
    figures = {}
    with Peak() as peak:
        evaluate(plain, points)
        figures["evaluated, labels of two numbers"] = peak.above()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "matrix.npy"
        write_matrix(path, points)
        with Peak() as peak:
            distance = as_label_distance(np.load(path, mmap_mode="r"))
            figures["checked"] = peak.above()
            model = cml.fit(rows, label_distance=distance, steps=20, quiet=True)
            figures["trained"] = peak.above()
            evaluate(model, np.arange(given.items))
            figures["evaluated"] = peak.above()
        figures["the matrix"] = path.stat().st_size / 2**20
    for name, megabytes in figures.items():
        print(f"{name:33} {megabytes:8.0f} MB")
    write_figures(given.json, figures)


if __name__ == "__main__":
    main()
