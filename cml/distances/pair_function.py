"""A user's own function of two labels as a label distance, and the values that were asked of it before."""

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

from cml.console.progress_bar import ProgressBar
from cml.distances.content import Content, content
from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import UserError
from cml.storage.atomic import atomic_file, cache_folder, open_regular

MOST_KEPT = 4096  # labels whose distances are kept: a matrix of 64 MB
_SAMPLE, _SAMPLE_SECONDS = 24, 0.5  # labels whose pairs are asked for both ways, and for how long ..
_FEWEST = 10  # .. but so many pairs at least
_ROUNDING = 1e-5  # relative difference of the two ways that is rounding
_SILENT_SECONDS = 3.0  # until a block of pairs shows a bar
_SAVE_SECONDS = 0.2  # of work that may be lost, and at least ..
_SAVE_SHARE = 20  # .. so many times as long as saving takes
_DAMAGE = (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile)
_LARGEST = float(np.finfo(np.float32).max)
_in_use: weakref.WeakValueDictionary[str, KeptPairs] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class PairFunction(LabelDistance):
    """``function(a, b) -> float``, called once for each pair of labels of different content, given as they were."""

    function: Callable[[Any, Any], Any]
    title: str  # what the function is called
    unit: str = "label units"
    metric: bool = False
    symmetric: bool | None = None
    registered: bool = False  # known to the registry by its title
    name: ClassVar[str] = "function"
    is_costly: ClassVar[bool] = True
    keeps_tensors: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.registered:
            object.__setattr__(self, "name", self.title)

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self.function, self.title, self.unit, self.metric, self.symmetric, self.registered
        return type(self), settings  # to another process without the values that are known here

    @property
    def is_metric(self) -> bool:
        """What the user said."""
        return self.metric

    @property
    def is_symmetric(self) -> bool:
        """What the user said or ``fit`` found."""
        return bool(self.symmetric)

    @property
    def is_stored(self) -> bool:
        """True for a registered function of which everything is known that it refers to."""
        return self.registered and self._content.complete

    def settings(self) -> dict[str, Any]:
        """None if it is registered; otherwise what there is to say of it, which makes no function."""
        if self.registered:
            return {}
        said = {"name": self.title, "unit": self.unit, "metric": self.metric, "symmetric": self.symmetric}
        return {**said, "digest": self._content.digest}

    def fingerprint(self) -> str:
        """Hex digest of the name, what was said of the function, and its code with all that it refers to."""
        said = f"{self.title}:{self.unit}:{self.metric}:{self.is_symmetric}:{self._content}"
        return hashlib.sha256(said.encode()).hexdigest()

    @functools.cached_property
    def _content(self) -> Content:
        return content(self.function)

    @functools.cached_property
    def _kept(self) -> KeptPairs:
        """The values known in this process or one before."""
        key = self.fingerprint() if self._content.complete else f"{id(self)}"
        if (known := _in_use.get(key)) is None:
            path = cache_folder() / "distances" / "functions" / f"{key[:32]}.npz" if self.is_stored else None
            known = _in_use[key] = KeptPairs(self, path)
        return known

    def fit(self, labels: Sequence[Any]) -> PairFunction:
        """This distance, declared symmetric or not by a sample of pairs of ``labels`` where that was not said."""
        if self.symmetric is not None:
            return self
        chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:_SAMPLE]).tolist()
        until = time.monotonic() + _SAMPLE_SECONDS
        for asked, (row, column) in enumerate(itertools.combinations(chosen, 2)):
            if asked >= _FEWEST and time.monotonic() > until:
                break
            there, back = self.value(labels[row], labels[column]), self.value(labels[column], labels[row])
            if not np.isclose(there, back, rtol=_ROUNDING, atol=0):
                return replace(self, symmetric=False)
        return replace(self, symmetric=True)

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N labels as they are, array ``labels`` (N,), with a digest of each, ``digests`` (N,) uint64."""
        packed = np.empty(len(labels), object)
        for position, label in enumerate(labels):
            if isinstance(label, float) and label != label:  # NaN
                raise LabelError(position, "is nan: a missing label? Leave the item out.")
            packed[position] = label
        if (itself := self.value(packed[0], packed[0])) != 0:
            raise UserError(
                f"The label distance {self.title!r} gave {itself:g} for {short(packed[0])} and itself; "
                "it should give 0 there. Is it a similarity?"
            )
        digests = [int(content(label).digest[:16], 16) for label in packed]
        return Labels({"labels": packed, "digests": np.array(digests, np.uint64)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """The function's values (len(a), len(b)) float32."""
        return self._kept.block(a, b)

    def value(self, one: Any, other: Any) -> float:  # noqa: ANN401 - labels of any form
        """What the function gives for two labels, checked."""
        try:
            given = self.function(one, other)
        except Exception as error:
            what = f"{type(error).__name__}: {error}".rstrip(": ")
            raise UserError(
                f"The label distance {self.title!r} failed for {short(one)} and {short(other)} ({what}); it should "
                "take two labels and give a number >= 0."
            ) from error
        value = given.item() if getattr(given, "shape", None) == () else given
        number = float(value) if isinstance(value, numbers.Real) else np.nan
        if not (0 <= number <= _LARGEST or number == np.inf):
            raise UserError(
                f"The label distance {self.title!r} gave {_said(given)} for {short(one)} and {short(other)}; "
                "it should give a number >= 0, or infinity for no comparison."
            )
        return number


