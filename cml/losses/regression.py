"""Label regression: the embedding is a prediction of the label vector, and retrieval searches the predicted labels."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from cml.errors import UserError
from cml.losses.embeddings import points
from cml.losses.loss import About, VectorLoss
from cml.settings import check_word

Penalty = Literal["squared", "absolute", "huber"]
_PENALTIES = {"squared": functional.mse_loss, "absolute": functional.l1_loss, "huber": functional.smooth_l1_loss}


def regression_loss(predictions: Tensor, targets: Tensor, *, penalty: Penalty = "squared") -> Tensor:
    """``RegressionLoss`` without a scale, of predictions (B, V) and targets (B, V) in one unit; a scalar."""
    if predictions.ndim != 2 or predictions.shape != targets.shape:
        got = f"Got {tuple(predictions.shape)} and {tuple(targets.shape)} instead."
        raise UserError(f"The 'predictions' and 'targets' must both be (B, V). {got}")
    if not (predictions.is_floating_point() and targets.is_floating_point()):
        got = f"Got {predictions.dtype} and {targets.dtype} instead."
        raise UserError(f"The 'predictions' and 'targets' must be floating-point tensors. {got}")
    check_word("penalty", penalty, _PENALTIES)
    with torch.autocast(predictions.device.type, enabled=False):
        full = points(predictions, normalize=False)
        return _PENALTIES[penalty](full, targets.to(full.dtype))


class RegressionLoss(VectorLoss):
    r"""How far predicted label vectors are from the true ones.

    The mean over items and coordinates of h(prediction - target), with h(x) = x^2 ("squared"), \|x\| ("absolute"), or
    x^2 / 2 up to \|x\| = 1 and \|x\| - 1/2 beyond ("huber").

    Relations: no anchors and no pairs; retrieval with it is retrieval by the label that the network would guess.

    The embedding must have as many dimensions as the label. It is the predicted label less the mean label, divided by
    one scale for all coordinates: Euclidean distances of embeddings are Euclidean distances of predicted labels over
    that scale, so both rank alike. ``predicted`` turns embeddings into labels of the true unit. ``prepare`` finds the
    mean ``center`` (V,) and the ``scale``, the root of the mean variance over coordinates.

    Args:
        penalty: "squared", "absolute" or "huber", of standardised labels.

    Raises:
        UserError: in ``prepare``, the embedding has another dimension than the label, or all labels are equal.

    Example:
        >>> regression_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 4.0]])).item()
        2.0

    Reference:
        The usual baseline, such as the L1 row of Zha and others: Rank-N-Contrast, NeurIPS 2023.
    """

    _when = "Labels are numbers or vectors, and retrieval by the predicted label is enough."
    about = About("O(B V)", "the usual baseline", _when)
    starts_at_zero = True  # the mean label, not random ones
    center: Tensor  # (V,) mean of the training labels
    scale: Tensor  # () root of their mean variance over coordinates

    def __init__(self, penalty: Penalty = "squared") -> None:
        super().__init__()
        check_word("penalty", penalty, _PENALTIES)
        self.penalty: Penalty = penalty
        self.register_buffer("center", torch.empty(0))
        self.register_buffer("scale", torch.ones(()))

    def prepare(
        self, target: Tensor, *, dimension: int, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """Find mean and scale of the training labels (N, V)."""
        if target.ndim != 2:
            got = f"Got shape {tuple(target.shape)} instead; numbers are vectors of one, labels[:, None]."
            raise UserError(f"prepare takes the label vectors (N, V) of the training items. {got}")
        if dimension != target.shape[1]:
            said = "The loss 'regression' predicts the label, so the embedding has its dimension:"
            raise UserError(f"{said} set dimension={target.shape[1]}. Got dimension={dimension} instead.")
        exact = target.double()
        scale = exact.var(dim=0, correction=0).mean().sqrt()
        if not bool(scale > 0):
            raise UserError("The loss 'regression' needs labels that differ. Got training labels that are all equal.")
        self.center, self.scale = exact.mean(dim=0).to(target.dtype), scale.to(target.dtype)

    def predicted(self, embeddings: Tensor) -> Tensor:
        """The labels (B, V), in their own unit, that embeddings (B, V) stand for."""
        return embeddings * self.scale + self.center

    def forward(self, embeddings: Tensor, vectors: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, V), label vectors (B, V) in their own unit, result a scalar."""
        if len(self.center) == 0:
            raise UserError(
                "RegressionLoss does not know its labels yet: call prepare(labels, dimension=V) with the label vectors "
                "(N, V) of the training items, before the optimiser is made."
            )
        if vectors.shape != embeddings.shape:
            return regression_loss(embeddings, vectors)  # which says what is wrong
        return regression_loss(embeddings, (vectors - self.center) / self.scale, penalty=self.penalty)
