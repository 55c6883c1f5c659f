"""The values of a function of two labels that were asked for before, in memory and on disk.

They lie in a matrix over the different labels, found by a digest of each label's content, so that every later set of
labels finds those that it shares with earlier ones. Not for: the function and what it may give (pair_function.py).
"""

from __future__ import annotations

import os
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.label_distance import Float32
from cml.distances.labels import Labels
from cml.processes.bar import Bar
from cml.storage.atomic import atomic_file, open_regular

MOST_KEPT = 4096  # labels whose distances are kept: a matrix of 64 MB
_SILENT_SECONDS = 3.0  # until a block of pairs shows a bar
_SAVE_SECONDS = 0.2  # of work that may be lost, and at least ..
_SAVE_SHARE = 20  # .. so many times as long as saving takes
_DAMAGE = (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile)


class KeptPairs:
    """What ``function(a, b)`` gives.

    Args:
        function: Of two labels.
        title: What it is called, for the progress bar.
        symmetric: Ask for each pair in one direction alone.
        path: Where values are kept for other processes; None for nowhere.
    """

    def __init__(
        self, function: Callable[[Any, Any], float], title: str, *, symmetric: bool, path: Path | None
    ) -> None:
        self._function, self._title, self._symmetric, self._path = function, title, symmetric, path
        self._places: dict[int, int] = {}
        self._matrix = np.empty((0, 0), np.float32)  # NaN where not known yet
        self._lock = threading.Lock()  # a function in Python gains nothing from threads
        self._owner, self._unsaved, self._save_took = os.getpid(), 0.0, 0.0
        if path is not None and path.exists():
            self._read(path)

    def block(self, a: Labels, b: Labels) -> Float32:
        """The values for labels with the arrays ``labels`` and ``digests``: (len(a), len(b)) float32."""
        left, right = _Distinct(a), _Distinct(b)
        with self._lock:
            rows, columns = self._known(left), self._known(right)
            if rows is None or columns is None:
                block = self._computed(left, right, np.full((len(left.labels), len(right.labels)), np.nan, np.float32))
            else:
                began = time.monotonic()
                known = self._matrix[rows[:, None], columns]
                if np.isnan(known).any():
                    found = self._computed(left, right, known)
                    self._matrix[rows[:, None], columns] = found
                    if self._symmetric:
                        self._matrix[columns[:, None], rows] = found.T
                    self._unsaved += time.monotonic() - began
                    self._save()
                block = self._matrix[rows[:, None], columns]
        return block[left.places[:, None], right.places]

    def _computed(self, a: _Distinct, b: _Distinct, block: Float32) -> Float32:
        """``block`` (U, V) with the function's values where it has NaN."""
        found: dict[tuple[int, int], float] = {}  # of this block, where a pair may occur in both directions
        missing = np.argwhere(np.isnan(block)).tolist()
        for i, j in Bar(missing, self._title, unit="pair", delay=_SILENT_SECONDS, leave=False):
            # one direction whatever the block, so that the result does not depend on it
            ends = (a.digests[i], a.labels[i]), (b.digests[j], b.labels[j])
            one, other = sorted(ends, key=lambda end: end[0]) if self._symmetric else ends
            pair = one[0], other[0]
            if pair not in found:
                found[pair] = self._function(one[1], other[1])
            block[i, j] = found[pair]
        return block

    def _known(self, labels: _Distinct) -> NDArray[np.intp] | None:
        """The places of labels in the matrix, which grows for new ones; None where it would be too large."""
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
        try:
            with atomic_file(self._path) as temporary, temporary.open("wb") as file:
                np.savez(file, digests=np.array(list(self._places), np.uint64), matrix=self._matrix[:count, :count])
        except OSError:
            pass  # a cache that cannot be written costs time only
        self._unsaved, self._save_took = 0.0, time.monotonic() - began


class _Distinct:
    """The different labels among N: U labels and digests, as they come, and the place of each of the N among them."""

    def __init__(self, labels: Labels) -> None:
        digests, first, places = np.unique(labels.arrays["digests"], return_index=True, return_inverse=True)
        order = np.argsort(first)
        self.digests: list[int] = digests[order].tolist()
        self.labels = labels.arrays["labels"][first[order]]
        self.places = np.argsort(order)[places]
