"""The labels of a training set: as losses and samplers ask for them, for all items, a batch, or several views.

Reference: Khosla et al.: Supervised Contrastive Learning, NeurIPS 2020; Zha et al.: Rank-N-Contrast, NeurIPS 2023.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cml.array_types import Float32, Int64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.cross_batch_memory import mask_duplicates
from cml.losses.label_distance_loss import sample_label_distances
from cml.losses.loss import LabelSource
from cml.processes.ranks import Ranks
from cml.sampling.training_labels import TrainingLabels
from cml.training.config import TrainConfig


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


def check_views(config: TrainConfig, *, reads_anew: bool, augments: bool, draws: bool) -> None:
    """Check that the copies of an item differ."""
    jitter = config.scale_jitter, config.shift_jitter, config.brightness_jitter
    differ = any(jitter) or config.random_crop != "none" or config.flip == "image"
    if config.views > 1 and not (augments or draws or reads_anew or differ):
        raise UserError(
            f"All {config.views} views of an item would be equal: give augment=..., set brightness_jitter, "
            f"scale_jitter or shift_jitter, or leave out views={config.views}."
        )


def repeat_items(
    items: int,  # B, the items of the batch
    anchors: int,
    views: int,  # V, the copies of each item
) -> Int64:  # (V B,) positions in the batch, V A of them those of the anchors
    """List which item each copy of a batch is of: all copies of the anchors, which come first, then of the others.

    Example:
        >>> repeat_items(3, 2, 2).tolist()
        [0, 1, 0, 1, 2, 2]
    """
    return np.concatenate([np.tile(np.arange(anchors), views), np.tile(np.arange(anchors, items), views)])


def repeat_label_distances(
    label_distances: Float32,  # (A, B + S) of a batch's items, and of S further ones that have no copies
    positions: Int64,  # (V B,) of ``repeat_items``
    anchors: int,
) -> Float32:  # (V A, V B + S)
    """Make the label distances of all copies from those of the items; 0 between copies of an item."""
    items = int(positions.max()) + 1
    further = np.arange(items, label_distances.shape[1])
    block: Float32 = label_distances[np.ix_(positions[:anchors], np.concatenate([positions, further]))]
    block[:, : len(positions)][positions[:anchors, None] == positions] = 0
    return block
