"""The labels of a training set, as losses and samplers ask for them: distances, neighbours, classes, vectors."""

import numpy as np

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.label_distance_loss import sample_label_distances
from cml.processes.ranks import Ranks
from cml.sampling.training_labels import TrainingLabels


class TrainingTargets(TrainingLabels):
    """The labels of a training set, as losses (``LabelSource``) and samplers ask for them."""

    def __init__(self, distance: LabelDistance, labels: Labels, *, seed: int = 0, ranks: Ranks | None = None) -> None:
        super().__init__(distance, labels)
        self._seed = seed
        self._ranks = Ranks() if ranks is None else ranks
        self._sample: Float32 | None = None

    def label_distances(self) -> Float32:
        """Label distances (P,) of a sample of training pairs; rank 0 computes them for all processes, once."""
        if self._sample is None:
            self._sample = self._ranks.broadcast(
                lambda: sample_label_distances(self.distance, self._labels, self._seed)
            )
        return self._sample

    def vectors(self) -> Float32:
        """The labels as vectors (N, V)."""
        return self.vectors_of(self._labels)

    def vectors_of(
        self,
        labels: Labels,  # B labels that the label distance encoded
    ) -> Float32:
        """Some labels as vectors (B, V)."""
        vectors = self.distance.label_vectors(labels)
        if vectors is None:
            raise UserError(
                f"The label distance {self.distance.name!r} has no label vectors. Use label_distance=euclidean for "
                "labels that are numbers or vectors, or a loss that takes label distances."
            )
        return vectors.astype(np.float32)
