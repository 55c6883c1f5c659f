"""The log-ratio loss: ratios of embedding distances should be ratios of label distances, for every triplet at once."""

from typing import Literal, Self, get_args

import numpy as np
import torch
from torch import Tensor
from torch.linalg import vecdot

from cml.array_types import Float64
from cml.errors import UserError
from cml.losses.anchor_blocks import AnchorMean
from cml.losses.closed_form import RowTerms, mean_over_rows
from cml.losses.label_distance_loss import Auto, LabelDistanceLoss, finite_sample
from cml.losses.loss import LossInfo
from cml.losses.row_order import row_ranks
from cml.settings import check_above_zero, check_auto, check_flag, check_number, check_word

Weights = Literal["uniform", "rank"]
# from the authors' LogRatioLoss.py and utils.py
PUBLISHED_OFFSET = 1e-4  # over the dimension, added to squared embedding distances before their root
PUBLISHED_LOG_OFFSET = 1e-6  # added to embedding distances and label distances before their logarithm


class LogRatioLoss(LabelDistanceLoss):
    """Log-ratio loss over all triplets (anchor a, items i, j) of a batch, in O(A B) time with uniform weights.

    A triplet's loss is ``{log(D(f_a,f_i) / D(f_a,f_j)) - p log(D_y(a,i) / D_y(a,j))}^2`` with D the squared Euclidean
    distance of embeddings and D_y the label distance. With ``r_i = log(D(f_a,f_i) + eps) - p log D_y(a,i)`` it is
    ``(r_i - r_j)^2``, and the mean over an anchor's pairs i < j, a pair counting w_i w_j, has the closed form

        2 sum_i w_i (r_i - mean)^2 / (1 - sum_i w_i^2),   mean = sum_i w_i r_i,   sum_i w_i = 1,

    which is twice the (weighted) unbiased variance of r. The loss is its mean over the anchors. Without L2
    normalisation and but for eps, it is invariant to scaling, rotating and shifting the embeddings, and, once fitted to
    them, to scaling the label distances; with p = 1, squaring both D and D_y multiplies it by 4. Anchors with fewer
    than 2 used items do not count.

    A label distance of 0 is a censored value: two labels are equal as far as they were measured. It counts as
    ``zero_factor`` of the floor, by default half, the usual substitute for a value below a detection limit, so that
    equal labels are nearer than the nearest different ones, and classes, whose other label distances are all equal, can
    be learned.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``dense-triplet`` asks for the order of label distances only; this one for their ratios.
    ``rkd-distance`` compares distances themselves, in units of their mean.

    Args:
        label_exponent: p, above 0, or "auto": 1 / standard deviation of the log label distances over a sample of
            training pairs, at most ``largest_exponent``. It makes the loss invariant to the scale of the label distance
            and, unless the bound acts or labels are equal, to its power.
        floor_quantile: Positive label distances below the floor are raised to it; it is this quantile of the sample's
            positive label distances, in [0, 1). 0: no floor, pairs of label distance 0 are left out, for they have no
            logarithm.
        weights: "uniform" (published) or "rank": w_i = 1 / (rank_i + rank_offset), rank_i the rank of D_y(a,i),
            before the floor, among the used columns of the row, from 0 for the nearest; ties share their mean rank.
        rank_offset: At least 0.001.
        normalize: Whether to L2-normalise the embeddings first; the paper does not.
        eps: Added to the squared embedding distances, above 0; it keeps the loss of coincident embeddings finite.
        zero_factor: A label distance of 0 counts as this fraction of the floor, in (0, 1]. 1: as the floor itself.
        largest_exponent: The largest exponent that "auto" chooses, above 0; 1000 hardly limits it. Where label
            distances vary little, as those of captions and of many classes do, 1 / standard deviation is far too
            steep.
        published_offsets: Whether distances have the offsets of the authors' code: the embedding distance is
            sqrt(D + 1e-4 / dimension) + 1e-6 and the label distance D_y^(p/2) + 1e-6, and the loss is of the logarithms
            of their squares. Pairs of label distance 0 are kept. ``eps``, the floor and ``zero_factor`` are not used.

    The defaults were chosen on steering angles, sports poses and drawn people by the mean label distance of the items
    retrieved first: scores on these datasets are not independent of the choice. Rank weights are not shown to help.
    Their effect is smaller than the variation between seeds, except on labels of few values (solar cells), where
    uniform weights are better. Without L2 normalisation, scores are worse on most datasets. The bound of the exponent
    was chosen among 2, 3 and 4 on captions, digits, drawn rooms and drawn scenes, in
    ``tests/benchmarks/equal_labels.py``: 4 is best on the three with continuous labels, 3 on digits.

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
        zero_factor: float = 0.5,
        largest_exponent: float = 4.0,
        published_offsets: bool = False,
    ) -> None:
        super().__init__()
        check_word("weights", weights, get_args(Weights))
        self.label_exponent = check_auto("label_exponent", label_exponent)
        self.floor_quantile = check_number("floor_quantile", floor_quantile, least=0, below=1)
        self.floor: Auto = "auto" if self.floor_quantile > 0 else 0.0  # "auto": ``fit`` finds it by the quantile
        self.weights: Weights = weights
        # below this, the nearest item's weight drowns the others
        self.rank_offset: float | Tensor = check_number("rank_offset", rank_offset, least=1e-3)
        self.normalize = check_flag("normalize", normalize)
        self.eps = check_above_zero("eps", eps)
        self.zero_factor = check_above_zero("zero_factor", zero_factor)
        if self.zero_factor > 1:
            raise UserError(f"The 'zero_factor' must be a number above 0 and at most 1. Got {zero_factor!r} instead.")
        self.largest_exponent = check_above_zero("largest_exponent", largest_exponent)
        self.published_offsets = check_flag("published_offsets", published_offsets)
        if self.published_offsets and self.floor_quantile > 0:
            raise UserError(
                f"The 'published_offsets' take the place of a floor: set floor_quantile to 0. Got {floor_quantile!r}."
            )

    @classmethod
    def paper(cls, label_exponent: float = 1.0) -> Self:
        """The published loss: uniform weights, embeddings as they are, the offsets of the authors' code.

        The authors' code takes logarithms of distances that are not squared, so its value for one anchor is a fourth of
        this one with ``label_exponent=2``.

        Args:
            label_exponent: 1 where label distances are squared L2 distances of poses, or others as published; 2 where
                the loss has to square them.

        Returns:
            The loss.
        """
        return cls(
            label_exponent=label_exponent,
            floor_quantile=0.0,
            weights="uniform",
            normalize=False,
            published_offsets=True,
        )

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula: twice the weighted, unbiased variance of each anchor's residuals.

        It is a mean and counts as one term. ``mean`` has added ``eps`` to the squared distances.
        """
        weight = self._weights(labels, used)
        has_pair = used.sum(dim=-1) >= 2
        weight = weight / weight.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)  # w, sums to 1
        residual = self._log_distances(squared) - self._log_labels(labels)  # r
        mean = vecdot(weight, residual)[..., None]
        variance = vecdot(weight, (residual - mean).square()) / (1 - vecdot(weight, weight)).where(has_pair, 1)
        return 2 * variance * has_pair, has_pair

    def anchor_slopes(self, squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        """``anchor_values`` with its slopes in the squared distances, 4 w_i (r_i - mean) / (1 - sum w^2) / (D_i + eps).

        The mean in r_i - mean has a slope too, which vanishes, as the weighted residuals around it sum to 0. Weights
        are not normalised here, which saves a pass: with their sum W, the variance is
        W sum w (r - mean)^2 / (W^2 - sum w^2). What was made here is overwritten: memory costs more than arithmetic.

        Args:
            squared: (..., R, B) squared distances, to which ``mean`` has added ``eps``.
            labels: (R, B) label distances.
            used: (R, B) bool, the pairs that may be used; those without a logarithm are taken out.

        Returns:
            The values (..., R), which anchors count (R,), and the slopes (..., R, B).
        """
        weight = self._weights(labels, used)
        total = weight.sum(dim=-1)  # W, (..., R)
        pairs = total.square() - vecdot(weight, weight)  # the sum of w_i w_j over i != j
        has_pair = pairs.view(-1, len(labels))[0] > 0  # of any head, which use the same pairs
        scale = 2 * has_pair * total / pairs.where(has_pair, 1)
        residual = self._log_distances(squared).sub_(self._log_labels(labels))
        mean = vecdot(weight, residual) / total.clamp_min(torch.finfo(total.dtype).tiny)
        centered = residual.sub_(mean[..., None])
        pull = weight.mul_(scale[..., None])
        # weights of the labels alone are (R, B), which several heads share, and residuals (H, R, B)
        pull = pull.mul_(centered) if pull.shape == centered.shape else pull * centered
        values = vecdot(pull, centered)
        slopes = pull.mul_(2).div_(squared)
        if self.published_offsets:  # d 2 log(s + o) / d s^2 = 1 / (s^2 + o s), with s^2 = squared
            roots = squared.sqrt()
            slopes = slopes.mul_(roots).div_(roots + PUBLISHED_LOG_OFFSET)
        return RowTerms(values, has_pair, slopes)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> AnchorMean:
        """The mean over anchors, with its gradient.

        The gradient is made in the forward pass, from the slopes of each block of anchors; ``values`` serves gradients
        of gradients and ``torch.func``.
        """
        eps = PUBLISHED_OFFSET / embeddings.shape[-1] if self.published_offsets else self.eps

        def values(squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
            return self.anchor_values(squared + eps, labels, used)

        def slopes(squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
            return self.anchor_slopes(squared.add_(eps), labels, used)

        look = self.may_check_numbers(embeddings)
        return mean_over_rows(embeddings, label_distances, values, slopes, normalize=self.normalize, look=look)

    def _weights(self, labels: Tensor, used: Tensor) -> Tensor:
        """The weights (R, B), 0 where not used, which need not sum to 1.

        Without a floor, pairs of label distance 0 are taken out of ``used`` in place.
        """
        floor = self.constant("floor")
        # the floors of H heads are a tensor only where none is 0
        if not self.published_offsets and not isinstance(floor, Tensor) and floor == 0:
            used &= labels > 0  # a label distance of 0 has no logarithm
        if self.weights == "uniform":
            return used.to(labels.dtype)
        ranks, offset = row_ranks(labels, used), self.rank_offset  # a rank is infinite where not used
        return (ranks + offset if isinstance(offset, Tensor) else ranks.add_(offset)).reciprocal_()

    def _log_distances(self, squared: Tensor) -> Tensor:
        """The logarithm of D + eps, which is given, as a new tensor."""
        if self.published_offsets:
            return (squared.sqrt() + PUBLISHED_LOG_OFFSET).log().mul_(2)
        return squared.log()

    def _log_labels(self, labels: Tensor) -> Tensor:
        """The logarithm of D_y^p, with D_y raised to the floor; finite also where a pair is not used."""
        exponent = self.constant("label_exponent")
        if self.published_offsets:  # 2 log(D_y^(p/2) + offset)
            largest = torch.finfo(labels.dtype).max
            powers = labels.clamp(max=largest) ** (exponent / 2)
            logs: Tensor = powers.clamp_(max=largest).add_(PUBLISHED_LOG_OFFSET).log_().mul_(2)
        else:
            logs = raise_to_floor(labels, self.constant("floor"), self.zero_factor).log_()
            logs = exponent * logs if isinstance(exponent, Tensor) else logs.mul_(exponent)
        return logs

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """Find the floor, and the exponent if it is "auto"."""
        sample = finite_sample(label_distances)
        floor = fit_floor(sample, self.floor_quantile)
        if self.label_exponent != "auto":  # a state has all constants or none
            return {"label_exponent": self.label_exponent, "floor": floor}
        exponent = fit_label_exponent(sample, floor, self.zero_factor)
        return {"label_exponent": min(exponent, self.largest_exponent), "floor": floor}


def raise_to_floor(labels: Tensor, floor: float | Tensor, zero_factor: float | Tensor) -> Tensor:
    """Raise label distances (R, B) to the floor, and those of 0 to a fraction of it; infinite ones become finite.

    Floor and fraction are one number, or a tensor (H, 1, 1) with one of each of H heads.
    """
    limits = torch.finfo(labels.dtype)
    least = limits.tiny * limits.eps  # the least above 0: logarithms stay finite for pairs that are left out too
    at_zero = floor * zero_factor
    if isinstance(floor, Tensor) or isinstance(at_zero, Tensor):
        raised = labels.clamp(least, limits.max).clamp(min=floor)
        return torch.where(labels == 0, torch.as_tensor(at_zero, dtype=labels.dtype, device=labels.device), raised)
    return labels.clamp(max(floor, least), limits.max).masked_fill_(labels == 0, max(at_zero, least))


def fit_floor(sample: Float64, quantile: float) -> float:
    """A quantile of the positive label distances of a sample (P,), below which all positive ones count as equal.

    0 for the quantile 0. A sample without label distances above 0 is refused all the same.
    """
    positive = _positive(sample)
    return float(np.quantile(positive, quantile)) if quantile > 0 else 0.0


def fit_label_exponent(sample: Float64, floor: float, zero_factor: float) -> float:
    """The exponent p that makes p log D_y spread by 1 over a sample (P,), whatever unit and power D_y has.

    Label distances below the floor are raised to it, and those of 0 to ``zero_factor`` of it; with a floor of 0 the
    latter are left out, as the loss does without ``published_offsets``. A sample of equal label distances is refused.
    """
    kept = np.where(sample > 0, sample.clip(min=floor), zero_factor * floor) if floor > 0 else _positive(sample)
    spread = float(np.log(kept).std())
    if not spread > 1e-6:
        raise UserError(
            "label_exponent='auto' divides by the spread of the log label distances, and the sample's are all "
            f"equal (standard deviation {spread:g}): there is nothing to learn from them. Check the label distance."
        )
    return 1 / spread


def _positive(sample: Float64) -> Float64:
    positive = sample[sample > 0]
    if len(positive) == 0:
        raise UserError("LogRatioLoss needs label distances above 0 to fit. Got a sample of zeros instead.")
    return positive
