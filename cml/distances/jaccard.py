"""Sets of tags. Not for: lists in which the place of a value matters (hamming)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.distances.name_sets import count_shared, pack_sets
from cml.errors import UserError


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

    def encode(self, labels: Sequence[Any]) -> Labels:  # the arrays of ``pack_sets``
        """Check and pack sets of names."""
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
        return pack_sets(names)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        shared = count_shared(a, b)
        either = np.add.outer(a.arrays["size"], b.arrays["size"]) - shared  # (A, B) float64
        block: Float32 = ((either - shared) / np.maximum(either, 1)).astype(np.float32)
        return block


def _zeros_and_ones(label: Any, position: int) -> Any:  # noqa: ANN401 - checked here
    try:
        row = np.asarray(label if isinstance(label, list | tuple | np.ndarray) else None)
    except ValueError:  # lists of different lengths
        row = np.asarray(None)
    if row.ndim != 1 or row.dtype.kind not in "iufb" or not np.isin(row, (0, 1)).all():
        raise LabelError(position, f"should be a set of names or a vector of 0 and 1. Got {short(label)} instead.")
    return row
