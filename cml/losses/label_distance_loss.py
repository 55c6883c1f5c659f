"""What the losses over label distances share: their base and the checks of their arguments.

The first A items of the batch are the anchors, row a holds the label distances of anchor a to every item, an anchor's
own column is left out, and so is a pair whose label distance is infinite (it cannot be compared).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.loss import LabelSource, Loss


class LabelDistanceLoss(Loss):
    """Base of the losses over label distances: ``loss(embeddings (B, D), label_distances (A, B)) -> scalar``."""

    labels = "label distances"

    def target(self, batch: LabelSource) -> Tensor:
        """The label distances of a batch (A, B), or of a sample of training pairs (P,)."""
        return torch.from_numpy(batch.label_distances())

    def prepare(
        self,
        target: Tensor,
        *,
        dimension: int = 0,
        names: Sequence[str] = (),
        generator: torch.Generator | None = None,
    ) -> None:
        """``fit`` to a sample of training pairs (P,)."""
        self.fit(target)

    def fit(self, label_distances: Tensor) -> None:
        """Fix the settings that are constants of the training set ("auto", quantiles).

        Args:
            label_distances: (P,) label distances of a sample of training pairs, an item never with itself;
                infinite ones are left out.
        """

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), label_distances (A, B), result a scalar."""
        raise NotImplementedError

    def constant(self, name: str) -> float:
        """The value that ``fit`` found for ``name``.

        Raises:
            UserError: neither ``fit`` nor ``load_state_dict`` has been called.
        """
        try:
            return self._fitted[name]
        except KeyError:
            raise UserError(
                f"The {name!r} of {type(self).__name__} is a constant of the training set and is not known yet: call "
                "fit(label_distances) with a sample of training pairs, or load a saved state."
            ) from None


def check_batch(embeddings: Tensor, label_distances: Tensor, mask: Tensor | None = None) -> None:
    """Check a loss's arguments: shapes, types, and that no used label distance is NaN or negative.

    Symmetry is not the loss's to ask for: a label distance may be declared asymmetric, and who makes the batch knows.

    Raises:
        UserError: a tensor has another number of dimensions or type, B differs, A > B, B < 2, or a label distance is
            NaN or negative.
    """
    if embeddings.ndim != 2 or not embeddings.is_floating_point():
        raise UserError(
            "The 'embeddings' must be a floating-point tensor (B, D). "
            f"Got shape {tuple(embeddings.shape)}, {embeddings.dtype} instead."
        )
    if label_distances.ndim != 2 or not label_distances.is_floating_point():
        raise UserError(
            "The 'label_distances' must be a floating-point tensor (A, B). "
            f"Got shape {tuple(label_distances.shape)}, {label_distances.dtype} instead."
        )
    anchors, items = label_distances.shape
    if items != len(embeddings):
        raise UserError(
            f"The 'label_distances' must have one column an embedding, {len(embeddings)}. Got {items} instead."
        )
    if not 1 <= anchors <= items or items < 2:
        raise UserError(
            f"The anchors are the first A of B items: 1 <= A <= B and B >= 2. Got A={anchors}, B={items} instead."
        )
    if mask is not None:
        check_mask("mask", mask, label_distances.shape)
    if not bool(label_distances.amin() >= 0):  # as NaN is not; the usual batch is told by this one pass
        _check_values(label_distances, mask)


def _check_values(label_distances: Tensor, mask: Tensor | None) -> None:
    bad = ~(label_distances >= 0)
    bad.diagonal().fill_(False)  # left out, as what the mask leaves out, whatever stands there
    if mask is not None:
        bad &= mask
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise UserError(
            "The 'label_distances' must be numbers of at least 0, or infinite for no comparison. Got "
            f"{label_distances[row, column].item():g} between items {row} and {column} of the batch ({int(bad.sum())} "
            "such in all); mend the label distance, or leave the pair out by infinity."
        )


def check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    """Check that ``mask`` is a bool tensor of ``shape`` (A, B).

    Raises:
        UserError: it is not.
    """
    if mask.dtype != torch.bool or mask.shape != shape:
        raise UserError(
            f"The {name!r} must be a bool tensor (A, B) = {tuple(shape)}. "
            f"Got shape {tuple(mask.shape)}, {mask.dtype} instead."
        )


def check_number(name: str, value: float, *, least: float, below: float = float("inf"), open_: bool = False) -> float:
    """Check that a setting is a number in [least, below), or in (least, below) with ``open_``, and return it.

    Raises:
        UserError: it is not.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (least < value if open_ else least <= value) or not value < below:
        rule = f"{'above' if open_ else 'at least'} {least:g}" + (
            f" and below {below:g}" if below < float("inf") else ""
        )
        raise UserError(f"The {name!r} must be a finite number {rule}. Got {value!r} instead.")
    return float(value)


def comparable(label_distances: Tensor, first_anchor: int = 0) -> Tensor:
    """The pairs a loss may use, (A, B) bool: not an anchor with itself, and not an infinite label distance.

    Args:
        label_distances: (A, B), a block of rows.
        first_anchor: The item that the block's first row belongs to.
    """
    used = label_distances < torch.inf  # NaN is not
    used.diagonal(first_anchor).fill_(False)
    return used


def finite_sample(label_distances: Tensor) -> Tensor:
    """The finite label distances that a ``fit`` was given: (P,) float64 on the CPU.

    Raises:
        UserError: a label distance is NaN or negative, or none is finite.
    """
    sample = label_distances.detach().to("cpu", torch.float64).flatten()
    sample = sample[~sample.isposinf()]
    if not bool((sample >= 0).all()):
        raise UserError("The label distances given to fit must be at least 0. Got a negative or NaN one instead.")
    if len(sample) == 0:
        raise UserError("fit needs label distances of pairs that can be compared. Got no finite one instead.")
    return sample


def warn_without_gradient(counts: Tensor, lacking: str) -> None:
    """Warn (Python shows it once a place) if no anchor of the batch has a term: ``counts`` (A,) are all 0."""
    if not bool(counts.any()):
        warnings.warn(
            f"No anchor of the batch has {lacking}: its loss is 0 and teaches nothing.", RuntimeWarning, stacklevel=3
        )
