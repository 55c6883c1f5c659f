"""The contract of a label distance, and what each gets for free: exact nearest-neighbour lists. It imports no torch."""

import dataclasses
import functools
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cml.distances.blas_threads import one_blas_thread
from cml.distances.content import content
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.registry import Choice

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True)
class Neighbors:
    """The k nearest labels of each of N labels, nearest first.

    Attributes:
        ids: (N, k) int32. Ties go to the lower id. -1 fills a row that has fewer than k comparable labels.
        distances: (N, k) float32 label distances; infinite where the id is -1.
    """

    ids: Int32
    distances: Float32


Search = Callable[[int, int], Neighbors]  # the neighbours of the rows start..stop-1
Progress = Callable[[int], object]


class LabelDistance(ABC):
    """How far apart two labels are.

    A concrete one is a frozen dataclass: its fields are its settings. Distances are float32 and >= 0. Infinity means
    "these two cannot be compared" (two poses without a common visible joint): such a pair is nobody's neighbour, and
    losses and metrics leave it out. NaN never occurs.
    """

    name: ClassVar[str]
    keeps_tensors: ClassVar[bool] = False  # whether ``encode`` is given a tensor of labels as it is, not as an array

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "pairwise" in vars(cls):
            cls.pairwise = _within_float32(cls.pairwise)  # type: ignore[method-assign]
        if "encode" in vars(cls):
            cls.encode = _encoded_once(cls.encode)  # type: ignore[method-assign]

    @property
    def is_metric(self) -> bool:
        """True if the triangle inequality is known to hold."""
        return False

    @property
    def is_symmetric(self) -> bool:
        """True if the distance from a to b is the same number, to the last bit, as that from b to a."""
        return True

    @property
    def is_costly(self) -> bool | None:
        """True if a pair takes many microseconds, so that a small set's are worth keeping; None: it is measured."""
        return False if is_own(type(self)) else None

    @property
    def is_stored(self) -> bool:
        """True if equal fingerprints mean equal distances, so that results may be kept on disk for the next run."""
        return True

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of the distances, for tables and axes."""

    @abstractmethod
    def encode(self, labels: Sequence[Any]) -> Labels:
        """Check N labels, a list, an array or a tensor, and pack them into arrays; encoded ones are left as they are.

        Raises:
            LabelError: a label has the wrong form, length or a value that is not finite; names its position.
            UserError: there is no label.
        """

    @abstractmethod
    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Distances between every label of ``a`` and every label of ``b``: (len(a), len(b)) float32, >= 0 or inf.

        Raises:
            UserError: labels of the two sides do not fit, as vectors of two lengths.
        """

    def class_names(self, labels: Labels) -> NDArray[np.str_] | None:
        """The class of each of N labels by its name, (N,) texts; None if labels are no classes, as most are not."""
        return None

    def label_vectors(self, labels: Labels) -> NDArray[np.floating] | None:
        """N labels as vectors (N, V) in their own unit; None if labels are no vectors, as most are not."""
        return None

    def fit(self, labels: Sequence[Any]) -> Self:
        """This distance with the constants that it takes from a training set as settings; most take none.

        Fit once on the training labels and save the result's settings, so that every later ``encode`` agrees.
        """
        return self

    def settings(self) -> dict[str, Any]:
        """The settings as JSON can hold them; the registry makes an equal distance of them."""
        this: Any = self
        if not dataclasses.is_dataclass(this):
            raise TypeError(f"{type(self).__name__} must be a frozen dataclass: its fields are its settings.")
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(this)}

    def fingerprint(self) -> str:
        """Hex digest of name, settings and, of a class that is not cml's, code: caches and jobs are keyed by it."""
        code = [] if is_own(type(self)) else [content(type(self)).digest]
        return hashlib.sha256(json.dumps([self.name, self.settings(), *code], sort_keys=True).encode()).hexdigest()

    def neighbors(
        self, labels: Labels, k: int, *, block_bytes: int = 64 << 20, threads: int = 2, progress: Progress | None = None
    ) -> Neighbors:
        """The exact k nearest labels, 1 <= k < N, of each of N encoded labels, itself left out.

        Memory is O(block), never N x N: rows are taken in blocks of about ``block_bytes`` of float32 distances, on
        ``threads`` threads. The result depends on neither. ``progress`` is called with the number of rows of each block
        that is done.

        Raises:
            UserError: k is not in 1..N-1, or ``threads`` or ``block_bytes`` is below 1.
        """
        n = len(labels)
        check_k(k, n)
        if threads < 1 or block_bytes < 1:
            raise UserError(f"'threads' and 'block_bytes' must be at least 1. Got {threads} and {block_bytes} instead.")
        result = Neighbors(np.empty((n, k), np.int32), np.empty((n, k), np.float32))
        search = self.searcher(labels, k, block_bytes=block_bytes)
        rows = max(1, min(block_bytes // (4 * n), n // (8 * threads)))  # several blocks a thread, to end together

        def fill(start: int) -> int:
            found = search(start, min(start + rows, n))
            result.ids[start : start + rows], result.distances[start : start + rows] = found.ids, found.distances
            return len(found.ids)

        with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
            for done in pool.map(fill, range(0, n, rows)):
                if progress is not None:
                    progress(done)
        return result

    def searcher(self, labels: Labels, k: int, *, block_bytes: int = 64 << 20) -> Search:
        """The search behind ``neighbors`` and jobs: from (start, stop) to the k nearest labels of these rows.

        A distance that finds neighbours without computing all pairs overrides this method and no other. Its function
        is called from several threads at a time, gives the same for a row in whatever range, and takes up to
        ``block_bytes`` of memory beside a block of float32 distances of its rows to all labels.
        """

        def search(start: int, stop: int) -> Neighbors:
            block = self.pairwise(labels[start:stop], labels)  # (rows, N)
            block[np.arange(stop - start), np.arange(start, stop)] = np.inf
            return Neighbors(*nearest_columns(block, k))

        return search


def check_k(k: int, items: int) -> None:
    """Raise ``UserError`` unless lists of ``k`` neighbours can be made of so many items."""
    if not 1 <= k < items:
        raise UserError(f"k must be at least 1 and below the number of items, {items}. Got k={k} instead.")


def nearest_columns(block: Float32, k: int) -> tuple[NDArray[np.int32], Float32]:
    """Columns (R, k) of the k least entries of each row, least first, ties to the lower column, and these entries."""
    # infinite entries are never chosen: -1 fills a row that has fewer than k finite ones
    lowest = block.min(initial=np.inf)
    if not lowest >= 0:  # as NaN is not
        raise UserError(
            f"A label distance gave {'NaN' if np.isnan(lowest) else lowest}; it should give a number >= 0, or infinity "
            "for no comparison."
        )
    border = np.partition(block, k - 1, axis=1)[:, k - 1]  # the k-th smallest value of each row
    chosen = block <= border[:, None]
    counts = np.count_nonzero(chosen, axis=1)
    for row in np.flatnonzero(counts > k):  # more entries tied at the border than there is room for
        tied = np.flatnonzero(block[row] == border[row])
        chosen[row, tied[k - counts[row] :]] = False
    columns = (np.flatnonzero(chosen) % block.shape[1]).reshape(len(block), k)  # ascending in each row
    values = np.take_along_axis(block, columns, axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    columns = np.take_along_axis(columns, order, axis=1).astype(np.int32)
    nearest = np.take_along_axis(values, order, axis=1)
    columns[np.isinf(nearest)] = -1
    return columns, nearest


def _encoded_once(encode: Callable[..., Labels]) -> Callable[..., Labels]:
    @functools.wraps(encode)
    def encoded(self: LabelDistance, labels: Any) -> Labels:  # noqa: ANN401 - labels of any kind
        if isinstance(labels, Labels):
            return labels
        if len(labels) == 0:
            raise UserError("There are no labels to encode.")
        tensor = hasattr(labels, "detach") and not self.keeps_tensors
        return encode(self, labels.detach().cpu().numpy() if tensor else labels)

    return encoded


def _within_float32(pairwise: Callable[..., Any]) -> Callable[..., Float32]:
    """Check what ``pairwise`` is given and gives: no number overflows to the infinity of "no comparison"."""

    @functools.wraps(pairwise)
    def checked(self: LabelDistance, a: Labels, b: Labels) -> Float32:
        for given in (a, b):
            if not isinstance(given, Labels):
                raise UserError(
                    f"The label distance {self.name!r} compares encoded labels: encode them once, as in "
                    f"labels = distance.encode(labels). Got {type(given).__name__} instead."
                )
        if len(a) == 0 or len(b) == 0:
            return np.empty((len(a), len(b)), np.float32)
        try:
            with np.errstate(over="raise"):
                return np.asarray(pairwise(self, a, b)).astype(np.float32, copy=False)
        except KeyError as error:
            if all(error.args[0] in given.arrays for given in (a, b)):
                raise
            raise UserError(
                f"The label distance {self.name!r} compares labels that it encoded itself: distance.encode(labels). "
                f"Got labels that another one encoded, {a} and {b}."
            ) from None
        except FloatingPointError:
            raise UserError(
                f"The label distance {self.name!r} gave a number above {np.finfo(np.float32).max:.2g}, the largest of "
                "float32, where a finite one should be; divide it by a constant."
            ) from None

    return checked


def is_own(kind: type) -> bool:
    """Whether a class is one of cml's, whose numbers stay the same."""
    return kind.__module__.partition(".")[0] == "cml"


def _plain(value: Any) -> Any:  # noqa: ANN401 - any setting
    match value:
        case np.ndarray():
            sha256 = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
            return {"shape": list(value.shape), "dtype": value.dtype.str, "sha256": sha256}
        case LabelDistance():
            return str(Choice(value.name, value.settings()))
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case tuple() | list():
            return [_plain(item) for item in value]
        case Path():
            return str(value)
    return value
