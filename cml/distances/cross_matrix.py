"""Known label distances from queries to a gallery: a rectangular matrix, as an evaluation takes it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.matrix_check import check_cross_matrix
from cml.errors import UserError


@dataclass(frozen=True, eq=False)
class CrossMatrix(LabelDistance):
    """Label distances (Q, G) from Q queries to G gallery items; those among either cannot be compared.

    A label is the number of an item: of the queries from 0 to Q - 1, and of the gallery the numbers after these.
    """

    matrix: NDArray[Any]  # (Q, G)
    unit: str = "label units"
    name: ClassVar[str] = "cross-matrix"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "matrix", check_cross_matrix(self.matrix))

    @property
    def is_stored(self) -> bool:
        """False: nobody else has these numbers."""
        return False

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack item numbers."""
        rows = np.asarray(labels, np.int64)
        if rows.min() < 0 or rows.max() >= sum(self.matrix.shape):
            raise UserError(f"The items of {self.matrix.shape} label distances have numbers below the sum of both.")
        return Labels({"rows": rows})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Look up the distances between items of two sides."""
        queries = len(self.matrix)
        rows, columns = a.arrays["rows"], b.arrays["rows"]
        block = np.full((len(rows), len(columns)), np.inf, np.float32)
        ahead = np.ix_(rows < queries, columns >= queries)
        block[ahead] = self.matrix[np.ix_(rows[rows < queries], columns[columns >= queries] - queries)]
        back = np.ix_(rows >= queries, columns < queries)
        block[back] = self.matrix[np.ix_(columns[columns < queries], rows[rows >= queries] - queries)].T
        return block

    def fingerprint(self) -> str:
        """A digest of the numbers."""
        return hashlib.sha256(np.ascontiguousarray(self.matrix).data).hexdigest()
