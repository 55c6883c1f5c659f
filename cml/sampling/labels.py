"""What samplers ask of the labels of a training set, answered by a label distance."""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cml.distances.jobs.stored_lists import stored_neighbors
from cml.distances.label_distance import Int32, LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError

Int64 = NDArray[np.int64]


class LabelsOf:
    """The labels of a training set, as samplers ask for them.

    Args:
        distance: The label distance of the labels.
        labels: The N training labels.
    """

    def __init__(self, distance: LabelDistance, labels: Labels) -> None:
        self.distance, self._labels = distance, labels

    def neighbors(self, k: int) -> Int32:
        """The ids (N, k) of each label's nearest labels, -1 for none; k is at most N - 1."""
        if k == 0:
            return np.empty((len(self._labels), 0), np.int32)
        return stored_neighbors(self.distance, self._labels, min(k, len(self._labels) - 1)).ids

    @functools.cached_property
    def _classes(self) -> tuple[Int64, Sequence[str]] | None:
        """Class numbers (N,) and the C sorted names; None if the labels are not classes."""
        names = self.distance.class_names(self._labels)
        if names is None:
            return None
        known, numbers = np.unique(names, return_inverse=True)
        return numbers.astype(np.int64), tuple(known.tolist())

    def classes(self) -> Int64:
        """The class numbers (N,), 0..C-1.

        Raises:
            UserError: the labels are not classes, or there is only one class.
        """
        if self._classes is None:
            raise UserError(
                f"The label distance {self.distance.name!r} has no classes. Use label_distance=classes for labels "
                "that are classes; for continuous labels use a rule, as in binary(loss=.., rule=nearest, k=5)."
            )
        numbers, names = self._classes
        if len(names) < 2:
            raise UserError(
                f"Losses and samplers over classes need at least 2 training classes. Got only {names[0]!r} instead."
            )
        return numbers

    def class_names(self) -> Sequence[str]:
        """The names of the C classes, in the order of their numbers; none if the labels are not classes."""
        return () if self._classes is None else self._classes[1]
