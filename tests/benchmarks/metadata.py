"""Reading metadata.jsonl: the reader of valid lines, and the one that describes faults, by turns in one process.

    python tests/benchmarks/metadata.py [--items 20000] [--rounds 5]

Printed is the best time per item of each kind of label, and how many times as long the second reader takes.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from large_dataset import write_large

from cml.data.metadata import _LineReader, _Reader

COLUMNS = {"number": "value", "pose": "keypoints", "captions": "captions"}


def refuse(fault: str) -> None:
    """Stop at a fault: the datasets have none."""
    raise AssertionError(fault)


def best_times(folder: Path, column: str, rounds: int) -> dict[str, float]:
    """Seconds of the fastest of some rounds, by reader."""
    readers: dict[str, Callable[[], _Reader]] = {
        "valid lines": lambda: _Reader(folder, column),
        "faults": lambda: _LineReader(folder, column, refuse),
    }
    seconds = dict.fromkeys(readers, float("inf"))
    for _ in range(rounds):
        for name, make_reader in readers.items():
            reader = make_reader()
            begin = time.perf_counter()
            reader.read()
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    gc.disable()  # as read_metadata does
    with tempfile.TemporaryDirectory() as folder:
        for label, column in COLUMNS.items():
            dataset = write_large(Path(folder) / label, options.items, label)
            seconds = best_times(dataset, column, options.rounds)
            fast, slow = (1e6 * seconds[name] / options.items for name in ("valid lines", "faults"))
            print(f"{label:<9}{fast:6.1f} us an item, {slow:6.1f} us if faults are described: {slow / fast:.1f} times")


if __name__ == "__main__":
    main()
