"""The log-ratio loss: ratios of embedding distances should be ratios of label distances, for every triplet at once."""

from typing import Literal, Self, get_args

import torch
from torch import Tensor
from torch.linalg import vecdot

from cml.errors import UserError
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
# of the authors' LogRatioLoss.py and utils.py
PUBLISHED_OFFSET = 1e-4  # over the dimension, added to squared embedding distances before their root
PUBLISHED_LOG_OFFSET = 1e-6  # added to embedding distances and label distances before their logarithm


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
    zero_factor: float = 0.5,
    published_offsets: bool = False,
) -> Tensor:
    """The log-ratio loss as a function; ``LogRatioLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        label_exponent: p, above 0.
        floor: In the label's unit, at least 0. Positive label distances below it are raised to it; with 0, pairs of
            label distance 0 are left out, unless ``published_offsets`` keeps them.
        weights: "uniform" or "rank".
        rank_offset: Added to the ranks in rank weights, at least 0.001.
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances, above 0.
        zero_factor: A label distance of 0 counts as this fraction of the floor, in (0, 1].
        published_offsets: Whether distances have the offsets of the authors' code; see ``LogRatioLoss``.

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
        zero_factor=_check_zero_factor(zero_factor),
        published_offsets=published_offsets,
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
    zero_factor: Constant,
    published_offsets: bool,
) -> RowMean:
    """The formula of ``log_ratio_loss``, by its closed form, a block of rows at a time.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        label_exponent: p; (H, 1, 1) for one per head.
        floor: In the label's unit; (H, 1, 1) for one per head, all above 0.
        weights: "uniform" or "rank".
        rank_offset: Added to the ranks in rank weights; (H, 1, 1) for one per head.
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances; (H, 1, 1) for one per head.
        zero_factor: A label distance of 0 counts as this fraction of the floor; (H, 1, 1) for one per head.
        published_offsets: Whether distances have the offsets of the authors' code; ``eps`` is not used then.

    Returns:
        The loss, and 1 for each anchor that counts.
    """
    dimension = embeddings.shape[-1]

    def _row_terms(squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        limits = torch.finfo(squared.dtype)
        if published_offsets:
            label_logs = _published_label_logs(labels, label_exponent)
        else:
            if not isinstance(floor, Tensor) and floor == 0:
                used &= labels > 0
            label_logs = times(raise_to_floor(labels, floor, zero_factor).log_(), label_exponent)
        ranked = weights == "rank"  # weights are (..., R, B), 0 where not used
        weight = plus(row_ranks(labels, used), rank_offset).reciprocal_() if ranked else used.to(squared.dtype)
        total = weight.sum(dim=-1)  # (..., R)
        pairs = total.square() - vecdot(weight, weight)  # sum of w_i w_j over i != j, 0 for fewer than 2 items
        counts = pairs > 0
        scale = 2 * counts * total / pairs.clamp_min(limits.tiny)

        if published_offsets:
            squared += PUBLISHED_OFFSET / dimension
            distance_logs = (squared.sqrt() + PUBLISHED_LOG_OFFSET).log().mul_(2)
        else:
            squared += eps
            distance_logs = squared.log()
        residual = distance_logs.sub_(label_logs)  # r, of no meaning where not used
        mean = vecdot(weight, residual) / total.clamp_min_(limits.tiny)
        centered = residual.sub_(mean[..., None])
        pull = to_overwrite(weight, squared).mul_(scale[..., None])
        pull = pull.mul_(centered) if pull.shape == centered.shape else pull * centered  # (..., R, B), 0 where not used
        values = vecdot(pull, centered)
        slopes = to_overwrite(pull, squared).mul_(2).div_(squared)
        if published_offsets:  # d 2 log(s + o) / d s^2 = 1 / (s^2 + o s) of the distance s
            roots = squared.sqrt()
            slopes = slopes.mul_(roots).div_(roots + PUBLISHED_LOG_OFFSET)
        return RowTerms(values, counts, slopes)

    return mean_over_rows(embeddings, label_distances, _row_terms, normalize=normalize)


def raise_to_floor(labels: Tensor, floor: Constant, zero_factor: Constant) -> Tensor:
    """Raise label distances to the floor, and those of 0 to a fraction of it; infinite ones become finite.

    Args:
        labels: (R, B).
        floor: In the label's unit; (H, 1, 1) for one per head.
        zero_factor: The fraction; (H, 1, 1) for one per head.

    Returns:
        (R, B), or (H, R, B) of H heads; above 0.
    """
    limits = torch.finfo(labels.dtype)
    least = limits.tiny * limits.eps  # the logarithm stays finite where the floor is 0 and the pair is not used
    at_zero = floor * zero_factor
    if isinstance(floor, Tensor) or isinstance(at_zero, Tensor):
        raised = labels.maximum(torch.as_tensor(floor, dtype=labels.dtype, device=labels.device))
        raised = raised.clamp(least, limits.max)
        return torch.where(labels == 0, torch.as_tensor(at_zero, dtype=labels.dtype).clamp(min=least), raised)
    raised = labels.clamp(max(floor, least), limits.max)
    return raised if zero_factor == 1 else raised.masked_fill_(labels == 0, max(at_zero, least))


def _published_label_logs(labels: Tensor, label_exponent: Constant) -> Tensor:
    """2 log(D_y^(p/2) + offset), which is p log D_y but for the offset; infinite label distances become finite."""
    limits = torch.finfo(labels.dtype)
    roots = labels.clamp(max=limits.max) ** (label_exponent / 2)
    return roots.clamp_(max=limits.max).add_(PUBLISHED_LOG_OFFSET).log_().mul_(2)


class LogRatioLoss(LabelDistanceLoss):
    r"""Log-ratio loss over all triplets (anchor a, items i, j) of a batch, in O(A B) time, a block of rows at a time.

    A triplet's loss is ``{log D(f_a,f_i) / D(f_a,f_j) - p log D_y(a,i) / D_y(a,j)}^2`` with D the squared Euclidean
    distance of embeddings and D_y the label distance. With ``r_i = log(D(f_a,f_i) + eps) - p log D_y(a,i)`` it is
    ``(r_i - r_j)^2``, and the mean over an anchor's pairs i < j, a pair counting w_i w_j, has the closed form

        2 sum_i w_i (r_i - mean)^2 / (1 - sum_i w_i^2),   mean = sum_i w_i r_i,   sum_i w_i = 1,

    which is twice the (weighted) unbiased variance of r. The loss is its mean over the anchors. It is invariant to
    scaling, rotating and shifting the embeddings and to scaling the label distances; with p = 1, squaring both sides
    multiplies it by 4. Anchors with fewer than 2 used items do not count.

    A label distance of 0 is a censored value: two labels are equal as far as they were measured. It counts as half of
    the floor, the usual substitute for a value below a detection limit, so that equal labels are nearer than the
    nearest different ones, and classes, whose other label distances are all equal, can be learned.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``dense-triplet`` asks for the order of label distances only; this one for their ratios.
    ``rkd-distance`` compares distances themselves, in units of their mean.

    Args:
        label_exponent: p, above 0, or "auto": 1 / standard deviation of the log label distances over a sample of
            training pairs, at most ``largest_exponent``. It makes the loss invariant to any power and scale of the
            label distance.
        floor_quantile: Positive label distances below the floor are raised to it; it is this quantile of the sample's
            positive label distances, in [0, 1). 0: no floor, pairs of label distance 0 are left out, for they have no
            logarithm.
        weights: "uniform" (published) or "rank": w_i = 1 / (rank_i + rank_offset), rank_i the place of D_y(a,i),
            before the floor, among the used columns of the row, nearest 0; ties share their mean rank.
        rank_offset: At least 0.001.
        normalize: Whether to L2-normalise the embeddings first; published without.
        eps: Added to the squared embedding distances, above 0; coincident embeddings stay finite by it.
        zero_factor: A label distance of 0 counts as this fraction of the floor, in (0, 1]. 1: as the floor itself.
        largest_exponent: The largest exponent that "auto" chooses, above 0; one such as 1000 sets no bound. Where label
            distances hardly spread, as those of captions and of many classes, 1 / standard deviation is far too
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
        self.floor: Auto = "auto" if self.floor_quantile > 0 else 0.0
        self.weights: Weights = weights
        self.rank_offset = _check_rank_offset(rank_offset)
        self.normalize = check_flag("normalize", normalize)
        self.eps = check_above_zero("eps", eps)
        self.zero_factor = _check_zero_factor(zero_factor)
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
                they are still to be squared.

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

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """Find the floor, and the exponent if it is "auto".

        Args:
            label_distances: (P,) of training pairs.

        Returns:
            Both by name; an exponent that is a number as it is.

        Raises:
            UserError: no label distance is above 0, or the exponent is "auto" and all are equal.
        """
        return find_log_ratio_constants(
            label_distances,
            label_exponent=self.label_exponent,
            floor_quantile=self.floor_quantile,
            zero_factor=self.zero_factor,
            largest_exponent=self.largest_exponent,
        )

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
            zero_factor=self.zero_factor,
            published_offsets=self.published_offsets,
        )


