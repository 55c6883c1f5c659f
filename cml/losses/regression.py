"""Label regression: the embedding is a prediction of the label vector, and retrieval searches the predicted labels."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from cml.errors import UserError
from cml.losses.loss import LossInfo, VectorLoss
from cml.losses.pairs import check_no_vmap, embedding_points
from cml.processes.device import device_of_float64
from cml.settings import check_word

Penalty = Literal["squared", "absolute", "huber"]
_PENALTIES = {"squared": functional.mse_loss, "absolute": functional.l1_loss, "huber": functional.smooth_l1_loss}


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
        >>> loss, ages = RegressionLoss(), torch.tensor([[20.0], [30.0], [40.0]])
        >>> loss.prepare(ages, dimension=1)
        >>> round(loss(torch.zeros(3, 1), ages).item(), 4)  # the mean age for each: the variance, which is the unit
        1.0

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
        """Find the mean and the scale of the training labels."""
        if target.ndim != 2:
            got = f"Got shape {tuple(target.shape)} instead; numbers are vectors of one, labels[:, None]."
            raise UserError(f"prepare takes the label vectors (N, V) of the training items. {got}")
        if dimension != target.shape[1]:
            raise UserError(
                "The loss 'regression' predicts the label, so the embedding has its dimension: "
                f"set dimension={target.shape[1]}. Got dimension={dimension} instead."
            )
        exact = target.to(device_of_float64(target.device), torch.float64)
        scale = exact.var(dim=0, correction=0).mean().sqrt()
        if not bool(scale > 0):
            raise UserError("The loss 'regression' needs labels that differ. Got training labels that are all equal.")
        self.center, self.scale = exact.mean(dim=0).to(target), scale.to(target)

    def predict(self, embeddings: Tensor) -> Tensor:
        """The labels that embeddings stand for.

        Args:
            embeddings: (B, V).

        Returns:
            (B, V) in the unit of the labels.
        """
        return embeddings * self.scale + self.center

    def forward(self, embeddings: Tensor, vectors: Tensor) -> Tensor:
        """The loss of a batch."""
        if len(self.center) == 0:
            raise UserError(
                "RegressionLoss does not know its labels yet: call prepare(labels, dimension=V) with the label vectors "
                "(N, V) of the training items, before the optimiser is made."
            )
        check_no_vmap("predictions", embeddings)
        if embeddings.ndim != 2 or embeddings.shape != vectors.shape:
            got = f"Got {tuple(embeddings.shape)} and {tuple(vectors.shape)} instead."
            raise UserError(f"The 'predictions' and 'targets' must both be (B, V). {got}")
        if not (embeddings.is_floating_point() and vectors.is_floating_point()):
            got = f"Got {embeddings.dtype} and {vectors.dtype} instead."
            raise UserError(f"The 'predictions' and 'targets' must be floating-point tensors. {got}")
        targets = (vectors - self.center) / self.scale
        with torch.autocast(embeddings.device.type, enabled=False):
            predictions = embedding_points(embeddings, normalize=False, look=self.may_check_numbers(embeddings))
            return _PENALTIES[self.penalty](predictions, targets.to(predictions.dtype))
