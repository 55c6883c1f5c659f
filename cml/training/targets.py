"""Label distances, classes and vectors of the training labels and of a batch (``LabelSource``, ``LabelsOf``)."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.cross_batch_memory import mask_duplicates
from cml.losses.label_distance_sample import sample_label_distances
from cml.losses.loss import LabelSource
from cml.processes.ranks import Ranks
from cml.sampling.sampler import Int64, LabelsOf

ROUNDING = 1e-4  # share of the batch's largest label distance by which the two directions may differ


class TrainingLabels(LabelsOf):
    """The labels of a training set, as losses and samplers ask for them; ``seed`` is that of the sample of pairs."""

    def __init__(self, distance: LabelDistance, labels: Labels, *, seed: int = 0, ranks: Ranks | None = None) -> None:
        super().__init__(distance, labels)
        self._seed, self._ranks = seed, ranks or Ranks()

    def label_distances(self) -> Float32:
        """Label distances (P,) of a sample of training pairs; rank 0 computes them for all."""
        return self._ranks.broadcast(lambda: sample_label_distances(self.distance, self._labels, self._seed))

    def vectors(self) -> Float32:
        """The labels as vectors (N, V)."""
        return self.vectors_of(self._labels)

    def vectors_of(self, labels: Labels) -> Float32:
        """Some labels as vectors."""
        if (vectors := self.distance.label_vectors(labels)) is None:
            raise UserError(
                f"The label distance {self.distance.name!r} has no label vectors. Use label_distance=euclidean for "
                "labels that are numbers or vectors, or a loss that takes label distances."
            )
        return vectors.astype(np.float32)


@dataclass(frozen=True)
class BatchLabels:
    """The labels of a batch, as its loss asks for them."""

    training: TrainingLabels
    items: Int64  # (B,)
    labels: Labels  # of items and stored, mirrored for mirrored images
    anchors: int
    stored: Int64 = field(default_factory=lambda: np.empty(0, np.int64))  # (S,) items of a memory's embeddings
    memory: int = 0  # size of the memory, which may still be empty
    own_turn: bool = True  # whether this process computes label distances; if not, only their shape is right

    def label_distances(self) -> Float32:
        """Label distances (A, B + S), from each anchor to the items of the batch and of the memory."""
        if not self.own_turn:
            return np.empty((self.anchors, len(self.labels)), np.float32)
        distance = self.training.distance
        block = distance.pairwise(self.labels[: self.anchors], self.labels)
        if distance.is_symmetric:
            _check_symmetric(distance.name, block, self.items)
        mask_duplicates(torch.from_numpy(block), torch.from_numpy(self.items), torch.from_numpy(self.stored))
        return block

    def classes(self) -> Int64:
        """Class numbers (B,)."""
        self._check_no_memory("classes")
        return self.training.classes()[self.items]

    def vectors(self) -> Float32:
        """Label vectors (B, V)."""
        self._check_no_memory("vectors")
        return self.training.vectors_of(self.labels)

    def _check_no_memory(self, taken: str) -> None:
        if self.memory:
            raise UserError(f"A memory adds columns of label distances, but the loss takes {taken}: set memory to 0.")


def _check_symmetric(name: str, block: Float32, items: Int64) -> None:
    """Check that label distances (A, B) among a batch's anchors, its first items, are symmetric, up to rounding."""
    square = block[:, : len(block)]  # (A, A)
    if np.array_equal(square, square.T):  # the usual case
        return
    off = ~np.isclose(square, square.T, rtol=ROUNDING, atol=ROUNDING * np.max(square, initial=0, where=square < np.inf))
    off &= ~np.isnan(square + square.T)  # the loss reports these
    if off.any():
        with np.errstate(invalid="ignore"):
            row, column = np.unravel_index(np.argmax(np.where(off, np.abs(square - square.T), -1)), off.shape)
        raise UserError(
            f"The label distance {name!r} gives {square[row, column]:g} from training item {items[row]} to "
            f"{items[column]}, but {square[column, row]:g} back. Mend it, or register it as asymmetric: "
            "symmetric=False, or a class whose is_symmetric is False."
        )


def label_distances(batch: LabelSource) -> Tensor:
    """Label distances (A, B), the target of most losses; a function with a name, as workers may be sent it."""
    return torch.from_numpy(batch.label_distances())
