"""LambdaRank on nDCG: pairs of an anchor's items, weighted by what swapping them would change."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.closed_form import to_overwrite
from cml.losses.graded_rank import MISSING, SumRows, check_graded_rank, graded_rank_mean
from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import LossInfo
from cml.losses.pairs import mask_label_distances
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_flag


def lambda_ndcg_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    temperature: float = 0.1,
    neighbors: int = 10,
    normalize: bool = True,
) -> Tensor:
    """LambdaRank on nDCG as a function; ``LambdaNDCGLoss`` has the formula.

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
    mean = lambda_ndcg_mean(
        embeddings,
        mask_label_distances(embeddings, label_distances, mask),
        temperature=temperature,
        neighbors=neighbors,
        normalize=normalize,
    )
    return warn_without_terms(mean, MISSING)


def lambda_ndcg_mean(
    embeddings: Tensor, label_distances: Tensor, *, temperature: float, neighbors: int, normalize: bool
) -> RowMean:
    """The formula of ``lambda_ndcg_loss``.

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
        """Index i is the item of more gain, j of less."""
        places = torch.arange(2, scores.shape[1] + 2, device=scores.device, dtype=scores.dtype).log2_()  # log2(1 + r)
        order = scores.masked_fill(~used, -torch.inf).argsort(dim=1, descending=True, stable=True)
        discounts = torch.empty_like(scores).scatter_(1, order, places.reciprocal().expand_as(scores))
        ideal = (gains.sort(dim=1, descending=True).values / places).sum(dim=1)  # (R,)
        more = (gains[:, :, None] - gains[:, None, :]).where(used[:, None, :] & used[:, :, None], 0).clamp_(min=0)
        weights = more.mul_((discounts[:, :, None] - discounts[:, None, :]).abs_())
        weights /= ideal.clamp(min=torch.finfo(gains.dtype).tiny)[:, None, None]
        wrong = (scores[:, None, :] - scores[:, :, None]) / temperature  # (s_j - s_i) / temperature
        values = (weights * functional.softplus(wrong)).sum(dim=(1, 2))
        pull = to_overwrite(weights, scores).mul_(to_overwrite(wrong, scores).sigmoid_()).div_(temperature)
        return values, pull.sum(dim=1) - pull.sum(dim=2)

    def _load_sum_rows() -> SumRows:
        from cml.losses.lambda_ndcg_rows import sum_lambda_ndcg

        return sum_lambda_ndcg

    return graded_rank_mean(
        embeddings,
        label_distances,
        _compare_items,
        _load_sum_rows,
        temperature=temperature,
        neighbors=neighbors,
        normalize=normalize,
    )


class LambdaNDCGLoss(LabelDistanceLoss):
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
        cost="O(A B^2)",
        source="Burges, 2010; Wang et al., CIKM 2018",
        when="nDCG is the goal: the top of the ranking counts, with graded gains.",
    )
    missing = MISSING

    def __init__(self, temperature: float = 0.1, neighbors: int = 10, normalize: bool = True) -> None:
        super().__init__()
        self.temperature, self.neighbors = check_graded_rank(temperature, neighbors)
        self.normalize = check_flag("normalize", normalize)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``lambda_ndcg_mean`` with the settings of the module, of embeddings (B, D) and label distances (A, B)."""
        return lambda_ndcg_mean(
            embeddings,
            label_distances,
            temperature=self.temperature,
            neighbors=self.neighbors,
            normalize=self.normalize,
        )
