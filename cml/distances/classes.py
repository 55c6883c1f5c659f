"""Classes and attributes. Not for: numbers, of which some are closer than others (euclidean)."""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import UserError

MOST_DENSE = 4096  # names up to which a dense product is faster than a sparse one
_TILE = 1024
_KINDS = {str: "text", int: "whole number"}


@dataclass(frozen=True)
class Classes(LabelDistance):
    """0 for two labels of one class, 1 for any others.

    Labels are texts, or whole numbers (7 and 7.0 are one class); not both in one set.

    Example:
        >>> distance = Classes()
        >>> birds = distance.encode(["wren", "gull", "wren"])
        >>> distance.pairwise(birds[:1], birds).tolist()
        [[0.0, 1.0, 0.0]]
    """

    name: ClassVar[str] = "classes"
    unit: ClassVar[str] = "0 same class, 1 another"
    is_metric: ClassVar[bool] = True

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N classes as their ``names`` (N,), and ``digests`` (N, 2) uint64 of these, which are compared."""
        values = [_class(label, position) for position, label in enumerate(labels)]
        kind = type(values[0])
        for position, value in enumerate(values):
            if type(value) is not kind:
                raise LabelError(position, f"is {short(labels[position])}, the first is a {_KINDS[kind]}.")
        names = [str(value) for value in values]
        texts = {name: f"{_KINDS[kind]} {name}".encode("utf-8", "surrogatepass") for name in set(names)}
        digests = {name: hashlib.blake2b(text, digest_size=16).digest() for name, text in texts.items()}
        packed = np.frombuffer(b"".join(digests[name] for name in names), np.uint64).reshape(-1, 2)
        return Labels({"names": np.array(names), "digests": packed})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """0 and 1, (len(a), len(b)) float32."""
        left, right = a.arrays["digests"], b.arrays["digests"]
        distances: Float32 = (left[:, :1] != right[:, 0]).astype(np.float32)  # (A, B)
        np.maximum(distances, left[:, 1:] != right[:, 1], out=distances)
        return distances

    def class_names(self, labels: Labels) -> NDArray[np.str_]:
        """The names (N,)."""
        return labels.arrays["names"]


def _class(label: Any, position: int) -> Any:  # noqa: ANN401 - checked here
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not (value.strip() if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)):
        raise LabelError(
            position,
            f"should be a class: a text or a whole number. Got {short(label)} instead; for continuous labels take "
            "another label distance, such as euclidean.",
        )
    return value


@dataclass(frozen=True)
class Jaccard(LabelDistance):
    """1 - the share of names that two sets have in common, out of the names in either.

    Labels are sets or lists of names (texts; a name said twice counts once), or vectors of 0 and 1 of equal length,
    where the places of the ones are the names. Two empty sets are equal: 0.

    Source:
        Levandowsky and Winter, "Distance between sets", Nature 1971, who show that it is a metric.

    Example:
        >>> distance = Jaccard()
        >>> tags = distance.encode([["dog", "beach"], ["beach", "sea"], []])
        >>> distance.pairwise(tags[:1], tags).round(3).tolist()
        [[0.0, 0.6669999957084656, 1.0]]
    """

    name: ClassVar[str] = "jaccard"
    unit: ClassVar[str] = "1 - shared names"
    is_metric: ClassVar[bool] = True

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N sets of names, see ``_pack``."""
        length: int | None = None
        names: list[list[str]] = []
        for position, label in enumerate(labels):
            if isinstance(label, set | frozenset | list | tuple) and all(isinstance(name, str) for name in label):
                names.append(list(label))
                continue
            row = _zeros_and_ones(label, position)
            length = len(row) if length is None else length
            if len(row) != length:
                raise LabelError(position, f"has {len(row)} zeros and ones, the first such vector has {length}.")
            names.append([f"place {place}" for place in np.flatnonzero(row)])
        if length is not None and any(isinstance(name, str) for label in labels for name in label):
            raise UserError("Labels should be either all sets of names or all vectors of 0 and 1. Got both.")
        return _pack(names)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Jaccard distances (len(a), len(b)) float32."""
        shared = _overlap(a, b)
        either = np.add.outer(a.arrays["size"], b.arrays["size"]) - shared  # (A, B) float64
        block: Float32 = ((either - shared) / np.maximum(either, 1)).astype(np.float32)
        return block


@dataclass(frozen=True)
class Hamming(LabelDistance):
    """The share of the places at which two equally long lists differ, from 0 to 1.

    Labels are lists of numbers, texts or booleans, compared for equality: 1, 1.0 and true are equal, "1" is another
    value.

    Example:
        >>> distance = Hamming()
        >>> birds = distance.encode([["red", 1, 0, 1], ["red", 0, 0, 1]])
        >>> distance.pairwise(birds[:1], birds).tolist()
        [[0.0, 0.25]]
    """

    name: ClassVar[str] = "hamming"
    unit: ClassVar[str] = "share of differing places"
    is_metric: ClassVar[bool] = True

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N lists of values as sets of (place, value), see ``_pack``."""
        rows: list[list[str]] = []
        for position, label in enumerate(labels):
            values = label.tolist() if isinstance(label, np.ndarray) else label
            if not isinstance(values, list | tuple) or not values:
                raise LabelError(position, f"should be a list of values. Got {short(label)} instead.")
            if rows and len(values) != len(rows[0]):
                raise LabelError(position, f"has {len(values)} values, the first has {len(rows[0])}.")
            rows.append([f"{place} {_written(value, position)}" for place, value in enumerate(values)])
        return _pack(rows)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Shares of differing places (len(a), len(b)) float32."""
        length, other = int(a.arrays["size"][0]), int(b.arrays["size"][0])
        if length != other:
            raise UserError(f"The labels of the two sides differ in length: {length} values against {other}.")
        return ((length - _overlap(a, b).astype(np.float64)) / length).astype(np.float32)


def _zeros_and_ones(label: Any, position: int) -> Any:  # noqa: ANN401 - checked here
    try:
        row = np.asarray(label if isinstance(label, list | tuple | np.ndarray) else None)
    except ValueError:  # lists of different lengths
        row = np.asarray(None)
    if row.ndim != 1 or row.dtype.kind not in "iufb" or not np.isin(row, (0, 1)).all():
        raise LabelError(position, f"should be a set of names or a vector of 0 and 1. Got {short(label)} instead.")
    return row


def _written(value: Any, position: int) -> str:  # noqa: ANN401 - checked here
    """One text for each value, equal exactly if the values are."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        return f"text {value}"
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        return f"number {int(value)}"
    if isinstance(value, float) and np.isfinite(value):
        return f"number {value!r}"
    raise LabelError(position, f"holds {short(value)}, which is neither a finite number, a text nor a boolean.")


