"""A user's own function of two labels as a label distance, with the values that were computed before.

Values are kept in memory and on disk, in a matrix over the different labels, found by a digest of each label's content,
so that every later set of labels finds those that it shares with earlier ones. joblib and diskcache would store every
value on its own; here a block of them is one read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import numbers
import os
import threading
import time
import weakref
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32
from cml.console.progress_bar import ProgressBar
from cml.distances.content_hash import Content, content_digest
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import UserError
from cml.processes.memory import is_out_of_memory
from cml.storage.atomic import atomic_file
from cml.storage.downloads import cache_folder
from cml.storage.regular_file import open_regular

_SAMPLE, _SAMPLE_SECONDS = 24, 0.5  # labels whose pairs are asked for both ways, and for how long ...
_FEWEST = 10  # ... but so many pairs at least
_ROUNDING = 1e-5  # relative difference of the two ways that is rounding
_LARGEST = float(np.finfo(np.float32).max)
_in_use: weakref.WeakValueDictionary[str, PairCache] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class PairFunction(LabelDistance):
    """A function of two labels, called once for each pair of different content, with labels as they were given."""

    # returns a number >= 0, 0 for equal labels, infinity for two labels that cannot be compared
    function: Callable[[Any, Any], Any]
    title: str  # what the function is called
    unit: str = "label units"  # the unit of its values
    metric: bool = False  # True if the triangle inequality holds
    symmetric: bool | None = None  # True if it gives the same for (a, b) and (b, a); None if ``fit`` is to find out
    registered: bool = False  # True if the registry knows it by its title
    # a text that stands for the function's code and all that it refers to: values that were computed count as the
    # function's until it changes. "" for the code itself
    version: str = ""
    name: ClassVar[str] = "function"
    is_costly: ClassVar[bool] = True
    keeps_tensors: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.registered:
            object.__setattr__(self, "name", self.title)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = (self.function, self.title, self.unit, self.metric, self.symmetric, self.registered, self.version)
        return type(self), settings  # to another process without the values that are known here

    @property
    def is_metric(self) -> bool:
        """As declared."""
        return self.metric

    @property
    def is_symmetric(self) -> bool:
        """As declared, or found by ``fit``."""
        return bool(self.symmetric)

    @property
    def is_stored(self) -> bool:
        """True for a registered function with a version, or of which everything is known that it refers to."""
        return self.registered and self._content.complete

    def settings(self) -> dict[str, Any]:
        """Return no settings if it is registered; otherwise a description, from which no function can be built."""
        if self.registered:
            return {}
        declared = {"name": self.title, "unit": self.unit, "metric": self.metric, "symmetric": self.symmetric}
        return {**declared, "digest": self._content.digest}

    def fingerprint(self) -> str:
        """Return a hex digest of the name, the declarations, and the version, or the code with all it refers to."""
        text = f"{self.title}:{self.unit}:{self.metric}:{self.is_symmetric}:{self._content}"
        return hashlib.sha256(text.encode()).hexdigest()

    @functools.cached_property
    def _content(self) -> Content:
        return content_digest(("version", self.version) if self.version else self.function)

    @functools.cached_property
    def _cache(self) -> PairCache:
        """The values that were computed in this process or one before."""
        key = self.fingerprint() if self._content.complete else f"{id(self)}"
        if self.version:
            key += f" {id(self.function)}"  # missing values are those of this function, not of another one's code
        cache = _in_use.get(key)
        if cache is None:
            path = cache_folder() / "distances" / "functions" / f"{key[:32]}.npz" if self.is_stored else None
            cache = PairCache(self.value, self.title, symmetric=self.is_symmetric, path=path)
            _in_use[key] = cache
        return cache

    def fit(self, labels: Sequence[Any]) -> PairFunction:  # the distance with ``symmetric`` set
        """Find out by a sample of pairs whether the function is symmetric, where that was not declared."""
        if self.symmetric is not None:
            return self
        chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:_SAMPLE]).tolist()
        until = time.monotonic() + _SAMPLE_SECONDS
        for count, (row, column) in enumerate(itertools.combinations(chosen, 2)):
            if count >= _FEWEST and time.monotonic() > until:
                break
            forward = self.value(labels[row], labels[column])
            backward = self.value(labels[column], labels[row])
            if not np.isclose(forward, backward, rtol=_ROUNDING, atol=0):
                return replace(self, symmetric=False)
        return replace(self, symmetric=True)

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # arrays ``labels`` (N,) of objects, and ``digests`` (N,) uint64 of their content
        """Pack labels as they are."""
        packed = np.empty(len(labels), object)
        for position, label in enumerate(labels):
            if isinstance(label, float) and label != label:  # NaN
                raise LabelError(position, "is nan: a missing label? Leave the item out.")
            packed[position] = label
        from_itself = self.value(packed[0], packed[0])
        if from_itself != 0:
            raise UserError(
                f"The label distance {self.title!r} gave {from_itself:g} for {short(packed[0])} and itself; "
                "it should give 0 there. Is it a similarity?"
            )
        digests = [int(content_digest(label).digest[:16], 16) for label in packed]
        return Labels({"labels": packed, "digests": np.array(digests, np.uint64)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:  # a: A encoded labels; b: B encoded labels -> (A, B) float32
        """Compute the label distances between all labels of two sides."""
        return self._cache.block(a, b)

    def value(
        self,
        label: Any,  # noqa: ANN401 - labels of any form
        # the second label
        other: Any,  # noqa: ANN401 - labels of any form
    ) -> float:  # a number >= 0, or infinity
        """Call the function for two labels and check what it gives."""
        try:
            result = self.function(label, other)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            cause = f"{type(error).__name__}: {error}".rstrip(": ")
            raise UserError(
                f"The label distance {self.title!r} failed for {short(label)} and {short(other)} ({cause}); it should "
                "take two labels and give a number >= 0."
            ) from error
        value = result.item() if getattr(result, "shape", None) == () else result
        number = float(value) if isinstance(value, numbers.Real) else np.nan
        if not (0 <= number <= _LARGEST or number == np.inf):
            raise UserError(
                f"The label distance {self.title!r} gave {_describe_result(result)} for {short(label)} and "
                f"{short(other)}; it should give a number >= 0, or infinity for no comparison."
            )
        return number


def _describe_result(value: Any) -> str:  # noqa: ANN401 - whatever a function gave
    """Describe what a function gave, for a message."""
    if isinstance(value, numbers.Real):
        return str(float(value))
    shape = getattr(value, "shape", ())
    return f"{type(value).__name__} of shape {tuple(shape)}" if shape else short(value)


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
