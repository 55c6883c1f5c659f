"""CoSENT: of any two pairs of a batch, the pair with the smaller label distance should have the higher cosine."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.anchor_blocks import AnchorMean
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import LossInfo
from cml.losses.pairs import check_batch, comparable_pairs, unit_rows
from cml.losses.row_order import ascending_rows, run_ends
from cml.processes.device import device_of_float64
from cml.settings import check_number

MOST = 300.0  # a product of two exponentials of it is still a float64


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
    uses_order_alone = True
    missing = "two pairs of different label distance to compare (over the whole batch)"
    takes_heads = True

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.scale: float | Tensor = check_number("scale", scale, least=0, below=MOST, open_=True)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> AnchorMean:
        """The formula: sorted by label distance, the double sum is one of products of cumulative sums, in float64."""
        label_distances = check_batch(embeddings, label_distances, look=self.may_check_numbers(embeddings))
        anchors, items = label_distances.shape
        used = comparable_pairs(label_distances)  # (A, B)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = unit_rows(embeddings)
            cosines = (points[..., :anchors, :] @ points.mT).flatten(-2)  # (..., A B)
        rows, columns = torch.triu_indices(anchors, items, 1, device=used.device)  # P places, each pair once
        once = rows * items + columns
        labels = label_distances.where(used, torch.inf).flatten()[once].to(cosines.dtype)  # those not used come last
        in_order, order = (row[0] for row in ascending_rows(labels[None]))  # (P,)
        # float64, on the processor where the device has none
        exact = cosines[..., once[order]].to(device_of_float64(cosines.device), torch.float64)
        counted, ends = (in_order < torch.inf).to(exact.device), run_ends(in_order).to(exact.device)
        exponents = (self.scale[..., 0] if isinstance(self.scale, Tensor) else self.scale) * exact  # (..., P)
        sums_from_far = functional.pad(exponents.exp().where(counted, 0).flip(-1).cumsum(-1), (1, 0)).flip(-1)
        farther = sums_from_far[..., ends + 1]  # of the pairs after those of equal label distance
        total = (exponents.neg().exp() * farther).where(counted, 0).sum(dim=-1)
        differ = labels.amin() < labels.where(labels < torch.inf, 0).amax()
        return AnchorMean(total.log1p().to(cosines), used.sum(dim=-1) * differ)
