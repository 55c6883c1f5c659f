"""The log-ratio loss over all pairs of a batch at once, for judged pairs, of which an anchor has few."""

from torch import Tensor

from cml.losses.label_distance_loss import Auto, LabelDistanceLoss, Mask
from cml.losses.log_ratio import find_log_ratio_constants, raise_to_floor
from cml.losses.loss import LossInfo
from cml.losses.pairs import compare, mask_label_distances
from cml.losses.row_blocks import Constant
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_above_zero, check_auto, check_flag, check_number


def pair_log_ratio_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    label_exponent: float,
    floor: float,
    normalize: bool = True,
    eps: float = 1e-6,
) -> Tensor:
    """The log-ratio loss over all pairs of a batch, as a function; ``PairLogRatioLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        label_exponent: p, above 0.
        floor: In the label's unit, at least 0. Positive label distances below it are raised to it, and those of 0 to
            half of it; with 0, pairs of label distance 0 are left out.
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances, above 0.

    Returns:
        A scalar, or (H,) of H heads; 0 with a warning if the batch has fewer than 2 usable pairs.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, or a constant is out of
            range.
    """
    mean = pair_log_ratio_mean(
        embeddings,
        mask_label_distances(embeddings, label_distances, mask),
        label_exponent=check_above_zero("label_exponent", label_exponent),
        floor=check_number("floor", floor, least=0),
        normalize=normalize,
        eps=check_above_zero("eps", eps),
    )
    return warn_without_terms(mean, PairLogRatioLoss.missing)


def log_ratio_of_pairs(
    squared_distances: Tensor, label_distances: Tensor, *, label_exponent: float, floor: float, eps: float = 1e-6
) -> Tensor:
    """The loss of ``pair_log_ratio_loss`` over a list of pairs: twice the variance of their log ratios.

    Args:
        squared_distances: (P,) squared distances of the embeddings of each pair, P of at least 2.
        label_distances: (P,), >= 0 and finite.
        label_exponent: p, above 0.
        floor: As of ``pair_log_ratio_loss``, above 0.
        eps: Added to the squared distances, above 0.

    Returns:
        A scalar.
    """
    label_logs = raise_to_floor(label_distances, floor, _ZERO_FACTOR).log()
    residuals = (squared_distances + eps).log() - label_exponent * label_logs
    return 2 * residuals.var()


def pair_log_ratio_mean(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    label_exponent: Constant,
    floor: Constant,
    normalize: bool,
    eps: Constant,
) -> RowMean:
    """The formula of ``pair_log_ratio_loss``.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        label_exponent: p; (H, 1, 1) for one per head.
        floor: In the label's unit; (H, 1, 1) for one per head.
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances; (H, 1, 1) for one per head.

    Returns:
        The loss, and the used pairs of each anchor; 0 of all if the batch has fewer than 2 pairs.
    """
    distances, labels, used = compare(embeddings, label_distances, normalize=normalize)
    once = used.triu(1)  # an item that is no anchor lies right of every diagonal
    if not isinstance(floor, Tensor) and floor == 0:
        once &= labels > 0
    label_logs = label_exponent * raise_to_floor(labels, floor, _ZERO_FACTOR).log()
    residuals = (distances.where(once, 1).square() + eps).log() - label_logs  # (..., A, B)
    pairs = once.sum()
    mean = residuals.where(once, 0).sum(dim=(-2, -1), keepdim=True) / pairs.clamp(min=1)
    squares = (residuals - mean).where(once, 0).square().sum(dim=(-2, -1))
    learns = pairs >= 2
    return RowMean(2 * squares * learns / (pairs - 1).clamp(min=1), used.sum(dim=1) * learns)


_ZERO_FACTOR = 0.5  # of the floor: half of a detection limit, as in LogRatioLoss


class PairLogRatioLoss(LabelDistanceLoss):
    r"""Log-ratio loss over all pairs of pairs of a batch, whatever their anchors.

    The loss of two pairs p and q of a batch is ``{log D_p / D_q - e log D_y(p) / D_y(q)}^2`` with D the squared
    Euclidean distance of embeddings, D_y the label distance and e the label exponent. With
    ``r_p = log(D_p + eps) - e log D_y(p)`` it is ``(r_p - r_q)^2``, and the mean over all pairs p < q of the P pairs of
    a batch is twice the unbiased variance of r:

        2 / (P - 1) sum_p (r_p - mean r)^2.

    A pair of two anchors is counted once: of its two entries the one above the diagonal is read. The loss is invariant
    to scaling, rotating and shifting the embeddings and to scaling the label distances.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``log-ratio`` has a variance for each anchor, so that an anchor with one known pair contributes nothing.
    Of judged pairs, most anchors of a batch have one or none; here every known pair is a term. ``cosent`` compares all
    pairs of a batch too, by their order alone.

    Args:
        label_exponent: e, above 0, or "auto": as of ``log-ratio``.
        floor_quantile: As of ``log-ratio``, in [0, 1).
        largest_exponent: The largest exponent that "auto" chooses, above 0.
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances, above 0.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0], [4.0]])
        >>> distances = torch.cdist(points, points)
        >>> loss = PairLogRatioLoss(label_exponent=2, floor_quantile=0, normalize=False)
        >>> f"{loss(points, distances):.4f}"  # D is the square of the label distance
        '0.0000'

    Reference:
        The ratios of Kim, Seo, Laptev, Cho, Kwak: Deep Metric Learning Beyond Binary Supervision, CVPR 2019; comparing
        all pairs is cml's.
    """

    info = LossInfo(
        cost="O(A B)",
        source="cml, after Kim et al., CVPR 2019",
        when="Few pairs of a batch have a label distance, as judged pairs have.",
    )
    constant_names = ("label_exponent", "floor")
    missing = "a usable label distance where the batch has two of them"
    takes_heads = True

    def __init__(
        self,
        label_exponent: Auto = "auto",
        floor_quantile: float = 0.02,
        largest_exponent: float = 4.0,
        normalize: bool = True,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        self.label_exponent = check_auto("label_exponent", label_exponent)
        self.floor_quantile = check_number("floor_quantile", floor_quantile, least=0, below=1)
        self.floor: Auto = "auto" if self.floor_quantile > 0 else 0.0
        self.largest_exponent = check_above_zero("largest_exponent", largest_exponent)
        self.normalize = check_flag("normalize", normalize)
        self.eps = check_above_zero("eps", eps)

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
            zero_factor=_ZERO_FACTOR,
            largest_exponent=self.largest_exponent,
        )

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``pair_log_ratio_mean`` with the settings of the module, of embeddings (B, D) and label distances (A, B)."""
        return pair_log_ratio_mean(
            embeddings,
            label_distances,
            label_exponent=self.constant("label_exponent"),
            floor=self.constant("floor"),
            normalize=self.normalize,
            eps=self.eps,
        )
