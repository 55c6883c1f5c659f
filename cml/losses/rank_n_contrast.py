"""Rank-N-Contrast: seen from an anchor, each item should lie nearer than all items whose labels are farther away."""

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import LossInfo
from cml.losses.row_order import ascending_rows, run_ends
from cml.losses.squared_distances import plain_distances
from cml.processes.device import device_of_float64
from cml.settings import check_above_zero, check_flag

# Scores of one row that lie no farther apart than this are summed as exponentials: exp(-600) and its inverse are
# float64 with all their digits.
_WIDE = 600.0
_WIDEST = 1e11  # up to here float64 has digits left to resolve differences of scores


class RankNContrastLoss(LabelDistanceLoss):
    """Rank-N-Contrast over all pairs (anchor a, item j) of a batch, in O(A B log B) time.

    The mean over all pairs of

        -log( exp(s_aj) / sum_{k: D_y(a,k) >= D_y(a,j)} exp(s_ak) ),   s_ak = -||f_a - f_k|| / temperature

    where k runs over the items at least as far from the anchor in label distance as j, j itself among them, the anchor
    not. The loss uses the order of the label distances alone: it is invariant to any increasing function of them, and
    to rotating the embeddings and, if they are not normalised, to shifting them. Anchors with fewer than 2 used items
    do not count. The published batches hold two views of every image; they are two items of label distance 0 here.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``dense-triplet`` compares the same items two by two, with a margin. ``soft-target`` has one softmax a
    row and uses how much label distances differ.

    Args:
        temperature: Above 0, of Euclidean distances of embeddings; 2 as published.
        normalize: Whether to L2-normalise the embeddings first; the paper does not.

    Raises:
        UserError: a setting is out of range; in ``forward`` on a CPU, and in the first call on a GPU, embeddings lie
            too many temperatures apart.

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

    info = LossInfo(
        cost="O(A B log B)",
        source="Zha et al., NeurIPS 2023",
        when="The order of label distances matters, but not by how much they differ.",
    )
    uses_order_alone = True
    takes_heads = True

    def __init__(self, temperature: float = 2.0, normalize: bool = False) -> None:
        super().__init__()
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = check_flag("normalize", normalize)

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula, of items in the order of their label distances, so that its inner sum is a cumulative one.

        With the farthest label first, the items k with D_y(a,k) >= D_y(a,j) are those up to j and those tied with it.
        """
        number = used.sum(dim=-1)
        counts = torch.where(number >= 2, number, 0)  # terms of each anchor (R,)
        farthest_first, order = (rows.flip(-1) for rows in ascending_rows(labels.where(used, torch.inf)))  # (R, B) each
        is_used = farthest_first < torch.inf  # items that are not used come first, as the farthest
        scores = plain_distances(squared) / -self.temperature  # s_aj
        scores = scores.gather(-1, order.expand_as(scores))
        last_tied = run_ends(farthest_first).expand_as(scores)
        terms = self._cumulative_log_sums(scores, is_used).gather(-1, last_tied) - scores
        return terms.where(is_used & (counts > 0)[:, None], 0).sum(dim=-1), counts

    def _cumulative_log_sums(self, scores: Tensor, is_used: Tensor) -> Tensor:
        """The log of the sum of exp(score) over the used places up to each one, of scores (..., R, B)."""
        scores = scores.masked_fill(~is_used, torch.finfo(scores.dtype).min)
        largest = scores.detach().amax(dim=-1, keepdim=True)
        # Cumulative sums of exponentials need float64, on the CPU if the device lacks it.
        exact = (scores - largest).to(device_of_float64(scores.device), torch.float64)
        is_used = is_used.to(exact.device)
        # exp(-746) is 0. Where numbers may not be checked, the fast way is taken, and the loss of such a
        # spread is -inf.
        spread = float(-exact.detach().where(is_used, 0).min()) if self.may_check_numbers(scores) else 0.0
        if spread < _WIDE:
            log_sums = exact.exp().cumsum(dim=-1).where(is_used, 1).log()  # the sum of nothing has no logarithm
        elif spread < _WIDEST:
            log_sums = exact.logcumsumexp(dim=-1)  # of any spread, several times slower
        elif spread < torch.inf:
            got = f"Got {spread:.3g} instead; take normalize=True, a higher temperature or a lower learning rate."
            raise UserError(f"Rank-N-Contrast's embeddings must lie less than {_WIDEST:g} temperatures apart. {got}")
        else:  # embeddings that are not finite: NaN shows it
            log_sums = torch.full_like(exact, torch.nan)
        return log_sums.to(scores) + largest
