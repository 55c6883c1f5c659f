"""Rank-N-Contrast: seen from an anchor, each item should lie nearer than all items whose labels are farther away."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import About
from cml.losses.pairs import RowMean, compare, mean_of
from cml.losses.row_order import ascending_rows, tie_runs
from cml.losses.settings import check_above_zero

_WIDE = 600.0  # scores of one row that lie no farther apart than this can be summed as float64 powers


class RankNContrastLoss(LabelDistanceLoss):
    r"""Rank-N-Contrast over all pairs (anchor a, item j) of a batch, in O(A B log B) time.

    The mean over all pairs of

        -log( exp(s_aj) / sum_{k: D_y(a,k) >= D_y(a,j)} exp(s_ak) ),   s_ak = -||f_a - f_k|| / temperature

    where k runs over the items at least as far from the anchor in label distance as j, j itself among them. Sorted by
    label distance that sum is a cumulative one from the far end, taken at the first place of each run of equal label
    distances. It uses the order of the label distances alone: any increasing function of them gives the same loss.
    Turning or shifting the embeddings leaves it as it is. Anchors with fewer than 2 used items do
    not count. The published batches hold two views of every image; they are two items of label distance 0 here.

    Relations: ``dense-triplet`` compares the same items two by two, with a margin. ``soft-target`` has one
    softmax a row and uses how much label distances differ.

    Args:
        temperature: Above 0, of Euclidean distances of embeddings; 2 as published.
        normalize: L2-normalise the embeddings first; published without.

    Example:
        >>> import torch
        >>> loss, points = RankNContrastLoss(), torch.tensor([[0.0], [1.0], [3.0]])
        >>> near_first, far_first = torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[0.0, 3.0, 1.0]])
        >>> bool(loss(points, near_first) < loss(points, far_first))
        True

    Reference:
        Zha, Cao, Son, Yang, Katabi: Rank-N-Contrast: Learning Continuous Representations for Regression, NeurIPS 2023,
        equations 1 and 2. The sorted form is cml's.
    """

    about: ClassVar[About] = About(
        cost="O(A B log B)",
        source="Zha et al., NeurIPS 2023",
        when="The order of label distances is what counts, not by how much they differ.",
    )

    def __init__(self, temperature: float = 2.0, normalize: bool = False) -> None:
        super().__init__()
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""
        distances, labels, used = compare(embeddings, label_distances, normalize=self.normalize)  # (A, B) each
        number = used.sum(dim=1)
        counts = torch.where(number >= 2, number, 0)
        in_order, columns = ascending_rows(labels.masked_fill_(~used, torch.inf))
        scores = (distances / -self.temperature).gather(1, columns)  # s, by ascending label distance
        counted = in_order < torch.inf
        terms = _log_sums(scores, counted, tie_runs(in_order)) - scores
        return mean_of(terms.where(counted & (counts > 0)[:, None], 0), counts)


def rank_n_contrast_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Tensor | None = None,
    temperature: float = 2.0,
    normalize: bool = False,
) -> Tensor:
    """``RankNContrastLoss`` as a function of embeddings (B, D) and label distances (A, B).

    A ``mask`` (A, B) bool is True where a pair may be used; ``None``: everywhere.
    """
    return RankNContrastLoss(temperature, normalize).value(embeddings, label_distances, mask)


def _log_sums(scores: Tensor, counted: Tensor, runs: tuple[Tensor, Tensor] | None) -> Tensor:
    """The log of the sum of exp(score) over the places from each one's run's first on, of scores (A, B) in order."""
    scores = scores.masked_fill(~counted, torch.finfo(scores.dtype).min)
    largest = scores.detach().amax(dim=1, keepdim=True)
    if scores.device.type != "mps" and float((largest - scores.detach()).where(counted, 0).max()) < _WIDE:
        sums = (scores - largest).double().exp().flip(1).cumsum(1).flip(1)
        sums = sums if runs is None else sums.gather(1, runs[0])
        return sums.where(counted, 1).log().to(scores.dtype) + largest
    log_sums = scores.flip(1).logcumsumexp(1).flip(1)
    return log_sums if runs is None else log_sums.gather(1, runs[0])
