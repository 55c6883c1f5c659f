"""The work of a distance job: strips of rows, the same bits whoever computes them and however they are cut."""

import dataclasses
import functools
import hashlib
import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Int64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import Search, check_k
from cml.errors import UserError
from cml.settings import check_word

DTYPES = ("float32", "float16")
Arrays = Mapping[str, NDArray[Any]]
_Items = slice | NDArray[np.intp]


class Strip(NamedTuple):
    """The rows start..stop-1 of the result."""

    start: int
    stop: int


class Form(NamedTuple):
    """An array of the result, with a row for each of the work's rows."""

    columns: int
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class Work(ABC):
    """What a job computes."""

    distance: LabelDistance  # the label distance
    labels: Labels  # N encoded labels
    kind: ClassVar[str]  # "matrix", "neighbors" or "pairs"

    @property
    def option(self) -> tuple[str, Any]:
        """The option that the result depends on beside labels and distance: its name and value."""
        name = dataclasses.fields(self)[-1].name
        return name, getattr(self, name)

    @property
    @abstractmethod
    def forms(self) -> Mapping[str, Form]:
        """File name to form of the arrays that the result consists of."""

    @property
    def rows(self) -> int:
        """Rows of the result: one an item, unless a kind of work says otherwise."""
        return len(self.labels)

    @property
    def mirrored(self) -> bool:
        """True if strips hold the upper triangle alone, so that the lower one is its mirror image."""
        return False

    @abstractmethod
    def compute(self, strip: Strip) -> Arrays:
        """Compute the rows of a strip."""

    def pairs(self, strip: Strip) -> int:
        """Count the pairs of labels that a strip takes."""
        until = self._pairs_until
        return int(until[strip.stop] - until[strip.start])

    @functools.cached_property
    def row_pairs(self) -> Int64:
        """The pairs of labels that each row takes, (rows,)."""
        n = len(self.labels)
        return np.arange(n, 0, -1) if self.mirrored else np.full(n, n)

    @property
    def row_sizes(self) -> Int64:
        """By what rows are cut into strips of one size, (rows,): the pairs that each takes."""
        return self.row_pairs

    @functools.cached_property
    def _pairs_until(self) -> Int64:
        """The pairs of labels that all rows before each take, (rows + 1,)."""
        return np.concatenate([[0], np.cumsum(self.row_pairs)])

    @property
    def all_pairs(self) -> int:
        """Pairs of labels that all strips take."""
        return self.pairs(Strip(0, self.rows))

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.rows * sum(form.columns * form.dtype.itemsize for form in self.forms.values())


@dataclass(frozen=True)
class MatrixWork(Work):
    """All label distances: ``matrix.npy`` (N, N)."""

    dtype: str = "float32"  # "float32" or "float16"
    kind: ClassVar[str] = "matrix"

    def __post_init__(self) -> None:
        check_word("dtype", self.dtype, DTYPES)

    @property
    def forms(self) -> Mapping[str, Form]:
        """The matrix."""
        return {"matrix.npy": Form(len(self.labels), np.dtype(self.dtype))}

    @property
    def mirrored(self) -> bool:
        """True if the distance is the same both ways."""
        return self.distance.is_symmetric

    def compute(self, strip: Strip) -> Arrays:  # ``matrix.npy`` to (rows, C)
        """Compute the distances of a strip's labels to all, or from its first on if the distance is symmetric."""
        first = strip.start if self.mirrored else 0
        return {"matrix.npy": self.block(slice(*strip), slice(first, None))}

    def block(self, rows: _Items, columns: _Items) -> NDArray[Any]:  # (R, C) of type ``dtype``
        """Compute a block of distances as the matrix holds them."""
        block = self.distance.pairwise(self.labels[rows], self.labels[columns])
        if block.size and not block.min() >= 0:  # NaN is not
            stored, wrong, rule = block, ~(block >= 0), "should be a number >= 0, or infinity"
        elif self.dtype == "float32":
            return block
        else:
            with np.errstate(over="ignore"):
                stored = block.astype(np.float16)
            wrong = (np.isinf(stored) != np.isinf(block)) | ((stored == 0) != (block == 0))
            rule = "does not fit into float16 (6e-8 to 65504); take float32"
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            items = np.arange(len(self.labels))
            raise UserError(
                f"The label distance {self.distance.name!r} of the items {items[rows][row]} and "
                f"{items[columns][column]} is {block[row, column]:g}; it {rule}."
            )
        return stored


