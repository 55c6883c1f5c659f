"""Rank-N-Contrast: seen from an anchor, each item should lie nearer than all items whose labels are farther away."""

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import About
from cml.losses.pairs import Pairs, RowMean
from cml.losses.row_blocks import mean_over_pairs
from cml.losses.row_order import ascending_rows, tie_runs
from cml.settings import check_above_zero

_WIDE = 600.0  # scores of one row that lie no farther apart than this can be summed as float64 powers
_WIDEST = 1e11  # and than this have digits left in float64 to tell shares by


class RankNContrastLoss(LabelDistanceLoss):
    r"""Rank-N-Contrast over all pairs (anchor a, item j) of a batch, in O(A B log B) time.

    The mean over all pairs of

        -log( exp(s_aj) / sum_{k: D_y(a,k) >= D_y(a,j)} exp(s_ak) ),   s_ak = -||f_a - f_k|| / temperature

    where k runs over the items at least as far from the anchor in label distance as j, j itself among them. Sorted by
    label distance that sum is a cumulative one from the far end, taken at the first place of each run of equal label
    distances. It uses the order of the label distances alone: any increasing function of them gives the same loss.
    Turning or shifting the embeddings leaves it as it is. Anchors with fewer than 2 used items do not count. The
    published batches hold two views of every image; they are two items of label distance 0 here.

    Relations: ``dense-triplet`` compares the same items two by two, with a margin. ``soft-target`` has one softmax a
    row and uses how much label distances differ.

    Args:
        temperature: Above 0, of Euclidean distances of embeddings; 2 as published.
        normalize: L2-normalise the embeddings first; published without.

    Example:
        >>> loss, points = RankNContrastLoss(), torch.tensor([[0.0], [1.0], [3.0]])
        >>> near_first, far_first = torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[0.0, 3.0, 1.0]])
        >>> bool(loss(points, near_first) < loss(points, far_first))
        True

    Reference:
        Zha, Cao, Son, Yang, Katabi: Rank-N-Contrast: Learning Continuous Representations for Regression, NeurIPS 2023,
        equations 1 and 2. The sorted form is cml's.
    """

    _when = "The order of label distances matters, but not by how much they differ."
    about = About("O(A B log B)", "Zha et al., NeurIPS 2023", _when)

    def __init__(self, temperature: float = 2.0, normalize: bool = False) -> None:
        super().__init__()
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""

        def row_values(pairs: Pairs) -> tuple[Tensor, Tensor]:
            distances, labels, used = pairs  # (R, B) each
            number = used.sum(dim=1)
            counts = torch.where(number >= 2, number, 0)
            in_order, columns = ascending_rows(labels.masked_fill_(~used, torch.inf))
            scores = (distances / -self.temperature).gather(1, columns)  # s, by ascending label distance
            counted = in_order < torch.inf
            terms = _log_sums(scores, counted, tie_runs(in_order)) - scores
            return terms.where(counted & (counts > 0)[:, None], 0).sum(dim=1), counts

        return mean_over_pairs(embeddings, label_distances, row_values, normalize=self.normalize)


def rank_n_contrast_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, temperature: float = 2.0, normalize: bool = False
) -> Tensor:
    """``RankNContrastLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True."""
    return RankNContrastLoss(temperature, normalize).value(embeddings, label_distances, mask)


def _log_sums(scores: Tensor, counted: Tensor, runs: tuple[Tensor, Tensor] | None) -> Tensor:
    """The log of the sum of exp(score) over the places from each one's run's first on, of scores (A, B) in order."""
    scores = scores.masked_fill(~counted, torch.finfo(scores.dtype).min)
    largest = scores.detach().amax(dim=1, keepdim=True)
    apart = float((largest - scores.detach()).where(counted, 0).max())
    # float64, on the processor where the device has none
    exact = (scores - largest).to("cpu" if scores.device.type == "mps" else scores.device, torch.float64)
    if apart < _WIDE:
        log_sums = exact.exp().flip(1).cumsum(1).flip(1).where(counted.to(exact.device), 1).log()
    elif apart < _WIDEST:
        log_sums = exact.flip(1).logcumsumexp(1).flip(1)
    elif apart < torch.inf:
        got = f"Got {apart:.3g} instead; take normalize=True, a higher temperature or a lower learning rate."
        raise UserError(f"Rank-N-Contrast's embeddings must lie less than {_WIDEST:g} temperatures apart. {got}")
    log_sums = log_sums if runs is None else log_sums.gather(1, runs[0].to(exact.device))
    return log_sums.to(scores) + largest
