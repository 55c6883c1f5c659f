"""The contract of a label distance, and what each gets for free: exact nearest-neighbour lists. It imports no torch."""

import dataclasses
import functools
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Float64, Floating, Int64
from cml.data.tensor_array import tensor_array
from cml.distances.blas_threads import one_blas_thread
from cml.distances.content_hash import content_digest
from cml.distances.labels import Labels
from cml.distances.nearest import KnownPairs, KnownTriplets, Neighbors, Search, check_k, nearest_columns
from cml.errors import UserError
from cml.option_types import convert_options
from cml.processes.cores import CORES
from cml.registry import Choice

Progress = Callable[[int], object]  # called with the number of rows that are done


class LabelDistance(ABC):
    """Base of all label distances: how far apart two labels are.

    A concrete one is a frozen dataclass: its fields are its settings. Distances are float32 and >= 0. Infinity means
    that two labels cannot be compared (two poses without a common visible joint): such a pair is nobody's neighbour,
    and losses and metrics leave it out. NaN never occurs.

    Attributes:
        name: The registered name.
        keeps_tensors: True if ``encode`` is given a tensor of labels as it is; otherwise it becomes an array.
        judged: What people judged where labels are their judgements: "pairs", "triplets" or "grades"; "" for others.
        favours_first: True if a ranking is as good as its first items, as that of a search. Validation then computes
            nDCG@10, in which an item gains what it is nearer than the farthest one, instead of a rank correlation.
    """

    name: ClassVar[str]
    keeps_tensors: ClassVar[bool] = False
    judged: ClassVar[Literal["", "pairs", "triplets", "grades"]] = ""
    favours_first: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "pairwise" in vars(cls):
            cls.pairwise = _checked_pairwise(cls.pairwise)  # type: ignore[method-assign]
        if "encode" in vars(cls):
            cls.encode = _checked_encode(cls.encode)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Check and convert the settings; a subclass with rules of its own calls this first."""
        convert_options(self)

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
        """True if a pair takes many microseconds, so that the distances of a small set are worth keeping.

        None if that is to be measured, as of a class of one's own that does not say it.
        """
        return False if is_own(type(self)) else None

    @property
    def is_partial(self) -> bool:
        """True if most pairs are infinite because nobody knows their distance, as of judged pairs.

        An evaluation then ranks, for each query, the items of known distance alone. Otherwise, infinity says that two
        labels cannot be compared, and an item that cannot be compared takes a place in the ranking.
        """
        return False

    @classmethod
    def is_self_contained(cls, settings: Mapping[str, Any]) -> bool:
        """Whether the distance, with some settings, reads no file outside the dataset and never the network.

        A dataset.json, which may come from a stranger, can name only such distances. A distance of your own that has no
        text among its settings counts as one; one whose texts name neither file nor model overrides this.

        Args:
            settings: The settings that were given, by name.

        Returns:
            True if nothing else is read. By default: for a class of cml's, and for settings without a text.
        """
        return is_own(cls) or not holds_text(settings)

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
        """Check N labels and pack them into arrays.

        Args:
            labels: A list, an array or a tensor of labels. Encoded labels are returned as they are.

        Returns:
            The encoded labels.

        Raises:
            LabelError: A label has the wrong form or length, or a value that is not finite; names its position.
            UserError: There is no label.
        """

    @abstractmethod
    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the distances between all labels of two sides.

        Args:
            a: A encoded labels.
            b: B encoded labels.

        Returns:
            (A, B) float32, each >= 0 or infinite.

        Raises:
            UserError: Labels of the two sides do not fit, as vectors of two lengths.
        """

    def known_pairs(self, labels: Labels) -> KnownPairs | None:
        """List the pairs of labels whose distance is known, where the distance ``is_partial`` and can tell them.

        Args:
            labels: N encoded labels.

        Returns:
            The pairs of two different labels, of symmetric distances each once; None if any pair may be asked for.
        """
        return None

    def known_triplets(self, labels: Labels) -> KnownTriplets | None:
        """List the judged orders of labels, "a is nearer to b than to c", where labels are such judgements.

        Args:
            labels: N encoded labels.

        Returns:
            The triplets of three of the labels; None if labels are something else.
        """
        return None

    def class_names(self, labels: Labels) -> NDArray[np.str_] | None:
        """Name the class of each label.

        Args:
            labels: N encoded labels.

        Returns:
            (N,) texts; None if labels are not classes, as most are not.
        """
        return None

    def label_vectors(self, labels: Labels) -> Floating | None:
        """Return labels as vectors in their own unit, for regressions and the explorer.

        Args:
            labels: N encoded labels.

        Returns:
            (N, V); None if labels are not vectors, as most are not.
        """
        return None

    def start_vectors(self, labels: Labels) -> Floating | None:
        """Return vectors whose L2 distances roughly follow the label distances, where they are cheap to make.

        ``cml.distances.approximate`` starts from them where it is given none. They depend on each label alone.

        Args:
            labels: N encoded labels.

        Returns:
            (N, F); by default ``label_vectors``. None if there are none.
        """
        return self.label_vectors(labels)

    def labels_from_vectors(self, vectors: Float64) -> Float64 | None:
        """Return the labels whose ``label_vectors`` are nearest to vectors, such as means or predictions of them.

        Args:
            vectors: (N, V).

        Returns:
            (N, C) labels as ``encode`` takes them, one number in its own list too; None if labels are not vectors, or
            if vectors have no nearest label of one form.
        """
        return None

    def fit(self, labels: Sequence[Any]) -> Self:
        """Take constants from a training set, such as scales; most label distances have none.

        Fit once on the training labels and save the result's settings, so that every later ``encode`` agrees.

        Args:
            labels: Labels of the training set, as ``encode`` takes them.

        Returns:
            This distance with its constants as settings.
        """
        return self

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them; the registry builds an equal distance from them.

        Returns:
            Field names to values.

        Raises:
            TypeError: The class is not a dataclass.
        """
        this: Any = self
        if not dataclasses.is_dataclass(this):
            raise TypeError(f"{type(self).__name__} must be a frozen dataclass: its fields are its settings.")
        return {field.name: _as_json(getattr(self, field.name)) for field in dataclasses.fields(this)}

    def fingerprint(self) -> str:
        """Return a hex digest of name, settings and, of a class that is not cml's, code: the key of caches and jobs."""
        code = [] if is_own(type(self)) else [content_digest(type(self)).digest]
        return hashlib.sha256(json.dumps([self.name, self.settings(), *code], sort_keys=True).encode()).hexdigest()

    def neighbors(
        self,
        labels: Labels,
        k: int,
        *,
        block_bytes: int = 64 << 20,
        threads: int = CORES,
        progress: Progress | None = None,
    ) -> Neighbors:
        """Find the exact k nearest labels of each label, itself left out.

        Memory is O(block), never N x N: rows are taken in blocks, on several threads. The result depends on neither.

        Args:
            labels: N encoded labels.
            k: Neighbours of each label, 1 <= k < N.
            block_bytes: About how many bytes of float32 distances a block has.
            threads: Blocks computed at a time.
            progress: Called with the number of rows of each block that is done.

        Returns:
            The lists, nearest first.

        Raises:
            UserError: ``k`` is not in 1..N-1, or ``threads`` or ``block_bytes`` is below 1.
        """
        n = len(labels)
        check_k(k, n)
        if threads < 1 or block_bytes < 1:
            raise UserError(f"'threads' and 'block_bytes' must be at least 1. Got {threads} and {block_bytes} instead.")
        result = Neighbors(np.empty((n, k), np.int32), np.empty((n, k), np.float32))
        search = self.searcher(labels, k, block_bytes=block_bytes)
        rows = max(1, min(block_bytes // (4 * n), n // (8 * threads)))  # several blocks a thread, to end together

        def fill(start: int) -> int:
            part = search(start, min(start + rows, n))
            result.ids[start : start + rows] = part.ids
            result.distances[start : start + rows] = part.distances
            return len(part.ids)

        with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
            for done in pool.map(fill, range(0, n, rows)):
                if progress is not None:
                    progress(done)
        return result

    def searcher(self, labels: Labels, k: int, *, block_bytes: int = 64 << 20) -> Search:
        """Prepare the search behind ``neighbors`` and jobs.

        A distance that finds neighbours without computing all pairs overrides this method and no other.

        Args:
            labels: N encoded labels.
            k: Neighbours of each label, 1 <= k < N.
            block_bytes: Memory that the search may take beside a block of float32 distances of its rows to all labels.

        Returns:
            A function from the rows (start, stop) to their neighbours. It is called from several threads at a time, and
            gives the same for a row in whatever range.
        """

        def search(start: int, stop: int) -> Neighbors:
            block = self.pairwise(labels[start:stop], labels)  # (rows, N)
            block[np.arange(stop - start), np.arange(start, stop)] = np.inf
            return Neighbors(*nearest_columns(block, k))

        return search


# The two wrappers stay in this module: the fingerprints of one's own classes contain its name.
def _checked_encode(encode: Callable[..., Labels]) -> Callable[..., Labels]:
    """Wrap an ``encode``: encoded labels are returned as they are, tensors become arrays, no labels are an error."""

    @functools.wraps(encode)
    def encode_once(self: LabelDistance, labels: Any) -> Labels:  # noqa: ANN401 - labels of any kind
        if isinstance(labels, Labels):
            return labels
        if len(labels) == 0:
            raise UserError("There are no labels to encode.")
        tensor = hasattr(labels, "detach") and not self.keeps_tensors
        return encode(self, tensor_array(labels) if tensor else labels)

    return encode_once


def _checked_pairwise(pairwise: Callable[..., Any]) -> Callable[..., Float32]:
    """Wrap a ``pairwise``: sides must be encoded by it, and no finite number overflows to "no comparison"."""

    @functools.wraps(pairwise)
    def compute(self: LabelDistance, a: Labels, b: Labels) -> Float32:
        for side in (a, b):
            if not isinstance(side, Labels):
                raise UserError(
                    f"The label distance {self.name!r} compares encoded labels: encode them once, as in "
                    f"labels = distance.encode(labels). Got {type(side).__name__} instead."
                )
        if len(a) == 0 or len(b) == 0:
            return np.empty((len(a), len(b)), np.float32)
        try:
            with np.errstate(over="raise"):
                return np.asarray(pairwise(self, a, b)).astype(np.float32, copy=False)
        except KeyError as error:
            if all(error.args[0] in side.arrays for side in (a, b)):
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

    return compute


def holds_text(value: object) -> bool:
    """Whether a setting is a text, or holds one, which could be the name of a file."""
    if isinstance(value, Mapping):
        return any(map(holds_text, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(holds_text, value))
    return isinstance(value, str | bytes)


def is_own(kind: type) -> bool:
    """Check whether a class is one of cml's, whose numbers stay the same."""
    return kind.__module__.partition(".")[0] == "cml"


def _as_json(value: Any) -> Any:  # noqa: ANN401 - any setting
    match value:
        case np.ndarray():
            sha256 = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
            return {"shape": list(value.shape), "dtype": value.dtype.str, "sha256": sha256}
        case LabelDistance():
            return str(Choice(value.name, value.settings()))
        case Mapping():
            return {str(key): _as_json(item) for key, item in value.items()}
        case tuple() | list():
            return [_as_json(item) for item in value]
        case Path():
            return str(value)
    return value


def listed_distances(
    distance: LabelDistance,
    labels: Labels,  # Q encoded labels
    others: Labels,  # encoded labels that the lists name
    positions: Int64,  # (Q, k) positions among them
) -> Float32:  # (Q, k); infinite where two labels cannot be compared
    """Compute the label distances of items to those that are listed for each."""
    rows = [distance.pairwise(labels[row : row + 1], others[listed])[0] for row, listed in enumerate(positions)]
    return np.stack(rows) if rows else np.empty(positions.shape, np.float32)