@dataclass(frozen=True, eq=False)
class PairsWork(Work):
    """The distances of listed pairs: ``distances.npy`` (P, 1), a row for each pair."""

    listed: Int64  # (P, 2) positions of the two labels of each pair; fast if pairs of one first label follow each other
    kind: ClassVar[str] = "pairs"

    @property
    def option(self) -> tuple[str, Any]:
        """A digest of the pairs."""
        return "listed", hashlib.sha256(np.ascontiguousarray(self.listed, np.int64).data).hexdigest()

    @property
    def rows(self) -> int:
        """P."""
        return len(self.listed)

    @property
    def forms(self) -> Mapping[str, Form]:
        """The distances."""
        return {"distances.npy": Form(1, np.dtype(np.float32))}

    @functools.cached_property
    def row_pairs(self) -> Int64:
        """One for each row."""
        return np.ones(self.rows, np.int64)

    def compute(self, strip: Strip) -> Arrays:  # ``distances.npy`` to (rows, 1)
        """Compute the distances of a strip's pairs."""
        first, second = self.listed[slice(*strip)].T
        starts = [*np.flatnonzero(np.diff(first, prepend=-1)).tolist(), len(first)]
        distances = np.empty(len(first), np.float32)
        for start, stop in itertools.pairwise(starts):
            anchor = self.labels[first[start : start + 1]]
            distances[start:stop] = self.distance.pairwise(anchor, self.labels[second[start:stop]])[0]
        wrong = ~(distances >= 0)  # NaN too
        if wrong.any():
            pair = int(np.argmax(wrong))
            raise UserError(
                f"The label distance {self.distance.name!r} of the items {first[pair]} and {second[pair]} is "
                f"{distances[pair]:g}; it should be a number >= 0, or infinity."
            )
        return {"distances.npy": distances[:, None]}


@dataclass(frozen=True)
class NeighborsWork(Work):
    """Exact nearest-neighbour lists: ``ids.npy`` (N, k) int32 and ``distances.npy`` (N, k) float32."""

    k: int = 10  # neighbours a label
    kind: ClassVar[str] = "neighbors"

    def __post_init__(self) -> None:
        check_k(self.k, len(self.labels))

    @property
    def forms(self) -> Mapping[str, Form]:
        """Ids and distances."""
        return {"ids.npy": Form(self.k, np.dtype(np.int32)), "distances.npy": Form(self.k, np.dtype(np.float32))}

    @functools.cached_property
    def row_pairs(self) -> Int64:
        """All N pairs of each label, or those whose distance is known where the label distance knows few."""
        known = self.distance.known_pairs(self.labels)
        if known is None:
            return super().row_pairs
        n = len(self.labels)
        both_ways = np.bincount(known.second, minlength=n) if self.distance.is_symmetric else 0
        return np.bincount(known.first, minlength=n) + both_ways

    @property
    def row_sizes(self) -> Int64:
        """The pairs of each label, or the neighbours that are written where they are more."""
        return np.maximum(self.row_pairs, self.k)

    def compute(self, strip: Strip) -> Arrays:
        """Compute the lists of a strip's labels."""
        with _preparing:
            search = self._search
        lists = search(*strip)
        return {"ids.npy": lists.ids, "distances.npy": lists.distances}

    @functools.cached_property
    def _search(self) -> Search:
        return self.distance.searcher(self.labels, self.k)


_preparing = threading.Lock()  # several threads begin at once; what they share is prepared by one of them


def cut(
    work: Work,
    pairs: int,  # about how many pairs of labels a strip takes, at least one row
) -> list[Strip]:  # the strips, in order
    """Cut the rows into strips."""
    n = work.rows
    until = np.cumsum(work.row_sizes)  # pairs up to and with each row
    count = max(1, -(-int(until[-1]) // max(1, pairs)))
    ends = np.searchsorted(until, until[-1] * np.arange(1, count + 1) / count - 0.5) + 1
    bounds = [0, *np.unique(np.minimum(ends, n)).tolist()]
    return [Strip(*ends) for ends in itertools.pairwise(bounds)]
