"""Rank-N-Contrast: seen from an anchor, each item should lie nearer than all items whose labels are farther away."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss, check_batch, check_number, warn_without_gradient
from cml.losses.loss import About
from cml.losses.row_blocks import RowMean, RowTerms, mean_over_rows, slopes_of_distances, used_labels
from cml.losses.row_order import ascending_rows, tie_runs

_LACKING = "two items of a usable label distance"
_WIDE = 600.0  # scores of one row that lie no farther apart than this can be summed as float64 powers


def rank_n_contrast_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Tensor | None = None,
    temperature: float = 2.0,
    normalize: bool = False,
) -> Tensor:
    r"""Rank-N-Contrast over all pairs (anchor a, item j) of a batch, in O(A B log B) time, a block of rows at a time.

    The mean over all pairs of

        -log( exp(s_aj) / sum_{k: D_y(a,k) >= D_y(a,j)} exp(s_ak) ),   s_ak = -||f_a - f_k|| / temperature

    where k runs over the items at least as far from the anchor in label distance as j, j itself among them. Sorted by
    label distance that sum is a cumulative one from the far end, taken at the first place of each run of equal label
    distances. It uses the order of the label distances alone: any increasing function of them gives the same loss.
    Turning or shifting the embeddings leaves it as it is.

    Relations: ``dense_triplet_loss`` compares the same items two by two, with a margin. ``soft_target_loss`` has one
    softmax a row and uses how much label distances differ.

    Args:
        embeddings: (B, D) floating point. Computed with in at least float32, also under autocast. The published
            batches hold two views of every image; they are two items of label distance 0 here.
        label_distances: (A, B), >= 0, in the label's unit; row a belongs to item a. The anchor's own column and
            infinite entries are left out.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        temperature: Above 0, of Euclidean distances of embeddings; 2 as published.
        normalize: L2-normalise the embeddings first; published without.

    Returns:
        Scalar. Anchors with fewer than 2 used columns do not count. If none counts, 0 with zero gradient and a warning.

    Raises:
        UserError: an argument has another shape, type or range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> near_first, far_first = torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[0.0, 3.0, 1.0]])
        >>> bool(rank_n_contrast_loss(points, near_first) < rank_n_contrast_loss(points, far_first))
        True

    Reference:
        Zha, Cao, Son, Yang, Katabi: Rank-N-Contrast: Learning Continuous Representations for Regression, NeurIPS 2023,
        equations 1 and 2. The sorted form is cml's.
    """
    check_number("temperature", temperature, least=0, open_=True)
    mean = _rank_n_contrast(embeddings, label_distances, mask, temperature, normalize)
    warn_without_gradient(mean.counts, _LACKING)
    return mean.loss


class RankNContrastLoss(LabelDistanceLoss):
    """``rank_n_contrast_loss`` with settings.

    Args:
        temperature: Above 0, of Euclidean distances of embeddings.
        normalize: L2-normalise the embeddings.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> loss = RankNContrastLoss()
        >>> loss(torch.randn(8, 4), torch.rand(8, 8)).shape
        torch.Size([])
    """

    about: ClassVar[About] = About(
        cost="O(A B log B)",
        source="Zha et al., NeurIPS 2023",
        when="The order of label distances is what counts, not by how much they differ.",
    )

    def __init__(self, temperature: float = 2.0, normalize: bool = False) -> None:
        super().__init__()
        self.temperature = check_number("temperature", temperature, least=0, open_=True)
        self.normalize = normalize

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), label_distances (A, B), result a scalar."""
        mean = _rank_n_contrast(embeddings, label_distances, None, self.temperature, self.normalize)
        self.count_left_out(mean.counts)
        warn_without_gradient(mean.counts, _LACKING)
        return mean.loss

    def extra_repr(self) -> str:
        """The settings, as they are written."""
        return f"temperature={self.temperature}, normalize={self.normalize}"


def _rank_n_contrast(
    embeddings: Tensor, label_distances: Tensor, mask: Tensor | None, temperature: float, normalize: bool
) -> RowMean:
    check_batch(embeddings, label_distances, mask)

    def row_terms(squared: Tensor, rows: slice) -> RowTerms:
        labels, used = used_labels(label_distances, mask, rows, squared.dtype)
        number = used.sum(dim=1)  # (R,)
        counts = torch.where(number >= 2, number, 0)
        distances = squared.sqrt_()
        scores = (distances / -temperature).masked_fill_(~used, -torch.inf)  # s
        in_order, columns = ascending_rows(labels.masked_fill_(~used, torch.inf))
        sorted_scores = scores.gather(1, columns)
        terms, slopes = _sorted_terms(sorted_scores, tie_runs(in_order))
        values = terms.where(in_order < torch.inf, 0).sum(dim=1) * (counts > 0)
        slopes = torch.empty_like(scores).scatter_(1, columns, slopes).div_(-temperature)
        slopes = slopes.where(used & (counts > 0)[:, None], 0)
        return RowTerms(values, counts, slopes_of_distances(slopes, distances))

    return mean_over_rows(embeddings, len(label_distances), row_terms, normalize=normalize)


def _sorted_terms(scores: Tensor, runs: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """The terms of scores (R, B) in ascending order of label distance, and the slopes of their sum: (R, B) each.

    A term is the log of the sum of exp(score) over the places from its run's first on, less its own score. The slope in
    a score is, over the terms up to its run's last, the sum of exp(score) / that term's sum, less 1.
    """
    largest = scores.amax(dim=1, keepdim=True)
    if scores.device.type != "mps" and float((largest - scores).where(scores > -torch.inf, 0).max()) < _WIDE:
        powers = (scores - largest).double().exp_()
        sums = powers.flip(1).cumsum(1).flip(1)
        sums = sums if runs is None else sums.gather(1, runs[0])
        shares = sums.reciprocal().cumsum(1)
        shares = shares if runs is None else shares.gather(1, runs[1])
        log_sums = sums.log_().to(scores.dtype) + largest
        return log_sums - scores, powers.mul_(shares).sub_(1).to(scores.dtype)
    log_sums = scores.flip(1).logcumsumexp(1).flip(1)
    log_sums = log_sums if runs is None else log_sums.gather(1, runs[0])
    log_shares = (-log_sums).logcumsumexp(1)
    log_shares = log_shares if runs is None else log_shares.gather(1, runs[1])
    return log_sums - scores, (scores + log_shares).exp_().sub_(1)
