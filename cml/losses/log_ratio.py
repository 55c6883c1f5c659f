"""The log-ratio loss: ratios of embedding distances should be ratios of label distances, for every triplet at once."""

from typing import Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vecdot

from cml.errors import UserError
from cml.losses.label_distance_loss import Auto, LabelDistanceLoss, Mask, finite_sample
from cml.losses.loss import About
from cml.losses.row_blocks import RowTerms
from cml.losses.row_order import rank_weights
from cml.settings import check_above_zero, check_auto, check_number, check_word

Weights = Literal["uniform", "rank"]


class LogRatioLoss(LabelDistanceLoss):
    r"""Log-ratio loss over all triplets (anchor a, items i, j) of a batch, in O(A B) time, a block of rows at a time.

    A triplet's loss is ``{log D(f_a,f_i) / D(f_a,f_j) - p log D_y(a,i) / D_y(a,j)}^2`` with D the squared Euclidean
    distance of embeddings and D_y the label distance. With ``r_i = log(D(f_a,f_i) + eps) - p log D_y(a,i)`` it is
    ``(r_i - r_j)^2``, and the mean over an anchor's pairs i < j, a pair counting w_i w_j, has the closed form

        2 sum_i w_i (r_i - mean)^2 / (1 - sum_i w_i^2),   mean = sum_i w_i r_i,   sum_i w_i = 1:

    twice the (weighted) unbiased variance of r. The loss is its mean over the anchors. Scaling, turning or shifting
    the embeddings and scaling the label distances leave it as it is; with p = 1, squaring both sides multiplies it
    by 4.

    Anchors with fewer than 2 used items do not count.

    Relations: ``dense-triplet`` asks for the order of label distances only; this one for their ratios.

    Args:
        label_exponent: p, or "auto": 1 / standard deviation of the log label distances over a sample of
            training pairs. It makes the loss blind to any power and scale of the label distance.
        floor_quantile: Label distances below the floor are raised to it; it is this quantile of the sample's positive
            label distances, in [0, 1). 0: no floor, pairs of label distance 0 are left out, for they have no logarithm.
        weights: "uniform" (published) or "rank": w_i = 1 / (rank_i + rank_offset), rank_i the place of D_y(a,i),
            before the floor, among the used columns of the row, nearest 0; ties share their mean rank.
        rank_offset: At least 0.001.
        normalize: L2-normalise the embeddings first; published without.
        eps: Added to the squared embedding distances, above 0; coincident embeddings stay finite by it.

    The defaults were chosen on steering angles, sports poses and drawn people by the mean label distance of the items
    retrieved first. Rank weights are the better choice on poses and the worse on steering angles; the differences are
    of the size of the spread over seeds. L2 normalisation is not.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [2.0], [4.0]])
        >>> label_distances = torch.cdist(points, points)
        >>> loss = LogRatioLoss(label_exponent=2, floor_quantile=0, normalize=False)  # D is their square
        >>> f"{loss(points, label_distances):.4f}"
        '0.0000'
        >>> sorted(LogRatioLoss().fit(label_distances[label_distances > 0]).fitted())
        ['floor', 'label_exponent']

    Reference:
        Kim, Seo, Laptev, Cho, Kwak: Deep Metric Learning Beyond Binary Supervision, CVPR 2019. The closed form, the
        exponent, the floor and the rank weights are cml's.
    """

    _when = "The default: ratios of embedding distances should follow those of label distances."
    about = About("O(A B), with rank weights O(A B log B)", "Kim et al., CVPR 2019", _when)
    constants = ("label_exponent", "floor")

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
        self.weights: Weights = weights
        self.rank_offset = check_number("rank_offset", rank_offset, least=1e-3)  # below it one weight drowns the others
        self.normalize = normalize
        self.eps = check_above_zero("eps", eps)

    @classmethod
    def paper(cls, label_exponent: float = 1.0) -> Self:
        """The published loss: uniform weights, no floor, embeddings as they are.

        It takes squared L2 distances of poses, and other label distances as they are: ``label_exponent`` is 1 where
        label distances are those already, and 2 where they are still to be squared.
        """
        return cls(label_exponent=label_exponent, floor_quantile=0.0, weights="uniform", normalize=False)

    def to_find(self) -> tuple[str, ...]:
        """The exponent if it is "auto", and the floor if there is one."""
        return ("label_exponent",) * (self.label_exponent == "auto") + ("floor",) * (self.floor_quantile > 0)

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """The floor and the exponent."""
        sample = finite_sample(label_distances)
        positive = sample[sample > 0]
        if len(positive) == 0:
            raise UserError("LogRatioLoss needs label distances above 0 to fit. Got a sample of zeros instead.")
        floor = float(np.quantile(positive, self.floor_quantile)) if self.floor_quantile > 0 else 0.0
        if self.label_exponent != "auto":
            return {"label_exponent": float(self.label_exponent), "floor": floor}
        spread = float(np.log(sample.clip(min=floor) if floor > 0 else positive).std())  # of the pairs that are kept
        if not spread > 1e-6:
            raise UserError(
                "label_exponent='auto' divides by the spread of the log label distances, and the sample's are all "
                f"equal (standard deviation {spread:g}); give label_exponent as a number."
            )
        return {"label_exponent": 1 / spread, "floor": floor}

    def row_terms(self, squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        """What a block of anchors adds, by the closed form."""
        exponent = self.constant("label_exponent") if self.label_exponent == "auto" else float(self.label_exponent)
        floor = self.constant("floor") if self.floor_quantile > 0 else 0.0
        limits = torch.finfo(squared.dtype)
        if floor == 0:
            used &= labels > 0
        weight = rank_weights(labels, used, self.rank_offset) if self.weights == "rank" else used.to(squared.dtype)
        total = weight.sum(dim=1)  # (R,)
        pairs = total.square() - vecdot(weight, weight)  # (R,) sum of w_i w_j over i != j, 0 for fewer than 2 items
        counts = pairs > 0
        scale = 2 * counts * total / pairs.clamp_min(limits.tiny)

        squared += self.eps
        log_labels = labels.clamp(floor or limits.tiny * limits.eps, limits.max).log_()  # finite if not used
        residual = squared.log().sub_(log_labels, alpha=exponent)  # r, of no meaning where not used
        mean = vecdot(weight, residual) / total.clamp_min_(limits.tiny)
        centred = residual.sub_(mean[:, None])
        pull = weight.mul_(scale[:, None]).mul_(centred)  # (R, B), 0 where not used
        return RowTerms(vecdot(pull, centred), counts, pull.mul_(2).div_(squared))


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
    """``LogRatioLoss`` as a function of embeddings (B, D) and label distances (A, B).

    ``floor`` is in the label's unit: label distances below it are raised to it, and with 0 pairs of label distance 0
    are left out. A ``mask`` (A, B) bool is True where a pair may be used; ``None``: everywhere.
    """
    floor, exponent = check_number("floor", floor, least=0), check_above_zero("label_exponent", label_exponent)
    loss = LogRatioLoss("auto", 0.5, weights, rank_offset, normalize, eps)
    loss._fitted = {"label_exponent": exponent, "floor": floor}  # in the place of those that it would find
    return loss.value(embeddings, label_distances, mask)
