"""The label distance of graded search: from queries to documents, by the grades of the judged pairs."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.distances.nearest import KnownPairs
from cml.distances.sparse_distances import LabelRows, SparseDistances
from cml.graded.grades import Grades


@dataclass(frozen=True, eq=False)
class GradedDistance(LabelDistance):
    """Distances from Q queries to D documents, which are the items 0 to Q - 1 and Q to Q + D - 1.

    It has a direction: a query has a distance to documents, and no document has one to anything. Two queries cannot be
    compared. A label is the number of an item.
    """

    grades: Grades
    name: ClassVar[str] = "grades"
    judged: ClassVar[Literal["", "pairs", "triplets", "grades"]] = "grades"
    favours_first: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Nothing is converted: grades were checked when they were made."""

    @property
    def is_symmetric(self) -> bool:
        """Never."""
        return False

    @property
    def is_partial(self) -> bool:
        """True where pairs without a grade are incomparable."""
        return self.grades.unjudged == "incomparable"

    @property
    def unit(self) -> str:
        """What grades are measured in."""
        return "grade"

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``rows`` (N,) int64
        """Check and pack the numbers of items."""
        count = len(self.grades.queries) + len(self.grades.documents)
        for position, label in enumerate(labels):
            if isinstance(label, bool) or not isinstance(label, int | np.integer) or not 0 <= label < count:
                rule = f"should be the number of a query or document, from 0 to {count - 1}"
                raise LabelError(position, f"{rule}. Got {short(label)} instead.")
        return Labels({"rows": np.array(labels, np.int64)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        rows, columns = a.arrays["rows"], b.arrays["rows"]
        block = self._stored.block(rows, columns)
        if self.grades.unjudged == "zero":
            first = len(self.grades.queries)
            is_open = np.isinf(block) & (rows < first)[:, None] & (columns >= first)
            block[is_open] = self.grades.distance_unjudged
        return block

    def known_pairs(self, labels: Labels) -> KnownPairs:
        """List the judged pairs, from queries to documents, also where others have a distance too."""
        return self._stored.known_pairs(LabelRows(labels.arrays["rows"]))

    def settings(self) -> dict[str, Any]:
        """Return what tells these grades from others; grades that were given in Python cannot be made from it."""
        grades = self.grades
        return {
            "pairs": len(grades),
            "shape": [len(grades.queries), len(grades.documents)],
            "unjudged": grades.unjudged,
            "sha256": self._digest,
        }

    @functools.cached_property
    def _digest(self) -> str:
        return hashlib.sha256(f"{self._stored.digest}:{self.grades.distance_unjudged}".encode()).hexdigest()

    @functools.cached_property
    def _stored(self) -> SparseDistances:
        grades, first = self.grades, len(self.grades.queries)
        return SparseDistances.from_triples(
            grades.rows,
            grades.columns + first,
            grades.distances,
            items=first + len(grades.documents),
            symmetric=False,
            name="the grades",
        )
