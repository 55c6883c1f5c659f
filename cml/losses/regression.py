"""Label regression: the embedding is a prediction of the label vector, and retrieval searches the predicted labels."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from cml.errors import UserError
from cml.losses.closed_form import check_no_vmap
from cml.losses.embedding_checks import embedding_points
from cml.losses.loss import LossInfo, VectorLoss
from cml.settings import check_word

Penalty = Literal["squared", "absolute", "huber"]
_PENALTIES = {"squared": functional.mse_loss, "absolute": functional.l1_loss, "huber": functional.smooth_l1_loss}


def regression_loss(predictions: Tensor, targets: Tensor, *, penalty: Penalty = "squared") -> Tensor:
    """The mean penalty of predicted vectors, as a function; ``RegressionLoss`` has the formula.

    Args:
        predictions: (B, V) floating point.
        targets: (B, V) floating point, in the unit of the predictions.
        penalty: "squared", "absolute" or "huber".

    Returns:
        A scalar.

    Raises:
        UserError: the tensors differ in shape, are not floating point, or are many under ``torch.func.vmap``, or the
            penalty is unknown.
    """
    check_no_vmap("predictions", predictions)
    if predictions.ndim != 2 or predictions.shape != targets.shape:
        got = f"Got {tuple(predictions.shape)} and {tuple(targets.shape)} instead."
        raise UserError(f"The 'predictions' and 'targets' must both be (B, V). {got}")
    if not (predictions.is_floating_point() and targets.is_floating_point()):
        got = f"Got {predictions.dtype} and {targets.dtype} instead."
        raise UserError(f"The 'predictions' and 'targets' must be floating-point tensors. {got}")
    check_word("penalty", penalty, _PENALTIES)
    with torch.autocast(predictions.device.type, enabled=False):
        full = embedding_points(predictions, normalize=False)
        return _PENALTIES[penalty](full, targets.to(full.dtype))


class RegressionLoss(VectorLoss):
    r"""Predict the label vector.

    The mean over items and coordinates of h(prediction - target), with h(x) = x^2 ("squared"), |x| ("absolute"), or
    x^2 / 2 up to |x| = 1 and |x| - 1/2 beyond ("huber").

    Inputs: embeddings (B, V), label vectors (B, V) in their own unit; ``prepare`` finds the mean and the scale of the
    training labels.

    Relations: no anchors and no pairs; retrieval with it is retrieval by the label that the network would guess.

    The embedding must have as many dimensions as the label. It is the predicted label minus the mean label, divided by
    one scale for all coordinates: Euclidean distances of embeddings are Euclidean distances of predicted labels over
    that scale, so both rank alike. ``predict`` turns embeddings into labels of the true unit.

    Args:
        penalty: "squared", "absolute" or "huber", of standardised labels.

    Attributes:
        center: (V,) mean of the training labels, found by ``prepare``.
        scale: () root of their mean variance over coordinates, found by ``prepare``.

    Raises:
        UserError: the penalty is unknown; in ``prepare``, the embedding has another dimension than the label, or all
            labels are equal.

    Example:
        >>> import torch
        >>> regression_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]])).item()
        2.0

    Reference:
        The usual baseline, such as the L1 row of Zha and others: Rank-N-Contrast, NeurIPS 2023.
    """

    info = LossInfo(
        cost="O(B V)",
        source="the usual baseline",
        when="Labels are numbers or vectors, and retrieval by the predicted label is enough.",
    )
    starts_at_zero = True  # the mean label, not random ones
    center: Tensor
    scale: Tensor

    def __init__(self, penalty: Penalty = "squared") -> None:
        super().__init__()
        check_word("penalty", penalty, _PENALTIES)
        self.penalty: Penalty = penalty
        self.register_buffer("center", torch.empty(0))
        self.register_buffer("scale", torch.ones(()))

    def prepare(
        self, target: Tensor, *, dimension: int, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """Find the mean and the scale of the training labels.

        Args:
            target: (N, V) label vectors of the training items.
            dimension: V, the dimension of the embeddings.
            names: Not used: labels that are vectors have no class names.
            generator: Not used: there are no parameters.

        Raises:
            UserError: labels are not (N, V), the embedding has another dimension, or all labels are equal.
        """
        if target.ndim != 2:
            got = f"Got shape {tuple(target.shape)} instead; numbers are vectors of one, labels[:, None]."
            raise UserError(f"prepare takes the label vectors (N, V) of the training items. {got}")
        if dimension != target.shape[1]:
            raise UserError(
                "The loss 'regression' predicts the label, so the embedding has its dimension: "
                f"set dimension={target.shape[1]}. Got dimension={dimension} instead."
            )
        exact = target.double()
        scale = exact.var(dim=0, correction=0).mean().sqrt()
        if not bool(scale > 0):
            raise UserError("The loss 'regression' needs labels that differ. Got training labels that are all equal.")
        self.center, self.scale = exact.mean(dim=0).to(target.dtype), scale.to(target.dtype)

    def predict(self, embeddings: Tensor) -> Tensor:
        """The labels (B, V), in their own unit, that embeddings (B, V) stand for."""
        return embeddings * self.scale + self.center

    def forward(self, embeddings: Tensor, vectors: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: (B, V) floating point. Computed with in at least float32, also under autocast.
            vectors: (B, V) label vectors in their own unit.

        Returns:
            A scalar.

        Raises:
            UserError: the loss was not prepared, or a tensor has another shape or type.
        """
        if len(self.center) == 0:
            raise UserError(
                "RegressionLoss does not know its labels yet: call prepare(labels, dimension=V) with the label vectors "
                "(N, V) of the training items, before the optimiser is made."
            )
        if vectors.shape != embeddings.shape:
            return regression_loss(embeddings, vectors)  # which names the mistake
        return regression_loss(embeddings, (vectors - self.center) / self.scale, penalty=self.penalty)