def _said(value: Any) -> str:  # noqa: ANN401 - whatever a function gave
    if isinstance(value, numbers.Real):
        return str(float(value))
    shape = getattr(value, "shape", ())
    return f"{type(value).__name__} of shape {tuple(shape)}" if shape else short(value)


class KeptPairs:
    """What the function gave before: a matrix over the different labels, in memory and in the file ``path``."""

    def __init__(self, distance: PairFunction, path: Path | None) -> None:
        self._function, self._title, self._symmetric = distance.value, distance.title, distance.is_symmetric
        self._path = path
        self._places: dict[int, int] = {}
        self._matrix = np.empty((0, 0), np.float32)  # NaN where not known yet
        self._lock = threading.Lock()  # a function in Python gains nothing from threads
        self._owner, self._unsaved, self._save_took = os.getpid(), 0.0, 0.0
        if path is not None and path.exists():
            self._read(path)

    def block(self, a: Labels, b: Labels) -> Float32:
        """The values for all pairs: (len(a), len(b))."""
        left, right = _Distinct(a), _Distinct(b)
        with self._lock:
            rows, columns = self._known(left), self._known(right)
            if rows is None or columns is None:
                block = self._computed(left, right, np.full((len(left.labels), len(right.labels)), np.nan, np.float32))
            else:
                began = time.monotonic()
                block = self._matrix[rows[:, None], columns]
                if np.isnan(block).any():
                    block = self._computed(left, right, block)
                    self._matrix[rows[:, None], columns] = block
                    if self._symmetric:
                        self._matrix[columns[:, None], rows] = block.T
                    self._unsaved += time.monotonic() - began
                    self._save()
        return block[left.places[:, None], right.places]

    def _computed(self, a: _Distinct, b: _Distinct, block: Float32) -> Float32:
        """``block`` (U, V) with the function's values where it has NaN."""
        found: dict[tuple[int, int], float] = {}  # of this block, where a pair may occur in both directions
        missing = np.argwhere(np.isnan(block)).tolist()
        for i, j in ProgressBar(missing, self._title, unit="pair", delay=_SILENT_SECONDS, leave=False):
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
        if count > (size := len(self._matrix)):
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
        soon = self._unsaved < max(_SAVE_SECONDS, _SAVE_SHARE * self._save_took)
        if self._path is None or os.getpid() != self._owner or soon:  # of data workers each would write its own
            return
        count, began = len(self._places), time.monotonic()
        digests, matrix = np.array(list(self._places), np.uint64), self._matrix[:count, :count]
        # a cache that cannot be written costs time only
        with contextlib.suppress(OSError), atomic_file(self._path) as temporary, temporary.open("wb") as file:
            np.savez(file, digests=digests, matrix=matrix)
        self._unsaved, self._save_took = 0.0, time.monotonic() - began


class _Distinct:
    """The different labels among N: U labels and digests, as they come, and the place of each of the N among them."""

    def __init__(self, labels: Labels) -> None:
        digests, first, places = np.unique(labels.arrays["digests"], return_index=True, return_inverse=True)
        order = np.argsort(first)
        self.digests: list[int] = digests[order].tolist()
        self.labels = labels.arrays["labels"][first[order]]
        self.places = np.argsort(order)[places]
