"""The log-ratio loss: ratios of embedding distances should be ratios of label distances, for every triplet at once."""

from typing import Literal, Self, get_args

import torch
from torch import Tensor
from torch.linalg import vecdot

from cml.losses.closed_form import to_overwrite
from cml.losses.label_distance_loss import Auto, LabelDistanceLoss, Mask
from cml.losses.label_distance_sample import finite_sample
from cml.losses.label_exponent import fit_floor, fit_label_exponent
from cml.losses.loss import LossInfo
from cml.losses.pairs import mask_label_distances
from cml.losses.row_blocks import Constant, RowTerms, mean_over_rows, plus, times
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.losses.row_order import row_ranks
from cml.settings import check_above_zero, check_auto, check_flag, check_number, check_word

Weights = Literal["uniform", "rank"]


def log_ratio_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    label_exponent: float,
    floor: float,
    weights: Weights = "rank",
    rank_offset: float = 5.0,
    normalize: bool = True,
    eps: float = 1e-6,
) -> Tensor:
    """The log-ratio loss as a function; ``LogRatioLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        label_exponent: p, above 0.
        floor: In the label's unit, at least 0. Label distances below it are raised to it; with 0, pairs of label
            distance 0 are left out.
        weights: "uniform" or "rank".
        rank_offset: Of rank weights, at least 0.001.
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances, above 0.

    Returns:
        A scalar, or (H,) of H heads; 0 with a warning if no anchor has two usable items.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, or a constant is out of
            range.
    """
    check_word("weights", weights, get_args(Weights))
    mean = log_ratio_mean(
        embeddings,
        mask_label_distances(embeddings, label_distances, mask),
        label_exponent=check_above_zero("label_exponent", label_exponent),
        floor=check_number("floor", floor, least=0),
        weights=weights,
        rank_offset=_check_rank_offset(rank_offset),
        normalize=normalize,
        eps=check_above_zero("eps", eps),
    )
    return warn_without_terms(mean, LogRatioLoss.missing)


