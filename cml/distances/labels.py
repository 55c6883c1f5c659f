"""Labels as a label distance works with them: checked and packed into arrays once; and what is said of a wrong one."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml.distances.content import content
from cml.errors import DataError


class LabelError(DataError):
    """One of the labels given to ``encode`` cannot be used.

    Who knows where the labels come from can turn ``position`` into a file and a line.

    Attributes:
        position: The label's place in the sequence, from 0.
        fault: What is wrong with it, to be read after "Label 17 ": "has 3 numbers, the first has 2."
    """

    def __init__(self, position: int, fault: str) -> None:
        super().__init__(f"Label {position} {fault}")
        self.position, self.fault = position, fault


def refuse(bad: NDArray[np.bool_], fault: str, *values: NDArray[Any]) -> None:
    """Raise ``LabelError`` for the first of N labels that is ``bad`` (N,); ``{}`` in the fault are its ``values``."""
    if bad.any():
        position = int(np.argmax(bad))
        raise LabelError(position, fault.format(*(one[position] for one in values)))


def short(label: object) -> str:
    """``label`` for an error message, cut to a line."""
    text = repr(label)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True)
class Labels:
    """N labels, checked and packed: every array has N rows. Made by ``LabelDistance.encode`` only.

    ``labels[rows]`` are the labels of a slice, of item numbers (an array, list or tensor) or of a boolean mask.
    """

    arrays: Mapping[str, NDArray[Any]]

    def __repr__(self) -> str:
        return f"Labels({', '.join(f'{name}: {one.dtype} {one.shape}' for name, one in self.arrays.items())})"

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, rows: Any) -> Self:  # noqa: ANN401 - what NumPy takes
        return type(self)({name: array[rows] for name, array in self.arrays.items()})

    def fingerprint(self) -> str:
        """Hex digest of the packed content: equal exactly if the labels are."""
        digest = hashlib.sha256()
        for name in sorted(self.arrays):
            array = np.ascontiguousarray(self.arrays[name])
            digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
            digest.update(content(array).digest.encode() if array.dtype.hasobject else array.data)
        return digest.hexdigest()
