"""What a loss is given for a batch beside the embeddings: label distances, class numbers or label vectors.

A loss says in ``takes`` which of them it wants; whether a label distance can give them shows in the arrays that its
``encode`` packs: ``names`` (N,) of texts are classes, ``vectors`` (N, V) are vectors. Not for: the losses (cml.losses)
and the images of a batch (batches.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cml.distances.label_distance import Float32, LabelDistance, Labels
from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss, Takes

ROUNDING = 1e-4  # part of the batch's largest label distance that the two ways may differ by


class ClassNumbers(NamedTuple):
    """The classes of N items.

    Attributes:
        numbers: (N,) int64, 0..C-1, in the order of the names.
        names: The C names, sorted.
    """

    numbers: NDArray[np.int64]
    names: Sequence[str]


def class_numbers(distance: LabelDistance, labels: Labels) -> ClassNumbers:
    """Number the classes of ``labels``.

    Raises:
        UserError: the labels are no classes.
    """
    names = labels.arrays.get("names")
    if names is None:
        raise UserError(
            f"The label distance {distance.name!r} has no classes. Take label_distance=classes for labels that are "
            "classes; continuous labels go into such a loss through a rule, as in binary(loss=.., rule=nearest, k=5)."
        )
    known, numbers = np.unique(names, return_inverse=True)
    return ClassNumbers(numbers.astype(np.int64), tuple(known.tolist()))


def label_vectors(distance: LabelDistance, labels: Labels) -> Tensor:
    """The labels as vectors (N, V) float32.

    Raises:
        UserError: the labels are no vectors.
    """
    vectors = labels.arrays.get("vectors")
    if vectors is None:
        raise UserError(
            f"The label distance {distance.name!r} gives no label vectors. Take label_distance=euclidean for labels "
            "that are numbers or vectors, or a loss that takes label distances."
        )
    return torch.from_numpy(vectors.astype(np.float32))


class Targets:
    """What the loss is given for each batch.

    Args:
        takes: What the loss takes.
        distance: The label distance of the training labels.
        labels: The training labels.

    Raises:
        UserError: the label distance cannot give it.
    """

    def __init__(self, takes: Takes, distance: LabelDistance, labels: Labels) -> None:
        self._takes, self._distance = takes, distance
        self._numbers = class_numbers(distance, labels).numbers if takes == "classes" else None
        if takes == "vectors":
            label_vectors(distance, labels[:1])

    def of(self, items: NDArray[np.int64], labels: Labels, anchors: int) -> Tensor:
        """Label distances (A, B), class numbers (B,) or vectors (B, V).

        Args:
            items: (B,) item numbers of the batch.
            labels: Their B labels, those of mirrored images mirrored.
            anchors: A.

        Raises:
            UserError: the label distance is not symmetric and does not say so.
        """
        if self._numbers is not None:
            return torch.from_numpy(self._numbers[items])
        if self._takes == "vectors":
            return label_vectors(self._distance, labels)
        block = self._distance.pairwise(labels[:anchors], labels)  # (A, B)
        if self._distance.is_symmetric:
            check_symmetric(self._distance.name, block, items)
        return torch.from_numpy(block)


def check_symmetric(name: str, block: Float32, items: NDArray[np.int64]) -> None:
    """Check that the label distances among a batch's anchors are the same both ways, but for rounding.

    Args:
        name: Of the label distance.
        block: (A, B) label distances; the first A items are the anchors.
        items: (B,) item numbers.

    Raises:
        UserError: they are not; names the pair that is furthest off.
    """
    square = block[:, : len(block)]  # (A, A)
    if np.array_equal(square, square.T):  # as declared, to the last bit
        return
    off = ~np.isclose(square, square.T, rtol=ROUNDING, atol=ROUNDING * np.max(square, initial=0, where=square < np.inf))
    off &= ~np.isnan(square + square.T)  # the loss says what is wrong with these
    if off.any():
        with np.errstate(invalid="ignore"):
            row, column = np.unravel_index(np.argmax(np.where(off, np.abs(square - square.T), -1)), off.shape)
        raise UserError(
            f"The label distance {name!r} gives {square[row, column]:g} from training item {items[row]} to "
            f"{items[column]}, but {square[column, row]:g} back. Mend it, or register it as asymmetric: "
            "symmetric=False, or a class whose is_symmetric is False."
        )


def prepare_loss(
    loss: LabelDistanceLoss, distance: LabelDistance, labels: Labels, *, dimension: int, seed: int
) -> None:
    """Let a loss that takes classes or vectors make its parameters for the training labels.

    Raises:
        UserError: the label distance cannot give what the loss takes.
    """
    if loss.takes == "label distances":
        return
    generator = torch.Generator().manual_seed(seed)
    if loss.takes == "vectors":
        vectors = label_vectors(distance, labels)
        loss.prepare(vectors, dimension=dimension, names=(), generator=generator)
        return
    numbers, names = class_numbers(distance, labels)
    if len(names) < 2:
        raise UserError(f"A loss over classes needs at least 2 of them to train on. Got {names[0]!r} alone instead.")
    loss.prepare(torch.from_numpy(numbers), dimension=dimension, names=names, generator=generator)