def log_ratio_mean(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    label_exponent: Constant,
    floor: Constant,
    weights: Weights,
    rank_offset: Constant,
    normalize: bool,
    eps: Constant,
) -> RowMean:
    """The formula of ``log_ratio_loss``, by its closed form, a block of rows at a time.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        label_exponent: p; (H, 1, 1) for one per head.
        floor: In the label's unit; (H, 1, 1) for one per head, all above 0.
        weights: "uniform" or "rank".
        rank_offset: Of rank weights; (H, 1, 1) for one per head.
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances; (H, 1, 1) for one per head.

    Returns:
        The loss, and 1 for each anchor that counts.
    """

    def _row_terms(squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        limits = torch.finfo(squared.dtype)
        least = limits.tiny * limits.eps
        if not isinstance(floor, Tensor) and floor == 0:
            used &= labels > 0
            raised = labels.clamp(least, limits.max)  # finite if not used
        elif isinstance(floor, Tensor):
            raised = torch.maximum(labels, floor).clamp_(max=limits.max)
        else:
            raised = labels.clamp(floor, limits.max)
        ranked = weights == "rank"  # weights are (..., R, B), 0 where not used
        weight = plus(row_ranks(labels, used), rank_offset).reciprocal_() if ranked else used.to(squared.dtype)
        total = weight.sum(dim=-1)  # (..., R)
        pairs = total.square() - vecdot(weight, weight)  # sum of w_i w_j over i != j, 0 for fewer than 2 items
        counts = pairs > 0
        scale = 2 * counts * total / pairs.clamp_min(limits.tiny)

        squared += eps
        residual = squared.log().sub_(times(raised.log_(), label_exponent))  # r, of no meaning where not used
        mean = vecdot(weight, residual) / total.clamp_min_(limits.tiny)
        centered = residual.sub_(mean[..., None])
        pull = to_overwrite(weight, squared).mul_(scale[..., None])
        pull = pull.mul_(centered) if pull.shape == centered.shape else pull * centered  # (..., R, B), 0 where not used
        return RowTerms(vecdot(pull, centered), counts, to_overwrite(pull, squared).mul_(2).div_(squared))

    return mean_over_rows(embeddings, label_distances, _row_terms, normalize=normalize)


class LogRatioLoss(LabelDistanceLoss):
    r"""Log-ratio loss over all triplets (anchor a, items i, j) of a batch, in O(A B) time, a block of rows at a time.

    A triplet's loss is ``{log D(f_a,f_i) / D(f_a,f_j) - p log D_y(a,i) / D_y(a,j)}^2`` with D the squared Euclidean
    distance of embeddings and D_y the label distance. With ``r_i = log(D(f_a,f_i) + eps) - p log D_y(a,i)`` it is
    ``(r_i - r_j)^2``, and the mean over an anchor's pairs i < j, a pair counting w_i w_j, has the closed form

        2 sum_i w_i (r_i - mean)^2 / (1 - sum_i w_i^2),   mean = sum_i w_i r_i,   sum_i w_i = 1:

    twice the (weighted) unbiased variance of r. The loss is its mean over the anchors. It is invariant to scaling,
    rotating and shifting the embeddings and to scaling the label distances; with p = 1, squaring both sides multiplies
    it by 4. Anchors with fewer than 2 used items do not count.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``dense-triplet`` asks for the order of label distances only; this one for their ratios.
    ``rkd-distance`` compares distances themselves, in units of their mean.

    Args:
        label_exponent: p, above 0, or "auto": 1 / standard deviation of the log label distances over a sample of
            training pairs. It makes the loss invariant to any power and scale of the label distance.
        floor_quantile: Label distances below the floor are raised to it; it is this quantile of the sample's positive
            label distances, in [0, 1). 0: no floor, pairs of label distance 0 are left out, for they have no logarithm.
        weights: "uniform" (published) or "rank": w_i = 1 / (rank_i + rank_offset), rank_i the place of D_y(a,i),
            before the floor, among the used columns of the row, nearest 0; ties share their mean rank.
        rank_offset: At least 0.001.
        normalize: Whether to L2-normalise the embeddings first; published without.
        eps: Added to the squared embedding distances, above 0; coincident embeddings stay finite by it.

    The defaults were chosen on steering angles, sports poses and drawn people by the mean label distance of the items
    retrieved first: scores on these datasets are not independent of the choice. Rank weights are not shown to help.
    Their effect is smaller than the variation between seeds, except on labels of few values (solar cells), where
    uniform weights are better. Without L2 normalisation, scores are worse on most datasets.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [2.0], [4.0]])
        >>> label_distances = torch.cdist(points, points)
        >>> loss = LogRatioLoss(label_exponent=2, floor_quantile=0, normalize=False)  # D is their square
        >>> f"{loss(points, label_distances):.4f}"
        '0.0000'
        >>> sorted(LogRatioLoss().fit(label_distances[label_distances > 0]).constants())
        ['floor', 'label_exponent']

    Reference:
        Kim, Seo, Laptev, Cho, Kwak: Deep Metric Learning Beyond Binary Supervision, CVPR 2019. The closed form, the
        exponent, the floor and the rank weights are cml's.
    """

    info = LossInfo(
        cost="O(A B), with rank weights O(A B log B)",
        source="Kim et al., CVPR 2019",
        when="The default: ratios of embedding distances should follow those of label distances.",
    )
    constant_names = ("label_exponent", "floor")
    takes_heads = True

    def __init__(
        self,
        label_exponent: Auto = "auto",
        floor_quantile: float = 0.02,
        weights: Weights = "rank",
        rank_offset: float = 5.0,
        normalize: bool = True,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        check_word("weights", weights, get_args(Weights))
        self.label_exponent = check_auto("label_exponent", label_exponent)
        self.floor_quantile = check_number("floor_quantile", floor_quantile, least=0, below=1)
        self.floor: Auto = "auto" if self.floor_quantile > 0 else 0.0
        self.weights: Weights = weights
        self.rank_offset = _check_rank_offset(rank_offset)
        self.normalize = check_flag("normalize", normalize)
        self.eps = check_above_zero("eps", eps)

    @classmethod
    def paper(cls, label_exponent: float = 1.0) -> Self:
        """The published loss: uniform weights, no floor, embeddings as they are.

        Args:
            label_exponent: 1 where label distances are squared L2 distances of poses, or others as published; 2 where
                they are still to be squared.

        Returns:
            The loss.
        """
        return cls(label_exponent=label_exponent, floor_quantile=0.0, weights="uniform", normalize=False)

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """Find the floor, and the exponent if it is "auto".

        Args:
            label_distances: (P,) of training pairs.

        Returns:
            Both by name; an exponent that is a number as it is.

        Raises:
            UserError: no label distance is above 0, or the exponent is "auto" and all are equal.
        """
        sample = finite_sample(label_distances)
        floor = fit_floor(sample, self.floor_quantile)
        if self.label_exponent == "auto":
            return {"label_exponent": fit_label_exponent(sample, floor), "floor": floor}
        return {"label_exponent": float(self.label_exponent), "floor": floor}

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``log_ratio_mean`` with the settings of the module, of embeddings (B, D) and label distances (A, B)."""
        return log_ratio_mean(
            embeddings,
            label_distances,
            label_exponent=self.constant("label_exponent"),
            floor=self.constant("floor"),
            weights=self.weights,
            rank_offset=self.rank_offset,
            normalize=self.normalize,
            eps=self.eps,
        )


def _check_rank_offset(rank_offset: float) -> float:
    return check_number("rank_offset", rank_offset, least=1e-3)  # below it one weight drowns the others
