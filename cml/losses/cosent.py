"""CoSENT: of any two pairs of a batch, the pair with the smaller label distance should have the higher cosine."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cml.losses.label_distance_loss import (
    LabelDistanceLoss,
    check_batch,
    check_number,
    comparable,
    warn_without_gradient,
)
from cml.losses.loss import About
from cml.losses.row_blocks import RowMean
from cml.losses.row_order import ascending_rows, tie_runs

MOST = 300.0  # a product of two exponentials of it is still a float64
_LACKING = "two pairs of different label distance to compare (over the whole batch)"


def cosent_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Tensor | None = None, scale: float = 20.0
) -> Tensor:
    r"""CoSENT over all pairs of pairs of a batch, in O(P log P) time for its P pairs (anchor a, item i).

        log(1 + sum_{p, q: D_y(p) > D_y(q)} exp(scale (cos_p - cos_q)))

    where p and q run over all pairs of the batch, of whatever anchors: label distances are compared across anchors,
    as Sentence-Transformers compares all pairs of its batch, not anchor by anchor. A pair of two anchors is counted
    once: of its two entries the one above the diagonal is read. Pairs of equal label distance are not compared. Sorted
    by label distance the double sum is one of products of cumulative sums. It uses the order of the label distances
    alone: any increasing function of them gives the same loss. Scaling or turning the embeddings leaves it as it is.

    Relations: ``dense_triplet_loss`` compares pairs of one anchor only, with a hinge, and takes the mean.

    Args:
        embeddings: (B, D) floating point, normalised here. Computed with in at least float32, also under autocast;
            sums are float64.
        label_distances: (A, B), >= 0, in the label's unit; row a belongs to item a. The anchor's own column and
            infinite entries are left out.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        scale: Above 0 and below 300, of cosines; 20 as published.

    Returns:
        Scalar. If no two pairs differ in label distance, 0 with zero gradient and a warning.

    Raises:
        UserError: an argument has another shape, type or range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> loss = cosent_loss(points, torch.tensor([[0.0, 1.0, 2.0]]), scale=1.0)
        >>> f"{loss.item():.4f}"  # the farther item has cosine 1, the nearer 0: log(1 + e)
        '1.3133'

    Reference:
        Su: CoSENT, a more effective sentence embedding than Sentence-BERT, 2022, https://kexue.fm/archives/8847;
        ``CoSENTLoss`` of Sentence-Transformers.
    """
    check_number("scale", scale, least=0, below=MOST, open_=True)
    mean = _cosent(embeddings, label_distances, mask, scale)
    warn_without_gradient(mean.counts, _LACKING)
    return mean.loss


class CoSENTLoss(LabelDistanceLoss):
    """``cosent_loss`` with settings.

    Args:
        scale: Above 0 and below 300, of cosines.

    Raises:
        UserError: the scale is out of range.

    Example:
        >>> import torch
        >>> loss = CoSENTLoss()
        >>> loss(torch.randn(8, 4), torch.rand(8, 8)).shape
        torch.Size([])
    """

    about: ClassVar[About] = About(
        cost="O(A B log(A B))",
        source="Su, 2022; Sentence-Transformers",
        when="One order of all pairs, across anchors: scores of similarity that mean the same everywhere.",
    )
    normalize = True

    def __init__(self, scale: float = 20.0) -> None:
        super().__init__()
        self.scale = check_number("scale", scale, least=0, below=MOST, open_=True)

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), label_distances (A, B), result a scalar."""
        mean = _cosent(embeddings, label_distances, None, self.scale)
        self.count_left_out(mean.counts)
        warn_without_gradient(mean.counts, _LACKING)
        return mean.loss

    def extra_repr(self) -> str:
        """The settings, as they are written."""
        return f"scale={self.scale}"


def _cosent(embeddings: Tensor, label_distances: Tensor, mask: Tensor | None, scale: float) -> RowMean:
    check_batch(embeddings, label_distances, mask)
    used = comparable(label_distances)  # (A, B)
    if mask is not None:
        used &= mask
    once = used.triu(1)  # an item that is no anchor lies right of every diagonal
    with torch.autocast(embeddings.device.type, enabled=False):
        full = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
        full = torch.nn.functional.normalize(full, dim=1)
        cosines = full[: len(label_distances)] @ full.T  # (A, B)
        loss, compared = _PairOrder.apply(cosines, label_distances, once, scale)
    return RowMean(loss, used.sum(dim=1) * compared)


class _PairOrder(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives it no public type
        cosines: Tensor,
        label_distances: Tensor,
        once: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        labels, columns = ascending_rows(label_distances[once].to(cosines.dtype)[None])  # (1, P)
        runs = tie_runs(labels)
        exponents = cosines[once][None].gather(1, columns)
        # float64, on the processor where the device has none
        exponents = exponents.to("cpu" if cosines.device.type == "mps" else cosines.device, torch.float64).mul_(scale)
        nearer, farther = exponents.neg().exp_(), exponents.exp_()  # of a pair as q and as p, (1, P)
        below = torch.nn.functional.pad(nearer.cumsum(1), (1, 0))  # (1, P + 1) sums of the first so many
        above = torch.nn.functional.pad(farther.flip(1).cumsum(1), (1, 0)).flip(1)  # and of all but those
        if runs is None:
            below, above = below[:, :-1], above[:, 1:]
        else:
            first, last = (run.to(below.device) for run in runs)
            below, above = below.gather(1, first), above.gather(1, last + 1)
        total = (nearer * above).sum()
        slopes = (farther * below - nearer * above).mul_(scale / (1 + total))
        compared = total > 0
        ctx.mark_non_differentiable(compared)
        if ctx.needs_input_grad[0]:
            in_place = torch.empty_like(slopes[0], dtype=cosines.dtype, device=cosines.device)
            in_place[columns[0]] = slopes[0].to(cosines)
            ctx.save_for_backward(torch.zeros_like(cosines).masked_scatter_(once, in_place))
        return total.log1p().to(cosines), compared.to(cosines.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        (slopes,) = ctx.saved_tensors
        return slopes * grad_loss, None, None, None
