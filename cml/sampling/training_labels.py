"""The labels of a training set, as samplers ask for them: nearest neighbours and class numbers."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.distances import LabelDistance, Labels, as_distance_of
from cml.distances.label_distance import Int32
from cml.errors import UserError
from cml.sampling.batch import Int64


class TrainingLabels:
    """The N labels of a training set, as samplers ask for them.

    Args:
        distance: The label distance that encoded the labels.
        labels: N encoded labels.
    """

    def __init__(self, distance: LabelDistance, labels: Labels) -> None:
        self.distance = distance
        self._labels = labels

    def neighbors(self, k: int) -> Int32:
        """Find the nearest labels of every label; a finished search is read from the cache.

        Args:
            k: Neighbours of each label; more than N - 1 count as N - 1.

        Returns:
            Item numbers (N, k), nearest first, -1 where a label has fewer comparable ones.
        """
        if k == 0:
            return np.empty((len(self._labels), 0), np.int32)
        from cml.distances.jobs.stored_lists import stored_neighbors

        return stored_neighbors(self.distance, self._labels, min(k, len(self._labels) - 1)).ids

    @functools.cached_property
    def _classes(self) -> tuple[Int64, Sequence[str]] | None:
        """Class numbers (N,) and the C sorted names; None if the labels are not classes."""
        names = self.distance.class_names(self._labels)
        if names is None:
            return None
        sorted_names, numbers = np.unique(names, return_inverse=True)
        return numbers.astype(np.int64), tuple(sorted_names.tolist())

    def classes(self) -> Int64:
        """Number the classes of the labels.

        Returns:
            Class numbers (N,), 0..C-1, in the order of the sorted names.

        Raises:
            UserError: The labels are not classes, or there is only one class.
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


def encode_training_labels(label_distance: Any, labels: Any) -> TrainingLabels:  # noqa: ANN401 - as cml.fit takes them
    """Encode the labels of a training set.

    Args:
        label_distance: How far apart two labels are, in any form that ``cml.fit`` takes.
        labels: N labels, as they are or encoded by the distance.

    Returns:
        The labels, as samplers ask for them.

    Raises:
        UserError: The labels do not fit the distance, or the two arguments are exchanged.
    """
    distance = as_distance_of(label_distance, labels, "batches")
    if not isinstance(labels, Labels):
        distance = distance.fit(labels)
    return TrainingLabels(distance, distance.encode(labels))
