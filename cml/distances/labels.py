"""The labels of a set of items: encoded and packed, with the checks that all of them pass."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float64
from cml.data.columns import Numbers
from cml.data.tensor_array import tensor_array
from cml.distances.content_hash import content_digest
from cml.errors import DataError, UserError


class LabelError(DataError):
    """One of the labels given to ``encode`` cannot be used.

    Whoever knows where the labels come from can turn ``position`` into a file and a line.

    Args:
        position: The label's place in the sequence, from 0.
        fault: What is wrong with it, to be read after "Label 17 ": "has 3 numbers, the first has 2."

    Attributes:
        position: As given.
        fault: As given.
    """

    def __init__(self, position: int, fault: str) -> None:
        super().__init__(f"Label {position} {fault}")
        self.position, self.fault = position, fault


def refuse(
    bad: Bools,  # (N,) True for the labels to refuse
    fault: str,  # what is wrong; each ``{}`` stands for the label's value in ``values``
    *values: NDArray[Any],  # (N,) values of the labels
) -> None:
    """Raise an error for the first bad label."""
    if bad.any():
        position = int(np.argmax(bad))
        raise LabelError(position, fault.format(*(value[position] for value in values)))


def short(label: object) -> str:
    """Write a label for an error message."""
    text = repr(label)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True)
class Labels:
    """N labels, checked and packed. Created by ``LabelDistance.encode`` only.

    ``labels[rows]`` are the labels of a slice, of item numbers (an array, list or tensor) or of a boolean mask.

    Attributes:
        arrays: Name to array; every array has N rows.

    Example:
        >>> from cml.distances import Euclidean
        >>> labels = Euclidean().encode([1.0, 4.0, 9.0])
        >>> len(labels), labels[1:].arrays["vectors"].tolist()
        (3, [[4.0], [9.0]])
    """

    arrays: Mapping[str, NDArray[Any]]

    def __repr__(self) -> str:
        return f"Labels({', '.join(f'{name}: {array.dtype} {array.shape}' for name, array in self.arrays.items())})"

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, rows: Any) -> Self:  # noqa: ANN401 - what NumPy takes
        if hasattr(rows, "detach"):  # NumPy would take a tensor of one item number for that number
            rows = tensor_array(rows)
        return type(self)({name: array[rows] for name, array in self.arrays.items()})

    def fingerprint(self) -> str:
        """Return a hex digest of the packed content: equal exactly if the labels are."""
        digest = hashlib.sha256()
        for name in sorted(self.arrays):
            array = np.ascontiguousarray(self.arrays[name])
            digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
            digest.update(content_digest(array).digest.encode() if array.dtype.hasobject else array.data)
        return digest.hexdigest()


LARGEST = 1e18  # a label's length up to which squared distances fit into float32


def pack_vectors(
    labels: Sequence[Any],
    form: str = "",  # what a label should be, as in "[latitude, longitude]"; "" for any length
    *,
    unknown: bool = False,  # whether None and NaN say that a number is not known
) -> Float64:  # (N, D) float64; of numbers D is 1
    """Check numbers or equally long lists of numbers, and pack them."""
    values: object = np.asarray(labels) if isinstance(labels, Numbers) else labels
    if isinstance(values, np.ndarray) and values.ndim in (1, 2) and values.dtype.kind in "fiub":
        vectors = values.reshape(len(values), -1).astype(np.float64)
    else:
        if unknown:
            labels = [_mark_unknown(label) for label in labels]
        rows = [_numbers(label, position) for position, label in enumerate(labels)]
        for position, row in enumerate(rows):
            if len(row) != len(rows[0]):
                count = f"{len(row)} number{'s' if len(row) != 1 else ''}"
                raise LabelError(position, f"has {count}, the first has {len(rows[0])}.")
        vectors = np.stack(rows)
    if vectors.shape[1] == 0:
        raise LabelError(0, "is an empty list; it should hold at least one number.")
    bad = np.argwhere(np.isinf(vectors) if unknown else ~np.isfinite(vectors))
    if len(bad):
        position, place = bad[0]
        raise LabelError(int(position), f"holds {vectors[position, place]} where a finite number should be.")
    with np.errstate(over="ignore"):
        far = np.linalg.norm(np.nan_to_num(vectors), axis=1) > LARGEST
    refuse(far, f"has a length above {LARGEST:g}, whose square float32 cannot hold; rescale it.")
    if form and vectors.shape[1] != form.count(",") + 1:
        raise LabelError(0, f"should be {form}. It has {vectors.shape[1]} numbers instead.")
    return vectors


def check_same_length(a: NDArray[Any], b: NDArray[Any]) -> None:  # a (A, D), b (B, D)
    """Check that packed vectors of two sides have the same length."""
    if a.shape[1] != b.shape[1]:
        raise UserError(f"The labels of the two sides differ in length: {a.shape[1]} numbers against {b.shape[1]}.")


def _mark_unknown(label: Any) -> Any:  # noqa: ANN401 - a label of any form
    """A label with NaN in place of None."""
    if label is None:
        return np.nan
    return [np.nan if value is None else value for value in label] if isinstance(label, list | tuple) else label


def _numbers(label: Any, position: int) -> Float64:  # noqa: ANN401 - checked here
    try:
        row = np.asarray(label)
    except ValueError:  # lists of different lengths inside one label
        row = np.asarray(None)
    if row.dtype.kind not in "fiub" or row.ndim > 1:
        raise LabelError(position, f"should be a number or a list of numbers. Got {short(label)} instead.")
    return np.atleast_1d(row).astype(np.float64)


def pack_directions(labels: Sequence[Any]) -> Labels:  # array ``directions`` (N, D) float64, rows of length 1
    """Check vectors and pack their directions."""
    vectors = pack_vectors(labels)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    refuse(largest[:, 0] == 0, "is a vector of zeros, which has no direction.")
    scaled = vectors / largest  # first to order 1, so that no square leaves float64
    return Labels({"directions": scaled / np.linalg.norm(scaled, axis=1, keepdims=True)})
