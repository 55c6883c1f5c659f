"""The option ``--json FILE`` of the benchmarks: it writes the figures of a run unrounded. Not a benchmark itself.

Records of results are made of such files: see ``docs/making/records.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cml.storage.json_file import write_json


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json FILE`` to a benchmark's options.

    Args:
        parser: The parser of its command line.
    """
    parser.add_argument("--json", type=Path, metavar="FILE", help="file to write the unrounded figures to")


def write_figures(path: Path | None, figures: Mapping[str, object]) -> None:
    """Write the figures of a benchmark as JSON.

    Args:
        path: The value of ``--json``; None writes nothing.
        figures: Nested dicts and lists of finite numbers, of NumPy's too.

    Raises:
        TypeError: A value is neither a number nor a dict or list.
        ValueError: A number is NaN or infinite.
    """
    if path is not None:
        write_json(path, _plain(figures))


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, bool | int | float):
        return value
    raise TypeError(f"A figure must be a number, not {value!r}.")
