"""CoSENT: of any two pairs of a batch, the pair with the smaller label distance should have the higher cosine."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.embeddings import unit
from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import About
from cml.losses.pairs import RowMean, check_batch, comparable
from cml.losses.row_order import ascending_rows, tie_runs
from cml.settings import check_number

MOST = 300.0  # a product of two exponentials of it is still a float64


class CoSENTLoss(LabelDistanceLoss):
    r"""CoSENT over all pairs of pairs of a batch, in O(P log P) time for its P pairs (anchor a, item i).

        log(1 + sum_{p, q: D_y(p) > D_y(q)} exp(scale (cos_p - cos_q)))

    where p and q run over all pairs of the batch, of whatever anchors, as in Sentence-Transformers. A pair of two
    anchors is counted once: of its two entries the one above the diagonal is read. Pairs of equal label distance are
    not compared. Sorted by label distance the double sum is one of products of cumulative sums, in float64. It uses the
    order of the label distances alone: any increasing function of them gives the same loss. Scaling or turning the
    embeddings leaves it as it is.

    Relations: ``dense-triplet`` compares pairs of one anchor only, with a hinge, and takes the mean.

    Args:
        scale: Above 0 and below 300, of cosines; 20 as published.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> loss = CoSENTLoss(scale=1.0)
        >>> f"{loss(points, torch.tensor([[0.0, 1.0, 2.0]])):.4f}"  # the farther has cosine 1, the nearer 0: log(1 + e)
        '1.3133'

    Reference:
        Su: CoSENT, a more effective sentence embedding than Sentence-BERT, 2022, https://kexue.fm/archives/8847;
        ``CoSENTLoss`` of Sentence-Transformers.
    """

    _when = "All pairs should be in one order, so that a similarity means the same for every anchor."
    about = About("O(A B log(A B))", "Su, 2022; Sentence-Transformers", _when)
    normalize = True
    lacking = "two pairs of different label distance to compare (over the whole batch)"

    def __init__(self, scale: float = 20.0) -> None:
        super().__init__()
        self.scale = check_number("scale", scale, least=0, below=MOST, open_=True)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""
        label_distances = check_batch(embeddings, label_distances)
        used = comparable(label_distances)  # (A, B)
        once = used.triu(1)  # an item that is no anchor lies right of every diagonal
        with torch.autocast(embeddings.device.type, enabled=False):
            points = unit(embeddings)
            cosines = points[: len(label_distances)] @ points.T  # (A, B)
        labels, columns = ascending_rows(label_distances[once].to(cosines.dtype)[None])  # (1, P)
        exponents = cosines[once][None].gather(1, columns)
        # float64, on the processor where the device has none
        exponents = self.scale * exponents.to("cpu" if cosines.device.type == "mps" else cosines.device, torch.float64)
        farther = functional.pad(exponents.exp().flip(1).cumsum(1), (1, 0)).flip(1)  # (1, P + 1), of all but so many
        runs = tie_runs(labels)
        farther = farther[:, 1:] if runs is None else farther.gather(1, (runs[1] + 1).to(farther.device))
        total = (exponents.neg().exp() * farther).sum()
        return RowMean(total.log1p().to(cosines), used.sum(dim=1) * (total > 0).to(used.device))


def cosent_loss(embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, scale: float = 20.0) -> Tensor:
    """``CoSENTLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True."""
    return CoSENTLoss(scale).value(embeddings, label_distances, mask)
