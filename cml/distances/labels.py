"""Labels as a label distance works with them, checked and packed into arrays once; and the error of a wrong label."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools
from cml.data.tensor_array import tensor_array
from cml.distances.content_hash import content_digest
from cml.errors import DataError


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
