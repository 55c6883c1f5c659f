"""H-AP: the average precision of each anchor's ranking, with gains in place of right and wrong."""

import torch
from torch import Tensor

from cml.losses.graded_rank import GradedRankLoss, SumRows
from cml.losses.loss import LossInfo


class HAPLoss(GradedRankLoss):
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
    takes_heads = True

    def __init__(self, temperature: float = 0.1, neighbors: int = 10, normalize: bool = True) -> None:
        super().__init__(temperature, neighbors, normalize)

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula, of every pair of items."""
        gains, counts = self.gains(labels, used)
        scores = squared / -2  # cosines up to a constant
        mine, other = gains[:, :, None], gains[:, None, :]  # of k and of j
        above = scores[..., None, :] - scores[..., :, None]  # s_j - s_k, (..., R, k, j)
        both = used[:, None, :] & used[:, :, None]
        # by label distances: gains of almost equal ones may round to one number
        higher, less = (above > 0) & both, (labels[:, None, :] > labels[:, :, None]) & both
        total = gains + torch.minimum(mine, other).where(higher, 0).sum(dim=-1)  # h
        temperature = self.temperature[..., None] if isinstance(self.temperature, Tensor) else self.temperature
        rank = 1 + (above / temperature).sigmoid().where(less, 0).sum(dim=-1) + (higher & ~less).sum(dim=-1)  # r
        whole = gains.sum(dim=-1).clamp(min=torch.finfo(gains.dtype).tiny)
        return (1 - (total / rank).sum(dim=-1) / whole).where(counts, 0), counts

    def load_loop(self) -> SumRows:
        """Import the compiled loop over rows: numba takes a second to import."""
        from cml.losses.h_ap_rows import sum_h_ap

        return sum_h_ap
