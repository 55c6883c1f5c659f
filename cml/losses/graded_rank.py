"""What the losses over graded ranks share: gains of label distances, and the pairs of each anchor's items in parts."""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.row_blocks import RowTerms
from cml.settings import check_above_zero, check_whole

_PAIR_BYTES = 16 << 20  # of one (R, B, B) tensor of a part


class GradedRankLoss(LabelDistanceLoss):
    """Base of the losses that compare all items of an anchor two by two: O(A B^2) time, memory of a few anchors.

    The gain of an item is exp(-D_y / scale), where scale is the label distance of the anchor's item of rank
    ``neighbors``, or of its farthest where there are fewer.
    """

    lacking = "two items of different usable label distance"

    def __init__(self, temperature: float = 0.1, neighbors: int = 10, normalize: bool = True) -> None:
        super().__init__()
        self.temperature = check_above_zero("temperature", temperature)
        self.neighbors = check_whole("neighbors", neighbors)
        self.normalize = normalize

    def compare(self, scores: Tensor, gains: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """Values (R,) and slopes (R, B) in ``scores``, which are cosines up to a constant; gains are 0 where unused."""
        raise NotImplementedError

    def row_terms(self, squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        """The terms of a few anchors at a time, 1 for each that counts."""
        counts = labels.where(used, 0).amax(dim=1) > labels.where(used, torch.inf).amin(dim=1)
        rows = squared / -2, gains_of(labels, used, self.neighbors), labels, used
        at_once = max(1, _PAIR_BYTES // (squared.element_size() * squared.shape[1] ** 2))
        parts = [self.compare(*part) for part in zip(*(torch.split(one, at_once) for one in rows), strict=True)]
        values, slopes = (torch.cat(some) for some in zip(*parts, strict=True))
        return RowTerms(values.where(counts, 0), counts.long(), (slopes / -2).where(counts[:, None], 0))


def gains_of(labels: Tensor, used: Tensor, neighbors: int) -> Tensor:
    """exp(-label distance / that of the anchor's neighbour of this rank), (R, B); 0 where a pair is not used."""
    near = labels.masked_fill(~used, torch.inf).topk(min(neighbors, labels.shape[1]), dim=1, largest=False).values
    scale = near.where(near < torch.inf, 0).amax(dim=1, keepdim=True)  # (R, 1)
    ratio = torch.where(labels > 0, labels / scale, 0)  # infinite where all neighbours are at distance 0
    return ratio.neg().exp().where(used, 0)
