"""Rank-N-Contrast: seen from an anchor, each item should lie nearer than all items whose labels are farther away."""

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import LossInfo
from cml.losses.pairs import Pairs, mask_label_distances
from cml.losses.row_blocks import Constant, mean_over_pairs
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.losses.row_order import ascending_rows, tie_runs
from cml.settings import check_above_zero, check_flag

_WIDE = 600.0  # scores of one row that lie no farther apart than this can be summed as float64 powers
_WIDEST = 1e11  # and up to this float64 has digits left to tell shares apart


def rank_n_contrast_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, temperature: float = 2.0, normalize: bool = False
) -> Tensor:
    """Rank-N-Contrast as a function; ``RankNContrastLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        temperature: Above 0, of Euclidean distances of embeddings.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        A scalar, or (H,) of H heads; 0 with a warning if no anchor has two usable items.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, the temperature is not
            above 0, or embeddings lie too many temperatures apart.
    """
    mean = rank_n_contrast_mean(
        embeddings,
        mask_label_distances(embeddings, label_distances, mask),
        temperature=check_above_zero("temperature", temperature),
        normalize=normalize,
    )
    return warn_without_terms(mean, RankNContrastLoss.missing)


def rank_n_contrast_mean(
    embeddings: Tensor, label_distances: Tensor, *, temperature: Constant, normalize: bool
) -> RowMean:
    """The formula of ``rank_n_contrast_loss``.

    Sorted by label distance, the sum over all items at least as far away is a cumulative one from the far end, taken at
    the first place of each run of equal label distances.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        temperature: Divides Euclidean distances; (H, 1, 1) for one per head.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The loss, and the used pairs of each anchor that counts.
    """

    def row_values(pairs: Pairs) -> tuple[Tensor, Tensor]:
        distances, labels, used = pairs  # (..., R, B), (R, B), (R, B)
        number = used.sum(dim=1)
        counts = torch.where(number >= 2, number, 0)
        in_order, columns = ascending_rows(labels.masked_fill_(~used, torch.inf))
        scores = (distances / -temperature).gather(
            -1, columns.expand(distances.shape)
        )  # s, by ascending label distance
        counted = in_order < torch.inf
        terms = _log_sums(scores, counted, tie_runs(in_order)) - scores
        return terms.where(counted & (counts > 0)[:, None], 0).sum(dim=-1), counts

    return mean_over_pairs(embeddings, label_distances, row_values, normalize=normalize)


def _log_sums(scores: Tensor, counted: Tensor, runs: tuple[Tensor, Tensor] | None) -> Tensor:
    """The log of the sum of exp(score) from the first place of each one's run on, of scores (..., A, B) in order."""
    scores = scores.masked_fill(~counted, torch.finfo(scores.dtype).min)
    largest = scores.detach().amax(dim=-1, keepdim=True)
    apart = float((largest - scores.detach()).where(counted, 0).max())
    # float64, on the processor where the device has none
    exact = (scores - largest).to("cpu" if scores.device.type == "mps" else scores.device, torch.float64)
    if apart < _WIDE:
        log_sums = exact.exp().flip(-1).cumsum(-1).flip(-1).where(counted.to(exact.device), 1).log()
    elif apart < _WIDEST:
        log_sums = exact.flip(-1).logcumsumexp(-1).flip(-1)
    elif apart < torch.inf:
        got = f"Got {apart:.3g} instead; take normalize=True, a higher temperature or a lower learning rate."
        raise UserError(f"Rank-N-Contrast's embeddings must lie less than {_WIDEST:g} temperatures apart. {got}")
    else:
        log_sums = torch.full_like(exact, torch.nan)
    if runs is not None:
        log_sums = log_sums.gather(-1, runs[0].to(exact.device).expand(log_sums.shape))
    return log_sums.to(scores) + largest


class RankNContrastLoss(LabelDistanceLoss):
    r"""Rank-N-Contrast over all pairs (anchor a, item j) of a batch, in O(A B log B) time.

    The mean over all pairs of

        -log( exp(s_aj) / sum_{k: D_y(a,k) >= D_y(a,j)} exp(s_ak) ),   s_ak = -||f_a - f_k|| / temperature

    where k runs over the items at least as far from the anchor in label distance as j, j itself among them. The loss
    uses the order of the label distances alone: it is invariant to any increasing function of them, and to rotating and
    shifting the embeddings. Anchors with fewer than 2 used items do not count. The published batches hold two views of
    every image; they are two items of label distance 0 here.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``dense-triplet`` compares the same items two by two, with a margin. ``soft-target`` has one softmax a
    row and uses how much label distances differ.

    Args:
        temperature: Above 0, of Euclidean distances of embeddings; 2 as published.
        normalize: Whether to L2-normalise the embeddings first; published without.

    Raises:
        UserError: a setting is out of range; in ``forward``, embeddings lie too many temperatures apart.

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
    takes_heads = True

    def __init__(self, temperature: float = 2.0, normalize: bool = False) -> None:
        super().__init__()
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = check_flag("normalize", normalize)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``rank_n_contrast_mean`` with the settings of the module, of embeddings (B, D), label distances (A, B)."""
        return rank_n_contrast_mean(embeddings, label_distances, temperature=self.temperature, normalize=self.normalize)
