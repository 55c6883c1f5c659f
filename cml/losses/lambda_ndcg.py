"""LambdaRank on nDCG: pairs of an anchor's items, weighted by what swapping them would change."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.graded_rank import GradedRankLoss, SumRows
from cml.losses.loss import LossInfo


class LambdaNDCGLoss(GradedRankLoss):
    r"""A logistic loss of every pair of items of an anchor, weighted by the nDCG that lies between their ranks.

    The mean over anchors of

        sum_{g_i > g_j} (g_i - g_j) |1 / log2(1 + r_i) - 1 / log2(1 + r_j)| / IDCG softplus(-(s_i - s_j) / temperature)

    with s the cosine to the anchor, r the ranks that it gives now, which have no gradient, and gains
    g_j = exp(-D_y(a,j) / D_y(a, its 10th nearest)). Anchors whose items all have one gain do not count.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``dense-triplet`` weighs all pairs alike. ``h-ap`` is the same idea for average precision.

    Args:
        temperature: Above 0, of differences of cosines.
        neighbors: The rank whose label distance has a gain of 1 / e, at least 1.
        normalize: Whether to L2-normalise the embeddings first.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> loss, near, far = LambdaNDCGLoss(), torch.tensor([[0.0, 1.0, 3.0]]), torch.tensor([[0.0, 3.0, 1.0]])
        >>> bool(loss(points, near) < loss(points, far))
        True

    Reference:
        Burges: From RankNet to LambdaRank to LambdaMART, 2010; Wang, Li, Golbandi, Bendersky, Najork: The LambdaLoss
        Framework, CIKM 2018. Gains of label distances are cml's.
    """

    info = LossInfo(
        cost="O(A B log B)",
        source="Burges, 2010; Wang et al., CIKM 2018",
        when="nDCG is the goal: the top of the ranking counts, with graded gains.",
    )

    def __init__(self, temperature: float = 0.1, neighbors: int = 10, normalize: bool = True) -> None:
        super().__init__(temperature, neighbors, normalize)

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula, of every pair of items."""
        gains, counts = self.gains(labels, used)
        scores = squared / -2  # cosines up to a constant
        places = torch.arange(2, scores.shape[1] + 2, device=scores.device, dtype=scores.dtype).log2_()  # log2(1 + r)
        order = scores.detach().masked_fill(~used, -torch.inf).argsort(dim=1, descending=True, stable=True)
        discounts = torch.empty_like(scores).scatter_(1, order, places.reciprocal().expand_as(scores))
        ideal = (gains.sort(dim=1, descending=True).values / places).sum(dim=1)  # IDCG, (R,)
        more = (gains[:, :, None] - gains[:, None, :]).where(used[:, None, :] & used[:, :, None], 0).clamp(min=0)
        weights = more * (discounts[:, :, None] - discounts[:, None, :]).abs()  # of i with more gain than j, (R, i, j)
        weights = weights / ideal.clamp(min=torch.finfo(gains.dtype).tiny)[:, None, None]
        wrong = (scores[:, None, :] - scores[:, :, None]) / self.temperature  # (s_j - s_i) / temperature
        return (weights * functional.softplus(wrong)).sum(dim=(1, 2)).where(counts, 0), counts

    def load_loop(self) -> SumRows:
        """Import the compiled loop over rows: numba takes a second to import."""
        from cml.losses.lambda_ndcg_rows import sum_lambda_ndcg

        return sum_lambda_ndcg
