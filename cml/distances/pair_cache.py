"""The values of a function of two labels that were computed before, in memory and on disk.

They are in a matrix over the different labels, found by a digest of each label's content, so that every later set of
labels finds those that it shares with earlier ones. joblib and diskcache would store every value on its own; here a
block of them is one read. Not for: the function and what it may give (pair_function.py).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32
from cml.console.progress_bar import ProgressBar
from cml.distances.labels import Labels
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import open_regular

MOST_KEPT = 4096  # labels whose distances are kept: a matrix of 64 MB
_SILENT_SECONDS = 3.0  # until a block of pairs shows a bar
_SAVE_SECONDS = 0.2  # of work that may be lost, and at least ...
_SAVE_SHARE = 20  # ... so many times as long as saving takes
_DAMAGE = (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile)


class PairCache:
    """The values of a function, each computed once."""

    def __init__(
        self,
        function: Callable[[Any, Any], float],
        title: str,
        *,
        symmetric: bool,
        path: Path | None,  # the file that keeps values for other processes; None for none
    ) -> None:
        self._function, self._title, self._symmetric, self._path = function, title, symmetric, path
        self._places: dict[int, int] = {}
        self._matrix = np.empty((0, 0), np.float32)  # NaN where not known yet
        self._lock = threading.Lock()  # a function in Python gains nothing from threads
        self._owner, self._unsaved, self._save_took = os.getpid(), 0.0, 0.0
        if path is not None and path.exists():
            self._read(path)

    def block(
        self,
        a: Labels,  # A labels, with arrays ``labels`` and ``digests``
        b: Labels,
    ) -> Float32:  # (A, B) float32
        """Return the values for all pairs; the missing ones are computed."""
        left, right = _DistinctLabels(a), _DistinctLabels(b)
        with self._lock:
            rows, columns = self._places_of(left), self._places_of(right)
            if rows is None or columns is None:
                unknown = np.full((len(left.labels), len(right.labels)), np.nan, np.float32)
                block = self._fill_missing(left, right, unknown)
            else:
                began = time.monotonic()
                block = self._matrix[rows[:, None], columns]
                if np.isnan(block).any():
                    block = self._fill_missing(left, right, block)
                    self._matrix[rows[:, None], columns] = block
                    if self._symmetric:
                        self._matrix[columns[:, None], rows] = block.T
                    self._unsaved += time.monotonic() - began
                    self._save()
        return block[left.places[:, None], right.places]

    def _fill_missing(self, a: _DistinctLabels, b: _DistinctLabels, block: Float32) -> Float32:
        """Replace NaN in ``block`` (U, V) by the function's values."""
        values: dict[tuple[int, int], float] = {}  # of this block, where a pair may occur in both directions
        missing = np.argwhere(np.isnan(block)).tolist()
        for i, j in ProgressBar(missing, self._title, unit="pair", delay=_SILENT_SECONDS, leave=False):
            # one direction whatever the block, so that the result does not depend on it
            ends = (a.digests[i], a.labels[i]), (b.digests[j], b.labels[j])
            first, second = sorted(ends, key=lambda end: end[0]) if self._symmetric else ends
            pair = first[0], second[0]
            if pair not in values:
                values[pair] = self._function(first[1], second[1])
            block[i, j] = values[pair]
        return block

    def _places_of(self, labels: _DistinctLabels) -> NDArray[np.intp] | None:
        """Find the places of labels in the matrix, which grows for new ones; None where it would be too large."""
        count = len(self._places) + sum(digest not in self._places for digest in labels.digests)
        if count > MOST_KEPT:
            return None
        for digest in labels.digests:
            self._places.setdefault(digest, len(self._places))
        size = len(self._matrix)
        if count > size:
            grown = np.full((max(count, min(2 * size, MOST_KEPT)),) * 2, np.nan, np.float32)
            grown[:size, :size] = self._matrix
            self._matrix = grown
        return np.array([self._places[digest] for digest in labels.digests], np.intp)

    def _read(self, path: Path) -> None:
        try:
            with open_regular(path) as file, np.load(file, allow_pickle=False) as stored:
                digests, matrix = stored["digests"], stored["matrix"]
        except _DAMAGE:  # as if it were not there
            return
        count = len(digests) if digests.ndim == 1 else -1
        if digests.dtype == np.uint64 and matrix.dtype == np.float32 and matrix.shape == (count, count):
            self._places, self._matrix = {digest: place for place, digest in enumerate(digests.tolist())}, matrix

    def _save(self) -> None:
        if self._path is None or os.getpid() != self._owner:  # of data workers each would write its own
            return
        if self._unsaved < max(_SAVE_SECONDS, _SAVE_SHARE * self._save_took):
            return
        count, began = len(self._places), time.monotonic()
        digests, matrix = np.array(list(self._places), np.uint64), self._matrix[:count, :count]
        # a cache that cannot be written costs time only
        with contextlib.suppress(OSError), atomic_file(self._path) as temporary, temporary.open("wb") as file:
            np.savez(file, digests=digests, matrix=matrix)
        self._unsaved, self._save_took = 0.0, time.monotonic() - began


class _DistinctLabels:
    """The U different labels among N and their digests, in order of appearance, and the place (N,) of each."""

    def __init__(self, labels: Labels) -> None:
        digests, first, places = np.unique(labels.arrays["digests"], return_index=True, return_inverse=True)
        order = np.argsort(first)
        self.digests: list[int] = digests[order].tolist()
        self.labels = labels.arrays["labels"][first[order]]
        self.places = np.argsort(order)[places]
