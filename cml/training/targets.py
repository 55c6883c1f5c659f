"""Label distances, classes and vectors of the training labels, for losses and samplers, and of a batch, for losses.

Implements ``cml.losses.loss.LabelSource`` and ``cml.sampling.sampler.ItemLabels``; the label distance determines
whether labels are classes or vectors.
"""

import numpy as np
import torch
from torch import Tensor

from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.label_distance_loss import sample_label_distances
from cml.losses.loss import LabelSource
from cml.losses.memory import leave_out_copies
from cml.processes.ranks import Ranks
from cml.sampling.sampler import Int64, LabelsOf

ROUNDING = 1e-4  # share of the batch's largest label distance by which the two directions may differ


class TrainingLabels(LabelsOf):
    """The labels of a training set, as losses and samplers ask for them.

    Args:
        distance: The label distance of the labels.
        labels: The N training labels.
        seed: Of the sample of pairs.
        ranks: The processes that train together; None for this one alone.
    """

    def __init__(self, distance: LabelDistance, labels: Labels, *, seed: int = 0, ranks: Ranks | None = None) -> None:
        super().__init__(distance, labels)
        self._seed, self._ranks = seed, ranks or Ranks()

    def label_distances(self) -> Float32:
        """Label distances (P,) of a sample of training pairs; rank 0 computes them for all."""
        return self._ranks.once(lambda: sample_label_distances(self.distance, self._labels, self._seed))

    def vectors(self) -> Float32:
        """The labels as vectors (N, V).

        Raises:
            UserError: the labels are not vectors.
        """
        return label_vectors(self.distance, self._labels)


class BatchLabels:
    """The labels of a batch, as its loss asks for them.

    Args:
        training: The training set that the batch is of.
        items: (B,) item numbers.
        stored: (S,) item numbers of a memory's embeddings.
        labels: The labels of items and stored, mirrored for mirrored images.
        anchors: A.
        memory: Size of the memory, which may still be empty.
        own_turn: Whether this process computes label distances; if not, only their shape is right.
    """

    def __init__(
        self,
        training: TrainingLabels,
        items: Int64,
        labels: Labels,
        anchors: int,
        *,
        stored: Int64 | None = None,
        memory: int = 0,
        own_turn: bool = True,
    ) -> None:
        self._training, self._items, self._labels, self._anchors = training, items, labels, anchors
        self._stored = np.empty(0, np.int64) if stored is None else stored
        self._memory, self._own_turn = memory, own_turn

    def label_distances(self) -> Float32:
        """Label distances (A, B + S), from each anchor to the items of the batch and of the memory.

        Raises:
            UserError: the label distance is not symmetric, but declared so.
        """
        if not self._own_turn:
            return np.empty((self._anchors, len(self._labels)), np.float32)
        distance = self._training.distance
        block = distance.pairwise(self._labels[: self._anchors], self._labels)
        if distance.is_symmetric:
            check_symmetric(distance.name, block, self._items)
        items, stored = torch.from_numpy(self._items), torch.from_numpy(self._stored)
        leave_out_copies(torch.from_numpy(block), items, stored)
        return block

    def classes(self) -> Int64:
        """Class numbers (B,)."""
        self._check_no_memory("classes")
        return self._training.classes()[self._items]

    def vectors(self) -> Float32:
        """Label vectors (B, V)."""
        self._check_no_memory("vectors")
        return label_vectors(self._training.distance, self._labels)

    def _check_no_memory(self, taken: str) -> None:
        if self._memory:
            raise UserError(f"A memory adds columns of label distances, but the loss takes {taken}: set memory to 0.")


def label_distances(batch: LabelSource) -> Tensor:
    """The target of the losses over label distances, (A, B + S)."""
    return torch.from_numpy(batch.label_distances())


def label_vectors(distance: LabelDistance, labels: Labels) -> Float32:
    """The labels as vectors (N, V).

    Raises:
        UserError: the labels are not vectors.
    """
    vectors = distance.label_vectors(labels)
    if vectors is None:
        raise UserError(
            f"The label distance {distance.name!r} has no label vectors. Use label_distance=euclidean for labels that "
            "are numbers or vectors, or a loss that takes label distances."
        )
    return vectors.astype(np.float32)


def check_symmetric(name: str, block: Float32, items: Int64) -> None:
    """Check that the label distances ``block`` (A, B) among a batch's anchors, its first items, are symmetric.

    Raises:
        UserError: they differ by more than rounding; names the pair that differs most, of the items (B,).
    """
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