def _pack(sets: Sequence[Iterable[str]]) -> Labels:
    """Pack N sets of at most M names as ``digests`` (N, M) uint64, and how many count as ``size`` (N,) int32."""
    # 64 bits need no common vocabulary, and two of a million names meet with a probability of about 3e-8
    digests = [np.unique(np.array([_digest(name) for name in names], np.uint64)) for names in sets]
    size = np.array([len(row) for row in digests], np.int32)
    packed = np.zeros((len(digests), size.max()), np.uint64)
    packed[np.arange(packed.shape[1]) < size[:, None]] = np.concatenate(digests)
    return Labels({"digests": packed, "size": size})


def _overlap(a: Labels, b: Labels) -> Float32:
    """How many names the packed sets of ``a`` and ``b`` share: (len(a), len(b)) float32 whole numbers."""
    result = np.zeros((len(a), len(b)), np.float32)
    names = np.intersect1d(a.arrays["digests"], b.arrays["digests"])  # sorted; padding among them matches nothing
    if len(names) == 0:
        return result
    dense = len(names) <= MOST_DENSE
    right = _members(b, names, dense=dense).T
    for start in range(0, len(a), _TILE):
        product = _members(a[start : start + _TILE], names, dense=dense) @ right
        result[start : start + _TILE] = product if dense else product.toarray()
    return result


def _members(labels: Labels, names: NDArray[np.uint64], *, dense: bool) -> Any:  # noqa: ANN401 - an array or a sparse matrix
    """Which of the sorted ``names`` each set has: (N, len(names)) float32 of 0 and 1."""
    digests = labels.arrays["digests"]
    places = np.minimum(np.searchsorted(names, digests), len(names) - 1)
    filled = np.arange(digests.shape[1]) < labels.arrays["size"][:, None]  # not padding
    rows, slots = np.nonzero(filled & (names[places] == digests))
    columns = places[rows, slots]
    if dense:
        members = np.zeros((len(labels), len(names)), np.float32)
        members[rows, columns] = 1
        return members
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(labels), len(names)))


@functools.lru_cache(maxsize=1 << 16)
def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
