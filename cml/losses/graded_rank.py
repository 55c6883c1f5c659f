"""What the losses over graded ranks share: gains of label distances, and the pairs of each anchor's items in parts.

Not for: nDCG and H-AP as measures of a finished ranking (cml.retrieval).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.pairs import RowMean, check_batch, comparable
from cml.losses.row_blocks import RowTerms, mean_over_rows
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

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with 1 for each anchor that counts."""
        label_distances = check_batch(embeddings, label_distances)

        def row_terms(squared: Tensor, rows: slice) -> RowTerms:
            labels = label_distances[rows].to(squared.dtype)  # (R, B)
            used = comparable(labels, rows.start)
            gains = gains_of(labels, used, self.neighbors)
            counts = labels.where(used, 0).amax(dim=1) > labels.where(used, torch.inf).amin(dim=1)
            values, slopes = in_parts(self.compare, squared / -2, gains, labels, used)
            return RowTerms(values.where(counts, 0), counts.long(), (slopes / -2).where(counts[:, None], 0))

        return mean_over_rows(embeddings, len(label_distances), row_terms, normalize=self.normalize)


def gains_of(labels: Tensor, used: Tensor, neighbors: int) -> Tensor:
    """exp(-label distance / that of the anchor's neighbour of this rank), (R, B); 0 where a pair is not used."""
    near = labels.masked_fill(~used, torch.inf).topk(min(neighbors, labels.shape[1]), dim=1, largest=False).values
    scale = near.where(near < torch.inf, 0).amax(dim=1, keepdim=True)  # (R, 1)
    ratio = torch.where(labels > 0, labels / scale, 0)  # infinite where all neighbours are at distance 0
    return ratio.neg().exp().where(used, 0)


def in_parts(
    compare: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]], *rows: Tensor
) -> tuple[Tensor, Tensor]:
    """``compare`` of rows (R, B), a few at a time: their values (R,) and slopes (R, B)."""
    at_once = max(1, _PAIR_BYTES // (rows[0].element_size() * rows[0].shape[1] ** 2))
    parts = [compare(*part) for part in zip(*(torch.split(one, at_once) for one in rows), strict=True)]
    return torch.cat([values for values, _ in parts]), torch.cat([slopes for _, slopes in parts])
