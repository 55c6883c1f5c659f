"""The weighted sum of losses over label distances."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.composite_loss import CompositeLoss
from cml.losses.loss import LossInfo
from cml.losses.pairs import unwrap
from cml.option_types import describe_value
from cml.settings import check_above_zero

_WEIGHTED = re.compile(r"\s*(?:(?P<weight>[\d.]+(?:[eE][-+]?\d+)?)\s*\*)?\s*(?P<loss>.+)", re.DOTALL)


class SumLoss(CompositeLoss):
    """A weighted sum of losses over label distances, each with its own constants.

    Written ``sum(log-ratio, 0.3*cosent(scale=2.0))``. All parts must agree on normalising embeddings, as retrieval
    with the trained embedding has to know: ``rkd-distance`` does not normalise them by default.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``matryoshka`` is one loss at several sizes of the embedding.

    Args:
        parts: The losses, each as the command line takes it, with a weight before it: "0.3*cosent(scale=2.0)".

    Raises:
        UserError: there is no part, a part is no loss over label distances, a weight is not above 0, or the parts do
            not agree on normalising embeddings.

    Example:
        >>> import torch
        >>> from cml import losses
        >>> both = losses.get("sum(rkd-distance(normalize=true), 0.5*cosent)")
        >>> points, labels = torch.randn(6, 3), torch.rand(6, 6).fill_diagonal_(0)
        >>> first, second = losses.get("rkd-distance", normalize=True), losses.get("cosent")
        >>> bool(both(points, labels).isclose(first(points, labels) + 0.5 * second(points, labels)))
        True
    """

    info = LossInfo(
        cost="that of its parts",
        source="a sum",
        when="Two losses complement each other, such as one for proportions and one for the order of all pairs.",
    )

    def __init__(self, parts: Sequence[str] = ("log-ratio", "0.3*cosent(scale=2.0)")) -> None:
        super().__init__()
        listed = parts if isinstance(parts, list | tuple) else []
        weighted = [match for part in listed if isinstance(part, str) and (match := _WEIGHTED.fullmatch(part))]
        if not weighted or len(weighted) < len(listed):
            got = describe_value(parts)
            raise UserError(f"A sum lists its losses, as in sum(log-ratio, 0.3*cosent). Got {got} instead.")
        self.parts = list(parts)
        self.set_parts([match["loss"] for match in weighted])
        self.weights = [check_above_zero("weight", float(match["weight"] or 1)) for match in weighted]

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The weighted sum of the losses of the parts."""
        losses = self.part_losses()
        total = embeddings.new_zeros(())
        for weight, part in zip(self.weights, losses, strict=True):
            total = total + weight * part(embeddings, label_distances)
        self._skipped = unwrap(torch.stack([part._skipped for part in losses]).amin())
        return total
