"""CoSENT: of any two pairs of a batch, the pair with the smaller label distance should have the higher cosine."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.embedding_checks import unit_rows
from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import LossInfo
from cml.losses.own_column import comparable_pairs
from cml.losses.pairs import check_batch, mask_label_distances
from cml.losses.row_blocks import Constant
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.losses.row_order import ascending_rows, tie_runs
from cml.settings import check_number

MOST = 300.0  # a product of two exponentials of it is still a float64


def cosent_loss(embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, scale: float = 2.0) -> Tensor:
    """CoSENT as a function; ``CoSENTLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads. They are L2-normalised.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        scale: Multiplies cosines, above 0 and below 300.

    Returns:
        A scalar, or (H,) of H heads; 0 with a warning if no two pairs differ in label distance.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, or the scale is out of
            range.
    """
    scale = _check_scale(scale)
    mean = cosent_mean(embeddings, mask_label_distances(embeddings, label_distances, mask), scale=scale)
    return warn_without_terms(mean, CoSENTLoss.missing)


def cosent_mean(embeddings: Tensor, label_distances: Tensor, *, scale: Constant) -> RowMean:
    """The formula of ``cosent_loss``.

    Sorted by label distance, the double sum is one of products of cumulative sums, in float64.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        scale: Multiplies cosines; (H, 1, 1) for one per head.

    Returns:
        The loss, and the used pairs of each anchor; 0 of all if no two pairs differ.
    """
    label_distances = check_batch(embeddings, label_distances)
    used = comparable_pairs(label_distances)  # (A, B)
    once = used.triu(1)  # an item that is no anchor lies right of every diagonal
    with torch.autocast(embeddings.device.type, enabled=False):
        points = unit_rows(embeddings)
        cosines = points[..., : len(label_distances), :] @ points.mT  # (..., A, B)
    labels, columns = ascending_rows(label_distances[once].to(cosines.dtype)[None])  # (1, P)
    chosen = cosines[..., once]  # (..., P)
    in_order = chosen.gather(-1, columns[0].expand(chosen.shape))
    # float64, on the processor where the device has none
    exact = in_order.to("cpu" if cosines.device.type == "mps" else cosines.device, torch.float64)
    exponents = (scale[..., 0] if isinstance(scale, Tensor) else scale) * exact
    sums_from_far = functional.pad(exponents.exp().flip(-1).cumsum(-1), (1, 0)).flip(-1)  # (..., P + 1)
    runs = tie_runs(labels)
    if runs is None:
        farther = sums_from_far[..., 1:]
    else:
        farther = sums_from_far.gather(-1, (runs[1][0] + 1).to(exact.device).expand(chosen.shape))
    total = (exponents.neg().exp() * farther).sum(dim=-1)
    return RowMean(total.log1p().to(cosines), used.sum(dim=1) * (total > 0).to(used.device)[..., None])


class CoSENTLoss(LabelDistanceLoss):
    r"""CoSENT over all pairs of pairs of a batch, in O(P log P) time for its P pairs (anchor a, item i).

        log(1 + sum_{p, q: D_y(p) > D_y(q)} exp(scale (cos_p - cos_q)))

    where p and q run over all pairs of the batch, whatever their anchors: label distances are compared across anchors,
    as Sentence-Transformers compares all pairs of its batch. A pair of two anchors is counted once: of its two entries
    the one above the diagonal is read. Pairs of equal label distance are not compared. The loss uses the order of the
    label distances alone: it is invariant to any increasing function of them, and to scaling and rotating the
    embeddings.

    Inputs: embeddings (B, D), label distances (A, B). The embeddings are L2-normalised.

    Relations: ``dense-triplet`` compares pairs of one anchor only, with a hinge, and takes the mean.

    Args:
        scale: Above 0 and below 300, of cosines; 20 as published. The larger it is, the fewer pairs have a gradient:
            those that are the most out of order.

    The scale was chosen among 2, 5, 10 and 20, and multiples of 1 / standard deviation of a batch's cosines, with
    linear heads on drawn ages, drawn classes, drawn heads, digits and solar cells: scores on these datasets are not
    independent of the choice. On digits as classes, 10 and 20 are better. A scale that follows the spread of cosines is
    worse than 2 where they hardly spread.

    Raises:
        UserError: the scale is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> loss = CoSENTLoss(scale=1.0)
        >>> f"{loss(points, torch.tensor([[0.0, 1.0, 2.0]])):.4f}"  # the farther has cosine 1, the nearer 0: log(1 + e)
        '1.3133'

    Reference:
        Su: CoSENT, a more effective sentence embedding than Sentence-BERT, 2022, https://kexue.fm/archives/8847;
        ``CoSENTLoss`` of Sentence-Transformers.
    """

    info = LossInfo(
        cost="O(A B log(A B))",
        source="Su, 2022; Sentence-Transformers",
        when="All pairs should be in one order, so that a similarity means the same for every anchor.",
    )
    normalize = True
    missing = "two pairs of different label distance to compare (over the whole batch)"
    takes_heads = True

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale = _check_scale(scale)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``cosent_mean`` with the scale of the module, of embeddings (B, D) and label distances (A, B)."""
        return cosent_mean(embeddings, label_distances, scale=self.scale)


def _check_scale(scale: float) -> float:
    return check_number("scale", scale, least=0, below=MOST, open_=True)