def find_log_ratio_constants(
    label_distances: Tensor, *, label_exponent: Auto, floor_quantile: float, zero_factor: float, largest_exponent: float
) -> dict[str, float]:
    """Find the constants of the log-ratio losses.

    Args:
        label_distances: (P,) of training pairs.
        label_exponent: The exponent, or "auto".
        floor_quantile: See ``LogRatioLoss``.
        zero_factor: See ``LogRatioLoss``.
        largest_exponent: See ``LogRatioLoss``.

    Returns:
        label_exponent and floor.

    Raises:
        UserError: no label distance is above 0, or the exponent is "auto" and all are equal.
    """
    sample = finite_sample(label_distances)
    floor = fit_floor(sample, floor_quantile)
    if label_exponent == "auto":
        exponent = fit_label_exponent(sample, floor, zero_factor)
        return {"label_exponent": min(exponent, largest_exponent), "floor": floor}
    return {"label_exponent": float(label_exponent), "floor": floor}


def _check_zero_factor(zero_factor: float) -> float:
    factor = check_above_zero("zero_factor", zero_factor)
    if factor > 1:
        raise UserError(f"The 'zero_factor' must be a number above 0 and at most 1. Got {zero_factor!r} instead.")
    return factor


def _check_rank_offset(rank_offset: float) -> float:
    return check_number("rank_offset", rank_offset, least=1e-3)  # below it one weight drowns the others
