"""RKD-distance: embedding distances should be label distances, both measured in units of their batch mean."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss, check_batch, comparable, warn_without_gradient
from cml.losses.loss import About
from cml.losses.row_blocks import RowMean, RowTerms, mean_over_rows, slopes_of_distances, used_labels

_LACKING = "two items of a usable label distance, or all label distances of the batch are 0"


def rkd_distance_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Tensor | None = None, normalize: bool = False
) -> Tensor:
    r"""Relational distillation of distances over all pairs (anchor a, item j) of a batch, a block of rows at a time.

    The mean over all pairs of

        h( ||f_a - f_j|| / mean  -  D_y(a,j) / mean_y ),   h(x) = x^2 / 2 for |x| <= 1, else |x| - 1/2

    with mean and mean_y the means of the two distances over all used pairs of the batch. The gradient flows through
    mean as well. Scaling, turning or shifting the embeddings and scaling the label distances leave it as it is.

    Relations: ``log_ratio_loss`` is its cousin on a logarithmic scale: there a near pair counts as much as a far one,
    here far pairs weigh more.

    Args:
        embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
        label_distances: (A, B), >= 0, in the label's unit; row a belongs to item a. The anchor's own column and
            infinite entries are left out.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        normalize: L2-normalise the embeddings first; published without.

    Returns:
        Scalar. If the batch has fewer than 2 used pairs, or its label distances are all 0, 0 with zero gradient and a
        warning.

    Raises:
        UserError: an argument has another shape, type or range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> rkd_distance_loss(points, 10 * torch.cdist(points, points)).item()
        0.0

    Reference:
        Park, Kim, Lu, Cho: Relational Knowledge Distillation, CVPR 2019, equations 5 to 8, with label distances in the
        place of the teacher's. Sums are means here.
    """
    mean = _rkd_distance(embeddings, label_distances, mask, normalize)
    warn_without_gradient(mean.counts, _LACKING)
    return mean.loss


class RKDDistanceLoss(LabelDistanceLoss):
    """``rkd_distance_loss`` with settings.

    Args:
        normalize: L2-normalise the embeddings.

    Example:
        >>> import torch
        >>> loss = RKDDistanceLoss()
        >>> loss(torch.randn(8, 4), torch.rand(8, 8)).shape
        torch.Size([])
    """

    about: ClassVar[About] = About(
        cost="O(A B)",
        source="Park et al., CVPR 2019",
        when="Embedding distances should be proportional to label distances, far pairs above all.",
    )

    def __init__(self, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), label_distances (A, B), result a scalar."""
        mean = _rkd_distance(embeddings, label_distances, None, self.normalize)
        self.count_left_out(mean.counts)
        warn_without_gradient(mean.counts, _LACKING)
        return mean.loss

    def extra_repr(self) -> str:
        """The settings, as they are written."""
        return f"normalize={self.normalize}"


def _rkd_distance(embeddings: Tensor, label_distances: Tensor, mask: Tensor | None, normalize: bool) -> RowMean:
    check_batch(embeddings, label_distances, mask)
    every = comparable(label_distances) if mask is None else comparable(label_distances) & mask
    pairs = int(every.sum())
    wide = torch.promote_types(label_distances.dtype, torch.float32)
    label_mean = float(label_distances.where(every, 0).sum(dtype=wide)) / max(pairs, 1)
    teaches = pairs >= 2 and label_mean > 0

    def distances_alone(squared: Tensor, rows: slice) -> RowTerms:
        used = every[rows]
        distances = squared.sqrt_().masked_fill_(~used, 0)
        return RowTerms(distances.sum(dim=1), used.sum(dim=1), slopes_of_distances(used.to(squared.dtype), distances))

    mean = mean_over_rows(embeddings, len(label_distances), distances_alone, normalize=normalize).loss
    unit = mean.detach().clamp_min(torch.finfo(mean.dtype).tiny)
    slope_in_mean = torch.zeros_like(unit)

    def row_terms(squared: Tensor, rows: slice) -> RowTerms:
        labels, used = used_labels(label_distances, mask, rows, squared.dtype)
        if not teaches:
            nothing = torch.zeros_like(squared)
            return RowTerms(nothing.sum(dim=1), used.sum(dim=1) * 0, nothing)
        distances = squared.sqrt_()
        differences = torch.where(used, distances / unit - labels / label_mean, 0)
        slopes = differences.clamp(-1, 1)  # of h
        slope_in_mean.sub_((slopes * distances).sum() / (unit * pairs) / unit)
        values = slopes.mul(differences - slopes / 2).sum(dim=1)
        return RowTerms(values, used.sum(dim=1), slopes_of_distances(slopes / unit, distances))

    rows = mean_over_rows(embeddings, len(label_distances), row_terms, normalize=normalize)
    return RowMean(rows.loss + slope_in_mean * (mean - mean.detach()), rows.counts)
