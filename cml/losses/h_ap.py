"""H-AP: the average precision of each anchor's ranking, with gains in place of right and wrong."""

import torch
from torch import Tensor

from cml.losses.graded_rank import MISSING, SumRows, check_graded_rank, graded_rank_mean
from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import LossInfo
from cml.losses.pairs import mask_label_distances
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_flag


def h_ap_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    temperature: float = 0.1,
    neighbors: int = 10,
    normalize: bool = True,
) -> Tensor:
    """H-AP as a function; ``HAPLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        temperature: Above 0, of differences of cosines.
        neighbors: The rank whose label distance has a gain of 1 / e, at least 1.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        A scalar; 0 with a warning if no anchor has two items of different usable label distance.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, or a setting is out of
            range.
    """
    temperature, neighbors = check_graded_rank(temperature, neighbors)
    mean = h_ap_mean(
        embeddings,
        mask_label_distances(embeddings, label_distances, mask),
        temperature=temperature,
        neighbors=neighbors,
        normalize=normalize,
    )
    return warn_without_terms(mean, MISSING)


def h_ap_mean(
    embeddings: Tensor, label_distances: Tensor, *, temperature: float, neighbors: int, normalize: bool
) -> RowMean:
    """The formula of ``h_ap_loss``.

    Args:
        embeddings: (B, D).
        label_distances: (A, B).
        temperature: Divides differences of cosines.
        neighbors: The rank whose label distance has a gain of 1 / e.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The loss, and 1 for each anchor that counts.
    """

    def _compare_items(scores: Tensor, gains: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """Index k is the item, j the other."""
        mine, other = gains[:, :, None], gains[:, None, :]
        above = scores[:, None, :] - scores[:, :, None]  # (R, k, j)
        pairs = used[:, None, :] & used[:, :, None]
        # by label distances: gains of almost equal ones may round to one number
        higher, less = (above > 0) & pairs, (labels[:, None, :] > labels[:, :, None]) & pairs
        total = gains + torch.minimum(mine, other).where(higher, 0).sum(dim=2)  # h, (R, k)
        soft = (above / temperature).sigmoid_().where(less, 0)
        rank = 1 + soft.sum(dim=2) + (higher & ~less).sum(dim=2)
        whole = gains.sum(dim=1, keepdim=True).clamp(min=torch.finfo(gains.dtype).tiny)
        values = 1 - (total / rank).sum(dim=1) / whole[:, 0]
        # the part of each pair in the slope: more s_j means a later rank of k
        soft.mul_(1 - soft).mul_((total / rank.square() / whole / temperature)[:, :, None])
        return values, soft.sum(dim=1) - soft.sum(dim=2)

    def _load_sum_rows() -> SumRows:
        from cml.losses.h_ap_rows import sum_h_ap

        return sum_h_ap

    return graded_rank_mean(
        embeddings,
        label_distances,
        _compare_items,
        _load_sum_rows,
        temperature=temperature,
        neighbors=neighbors,
        normalize=normalize,
    )


class HAPLoss(LabelDistanceLoss):
    r"""1 - hierarchical average precision, smoothed where an item of less gain ranks above one of more.

    The mean over anchors of

        1 - sum_k (h_k / r_k) / sum_k g_k,   h_k = g_k + sum_j min(g_j, g_k) [s_j > s_k],
        r_k = 1 + sum_{g_j < g_k} sigmoid((s_j - s_k) / temperature) + sum_{other j} [s_j > s_k]

    with s the cosine to the anchor and gains g_j = exp(-D_y(a,j) / D_y(a, its 10th nearest)). Anchors whose items all
    have one gain do not count.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: with gains of 0 and 1 it is smooth average precision (Brown et al., ECCV 2020). ``lambda-ndcg`` is the
    same idea for nDCG.

    Args:
        temperature: Above 0, of differences of cosines.
        neighbors: The rank whose label distance has a gain of 1 / e, at least 1.
        normalize: Whether to L2-normalise the embeddings first, as published.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> loss, near, far = HAPLoss(), torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[0.0, 3.0, 1.0]])
        >>> bool(loss(points, near) < loss(points, far))
        True

    Reference:
        Ramzi, Audebert, Thome, Rambour, Bitot: Hierarchical Average Precision Training for Pertinent Image Retrieval,
        ECCV 2022, equations 2 to 4; gains of continuous labels are cml's.
    """

    info = LossInfo(
        cost="O(A B (M + log B)) with M of about 30 nodes, at most O(A B^2)",
        source="Ramzi et al., ECCV 2022",
        when="The whole ranking should be precise, its top most of all.",
    )
    missing = MISSING

    def __init__(self, temperature: float = 0.1, neighbors: int = 10, normalize: bool = True) -> None:
        super().__init__()
        self.temperature, self.neighbors = check_graded_rank(temperature, neighbors)
        self.normalize = check_flag("normalize", normalize)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``h_ap_mean`` with the settings of the module, of embeddings (B, D) and label distances (A, B)."""
        return h_ap_mean(
            embeddings,
            label_distances,
            temperature=self.temperature,
            neighbors=self.neighbors,
            normalize=self.normalize,
        )
