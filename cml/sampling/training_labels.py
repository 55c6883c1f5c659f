"""The labels of a training set, as samplers ask for them: nearest neighbours, known pairs, triplets, class numbers."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.array_types import Int32, Int64
from cml.distances import LabelDistance, Labels, as_distance_of
from cml.distances.nearest import KnownPairs
from cml.errors import UserError


class TrainingLabels:
    """The N labels of a training set, as samplers ask for them."""

    def __init__(self, distance: LabelDistance, labels: Labels) -> None:
        self.distance = distance
        self._labels = labels

    def __len__(self) -> int:
        """N."""
        return len(self._labels)

    def neighbors(
        self, k: int
    ) -> Int32:  # item numbers (N, k), nearest first, -1 where a label has fewer comparable ones
        """Find the nearest labels of every label; a finished search is read from the cache."""
        if k == 0:
            return np.empty((len(self._labels), 0), np.int32)
        from cml.distances.jobs.stored_lists import stored_neighbors

        return stored_neighbors(self.distance, self._labels, min(k, len(self._labels) - 1)).ids

    def known_pairs(self) -> KnownPairs:  # the pairs, at least one
        """List the pairs whose label distance is known."""
        known = self.distance.known_pairs(self._labels)
        if known is None:
            raise UserError(
                f"The samplers 'pairs', 'linked' and 'queries' draw from judged pairs, but {self.distance.name!r} "
                "gives the distance of any pair: take another sampler, such as random."
            )
        if not len(known.first):
            raise UserError(
                f"No pair of the {len(self._labels)} training items was judged: hold fewer items out, or judge more "
                "pairs."
            )
        return known

    @functools.cached_property
    def _triplets(self) -> Int64:
        known = self.distance.known_triplets(self._labels)
        if known is None:
            raise UserError(
                f"The loss 'logistic-triplet' and the sampler 'triplets' take judged triplets. Got labels of "
                f"{self.distance.name!r} instead; take a loss over label distances, such as log-ratio."
            )
        if not len(known.anchor):
            raise UserError(
                f"No triplet is of three of the {len(self._labels)} training items: hold fewer items out, or judge "
                "more triplets."
            )
        return np.stack(known, axis=1)

    def triplets(self) -> Int64:  # (T, 4): positions of anchor, nearer and farther item, and how often it was judged so
        """List the judged triplets."""
        return self._triplets

    @functools.cached_property
    def _classes(self) -> tuple[Int64, Sequence[str]] | None:
        """Class numbers (N,) and the C sorted names; None if the labels are not classes."""
        names = self.distance.class_names(self._labels)
        if names is None:
            return None
        sorted_names, numbers = np.unique(names, return_inverse=True)
        return numbers.astype(np.int64), tuple(sorted_names.tolist())

    def classes(self) -> Int64:  # class numbers (N,), 0..C-1, in the order of the sorted names
        """Number the classes of the labels."""
        if self._classes is None:
            raise UserError(
                f"The label distance {self.distance.name!r} has no classes. Use label_distance=classes for labels "
                "that are classes; for continuous labels use a rule, as in binary(loss=..., rule=nearest, k=5)."
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


def encode_training_labels(
    label_distance: Any,  # noqa: ANN401 - as cml.fit takes them
    labels: Any,  # noqa: ANN401 - N labels, as they are or encoded by the distance
) -> TrainingLabels:
    """Encode the labels of a training set."""
    distance = as_distance_of(label_distance, labels, "batches")
    if not isinstance(labels, Labels):
        distance = distance.fit(labels)
    return TrainingLabels(distance, distance.encode(labels))
