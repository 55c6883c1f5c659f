"""What a loss is given beside the embeddings of a batch: label distances, class numbers or label vectors."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cml.array_types import Float32, Int64
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.cross_batch_memory import mask_duplicates
from cml.losses.loss import LabelSource
from cml.training.training_targets import TrainingTargets
from cml.training.views import repeat_label_distances

ROUNDING = 1e-4  # share of the batch's largest label distance by which the two directions may differ


@dataclass(frozen=True)
class BatchTargets:
    """The labels of a batch, as its loss asks for them (``LabelSource``)."""

    training: TrainingTargets  # the labels of the training set
    items: Int64  # item numbers (B,) of the batch
    # the labels of ``items``, then of ``stored``; of mirrored images the mirrored ones. With ``repeats``, instead of
    # ``items`` those of the different items
    labels: Labels
    anchors: int  # a: the first A items are the anchors
    # item numbers (S,) of the embeddings in the memory
    stored: Int64 = field(default_factory=lambda: np.empty(0, np.int64))
    memory: int = 0  # size of the memory, which may still be empty; 0 for none
    own_turn: bool = True  # whether this process computes the label distances; if not, only their shape is right
    # (B,) which of the different items each item is, where it is a copy with the same label; None if items have labels
    # of their own
    repeats: Int64 | None = None
    # whether augmentation changes labels, so that class numbers of the training set do not hold
    are_changed: bool = False

    def label_distances(self) -> Float32:
        """Label distances (A, B + S), from each anchor to the items of the batch and of the memory."""
        if not self.own_turn:
            return np.empty((self.anchors, len(self.items) + len(self.stored)), np.float32)
        distance, repeats = self.training.distance, self.repeats
        anchors = self.anchors if repeats is None else int(repeats[: self.anchors].max()) + 1
        block = distance.pairwise(self.labels[:anchors], self.labels)
        if distance.is_symmetric:
            _check_symmetric(distance.name, block, self.items)
        if repeats is not None:
            block = repeat_label_distances(block, repeats, self.anchors)
        mask_duplicates(torch.from_numpy(block), torch.from_numpy(self.items), torch.from_numpy(self.stored))
        return block

    def classes(self) -> Int64:
        """Class numbers (B,)."""
        self._check_no_memory("classes")
        if self.are_changed:
            raise UserError(
                "The loss takes the classes of the training items, but 'augment' changes labels: let it take the item "
                "alone, or use a loss over label distances."
            )
        return self.training.classes()[self.items]

    def vectors(self) -> Float32:
        """Label vectors (B, V)."""
        self._check_no_memory("vectors")
        vectors = self.training.vectors_of(self.labels)
        return vectors if self.repeats is None else vectors[self.repeats]

    def triplets(self) -> Int64:
        """Judged triplets (T, 4) of items of the batch, as positions in it, with their counts."""
        self._check_no_memory("triplets")
        whole = self.training.triplets()
        places = np.full(len(self.training), -1)
        places[self.items] = np.arange(len(self.items))
        within = places[whole[:, :3]]
        known = (within >= 0).all(axis=1)
        return np.column_stack([within[known], whole[known, 3]])

    def _check_no_memory(self, target: str) -> None:
        if self.memory:
            raise UserError(f"A memory adds columns of label distances, but the loss takes {target}: set memory to 0.")


def label_distances(batch: LabelSource) -> Tensor:  # label distances (A, B)
    """Take the target of most losses; a function with a name, as data workers may be sent it."""
    return torch.from_numpy(batch.label_distances())


def _check_symmetric(name: str, block: Float32, items: Int64) -> None:
    """Check that label distances (A, B) among a batch's anchors, its first items, are symmetric, up to rounding."""
    square = block[:, : len(block)]  # (A, A)
    if np.array_equal(square, square.T):  # the usual case
        return
    largest = np.max(square, initial=0, where=square < np.inf)
    differs = ~np.isclose(square, square.T, rtol=ROUNDING, atol=ROUNDING * largest)
    differs &= ~np.isnan(square + square.T)  # the loss reports these
    if differs.any():
        with np.errstate(invalid="ignore"):
            gap = np.where(differs, np.abs(square - square.T), -1)
        row, column = np.unravel_index(np.argmax(gap), gap.shape)
        raise UserError(
            f"The label distance {name!r} gives {square[row, column]:g} from training item {items[row]} to "
            f"{items[column]}, but {square[column, row]:g} back. Mend it, or register it as asymmetric: "
            "symmetric=False, or a class whose is_symmetric is False."
        )
