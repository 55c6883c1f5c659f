"""The log-ratio loss over all pairs of a batch at once, for judged pairs, of which an anchor has few."""

from torch import Tensor

from cml.losses.anchor_blocks import AnchorMean
from cml.losses.closed_form import compare_by_closed_form
from cml.losses.label_distance_loss import Auto, LabelDistanceLoss, finite_sample
from cml.losses.log_ratio import fit_floor, fit_label_exponent, raise_to_floor
from cml.losses.loss import LossInfo
from cml.settings import check_above_zero, check_auto, check_flag, check_number

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
        """Find the floor, and the exponent if it is "auto"."""
        sample = finite_sample(label_distances)
        floor = fit_floor(sample, self.floor_quantile)
        if self.label_exponent != "auto":
            return {"label_exponent": self.label_exponent, "floor": floor}
        return {
            "label_exponent": min(fit_label_exponent(sample, floor, _ZERO_FACTOR), self.largest_exponent),
            "floor": floor,
        }

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> AnchorMean:
        """The formula: twice the variance of the residuals of all pairs."""
        distances, labels, used = compare_by_closed_form(
            embeddings, label_distances, normalize=self.normalize, look=self.may_check_numbers(embeddings)
        )
        exponent, floor = self.constant("label_exponent"), self.constant("floor")
        once = used.triu(1)  # an item that is no anchor lies right of every diagonal
        if not isinstance(floor, Tensor) and floor == 0:
            once &= labels > 0
        label_logs = exponent * raise_to_floor(labels, floor, _ZERO_FACTOR).log()
        residuals = (distances.where(once, 1).square() + self.eps).log() - label_logs  # r, (..., A, B)
        pairs = once.sum()
        mean = residuals.where(once, 0).sum(dim=(-2, -1), keepdim=True) / pairs.clamp(min=1)
        squares = (residuals - mean).where(once, 0).square().sum(dim=(-2, -1))
        learns = pairs >= 2
        return AnchorMean(2 * squares * learns / (pairs - 1).clamp(min=1), used.sum(dim=1) * learns)


def log_ratio_of_pairs(
    squared_distances: Tensor, label_distances: Tensor, *, label_exponent: float, floor: float, eps: float = 1e-6
) -> Tensor:
    """The loss over a list of at least 2 pairs: twice the variance of their log ratios.

    ``squared_distances`` (P,) are those of embeddings, ``label_distances`` (P,) finite ones, and the floor is above 0.
    """
    label_logs = raise_to_floor(label_distances, floor, _ZERO_FACTOR).log()
    residuals = (squared_distances + eps).log() - label_exponent * label_logs
    return 2 * residuals.var()
