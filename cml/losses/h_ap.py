"""H-AP: the average precision of each anchor's ranking, with gains in the place of right and wrong."""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import About
from cml.losses.row_blocks import RowTerms
from cml.settings import check_above_zero, check_whole

_PAIR_BYTES = 16 << 20  # of one (R, B, B) tensor of a part


class GradedRankLoss(LabelDistanceLoss):
    """Base of the losses that compare all items of an anchor two by two: O(A B^2) time, memory of a few anchors.

    Gains are exp(-D_y / scale): scale is that of the item of rank ``neighbors``, or the farthest where there are fewer.
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
        known, columns = labels.where(used, torch.inf), labels.shape[1]
        counts = labels.where(used, 0).amax(dim=1) > known.amin(dim=1)
        near = known.topk(min(self.neighbors, columns), dim=1, largest=False).values
        scale = near.where(near < torch.inf, 0).amax(dim=1, keepdim=True)  # (R, 1)
        ratio = torch.where(labels > 0, labels / scale, 0)  # infinite where all neighbours are at distance 0
        rows = squared / -2, ratio.neg().exp().where(used, 0), labels, used
        at_once = max(1, _PAIR_BYTES // (squared.element_size() * columns**2))
        parts = [self.compare(*part) for part in zip(*(torch.split(one, at_once) for one in rows), strict=True)]
        values, slopes = (torch.cat(some) for some in zip(*parts, strict=True))
        return RowTerms(values.where(counts, 0), counts.long(), (slopes / -2).where(counts[:, None], 0))


class HAPLoss(GradedRankLoss):
    r"""1 - hierarchical average precision, smoothed where an item of less gain ranks above one of more.

    The mean over anchors of

        1 - sum_k (h_k / r_k) / sum_k g_k,   h_k = g_k + sum_j min(g_j, g_k) [s_j > s_k],
        r_k = 1 + sum_{g_j < g_k} sigmoid((s_j - s_k) / temperature) + sum_{other j} [s_j > s_k]

    with s the cosine to the anchor and gains g_j = exp(-D_y(a,j) / D_y(a, its 10th nearest)). Anchors whose items all
    have one gain do not count.

    Relations: with gains of 0 and 1 it is smooth average precision (Brown et al., ECCV 2020). ``lambda-ndcg`` is alike.

    Args:
        temperature: Above 0, of differences of cosines.
        neighbors: The rank whose label distance has a gain of 1 / e.
        normalize: L2-normalise the embeddings first, as published.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> loss, near, far = HAPLoss(), torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[0.0, 3.0, 1.0]])
        >>> bool(loss(points, near) < loss(points, far))
        True

    Reference:
        Ramzi, Audebert, Thome, Rambour, Bitot: Hierarchical Average Precision Training for Pertinent Image Retrieval,
        ECCV 2022, equations 2 to 4; gains of continuous labels are cml's.
    """

    about = About("O(A B^2)", "Ramzi et al., ECCV 2022", "The whole ranking should be precise, its top most of all.")

    def compare(self, scores: Tensor, gains: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """Values (R,) and their slopes (R, B) in ``scores``; index k is the item, j the other."""
        mine, other = gains[:, :, None], gains[:, None, :]
        above = scores[:, None, :] - scores[:, :, None]  # (R, k, j)
        pairs = used[:, None, :] & used[:, :, None]
        # by label distances: gains of almost equal ones may round to one number
        higher, less = (above > 0) & pairs, (labels[:, None, :] > labels[:, :, None]) & pairs
        total = gains + torch.minimum(mine, other).where(higher, 0).sum(dim=2)  # h, (R, k)
        soft = (above / self.temperature).sigmoid_().where(less, 0)
        rank = 1 + soft.sum(dim=2) + (higher & ~less).sum(dim=2)
        whole = gains.sum(dim=1, keepdim=True).clamp(min=torch.finfo(gains.dtype).tiny)
        values = 1 - (total / rank).sum(dim=1) / whole[:, 0]
        # the part of each pair in the slope: more s_j means a later rank of k
        soft.mul_(1 - soft).mul_((total / rank.square() / whole / self.temperature)[:, :, None])
        return values, soft.sum(dim=1) - soft.sum(dim=2)


def h_ap_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    temperature: float = 0.1,
    neighbors: int = 10,
    normalize: bool = True,
) -> Tensor:
    """``HAPLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True."""
    return HAPLoss(temperature, neighbors, normalize).value(embeddings, label_distances, mask)
