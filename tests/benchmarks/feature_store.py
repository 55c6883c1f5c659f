"""Time and memory of a feature store of many small rows: writing, a second run, finding items, a head on them.

Run: python tests/benchmarks/feature_store.py [--rows 1000000] [--size 32] [--dtype float16]

A function copies rows of a memory-mapped file, so that what is measured is the store. Seconds are wall-clock; memory is
the largest anonymous memory (RssAnon) of the process during a part, and in brackets by how much it exceeds that at the
start, after the libraries were imported.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from vectors import _anonymous_bytes, draw, measure  # beside this file

import cml


def main(arguments: Sequence[str] | None = None) -> None:
    """Print seconds and memory of each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float16")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        rows, labels = draw(options.rows, options.size, Path(folder) / "rows.npy")
        cml.features(rows[:100], backbone=copy_rows, out=Path(folder) / "small", quiet=True)  # imports what it needs
        before = _anonymous_bytes()
        write = functools.partial(
            cml.features, rows, backbone=copy_rows, out=Path(folder) / "store", dtype=options.dtype, quiet=True
        )
        figures: dict[str, Any] = {"rows": options.rows, "size": options.size, "bits": int(options.dtype[-2:])}
        figures["write"] = measure(write)
        store = figures["write"].pop("result")
        figures["again"] = measure(write)
        figures["again"].pop("result")
        sampler = f"random(batch_size={options.batch})"
        fit = functools.partial(cml.fit, store, labels, steps=options.steps, sampler=sampler, quiet=True)
        figures["fit"] = measure(fit)
        figures["fit"].pop("result")
        size = sum(path.stat().st_size for path in store.folder.iterdir())
    for name in ("write", "again", "fit"):
        part = figures[name]
        more = part["anonymous_bytes"] - before
        print(f"{name:6} {part['seconds']:6.1f} s, {part['anonymous_bytes'] / 1e6:.0f} MB (+{more / 1e6:.0f} MB)")
    print(f"{options.rows} x {options.size} {options.dtype}: {size / 1e6:.0f} MB on disk")
    write_figures(options.json, figures)


def copy_rows(rows: np.ndarray) -> np.ndarray:
    """The network: rows as they are."""
    return np.array(rows, np.float32)


if __name__ == "__main__":
    main()
