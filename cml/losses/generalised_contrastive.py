"""Generalised contrastive loss: a cross-entropy of every pair, weighted by how good the pair is."""

from typing import Literal

import torch
from torch import Tensor
from torch.linalg import vecdot

from cml.errors import UserError
from cml.losses.label_distance_loss import Auto, LabelDistanceLoss, finite_sample
from cml.losses.loss import LossInfo
from cml.settings import check_above_zero, check_auto, check_flag, check_word


class GeneralisedContrastiveLoss(LabelDistanceLoss):
    r"""InfoNCE of every pair, weighted by the rank or the grade of its item.

    The mean over the pairs (a, j) of an anchor and an item with a weight above 0 of

        -w_aj log q_aj,   q = softmax_j(-D(f_a,f_j) / temperature)

    with D the squared Euclidean distance of embeddings and j over the anchor's used items; anchors with fewer than 2 do
    not count. Of normalised embeddings D is 2 - 2 cosine, so that a temperature of t here is one of t / 2 for cosines.
    With ``weights="linear"``, w is 1 - D_y(a,j) / ``label_reach``, and 0 beyond it: of grades, the share of the largest
    grade. With ``"inverse"``, w is 1 / rank of j among the anchor's items by label distance, where equal ones share the
    best rank, and 0 from ``label_reach`` on. For embeddings that are not normalised, the loss is invariant to rotating
    and shifting them. Its least value is not 0.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: with one item of weight 1 it is InfoNCE. ``soft-target`` is the same with weights that sum to 1 for each
    anchor; here an anchor without good items counts less.

    Args:
        label_reach: The label distance from which on the weight is 0, above 0, or "auto": the largest over a sample of
            training pairs.
        weights: "linear" or "inverse".
        temperature: Above 0, of squared distances of embeddings.
        normalize: Whether to L2-normalise the embeddings first, as published.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [2.0]])
        >>> loss = GeneralisedContrastiveLoss(label_reach=2.0, temperature=3.0, normalize=False)
        >>> f"{loss(points, torch.tensor([[0.0, 1.0, 2.0]])):.4f}"  # half of -log 0.731
        '0.1566'

    Reference:
        Zhu, Jung, Clark: Generalized Contrastive Learning for Multi-Modal Retrieval and Ranking, 2024
        (arXiv:2404.08535), its weighted cross-entropy from queries to documents. Weights as functions of a label
        distance are cml's.
    """

    info = LossInfo(
        cost="O(A B)",
        source="Zhu et al., 2024",
        when="Queries and graded documents, where good documents shall count more than bad ones.",
    )
    constant_names = ("label_reach",)

    def __init__(
        self,
        label_reach: Auto = "auto",
        weights: Literal["linear", "inverse"] = "linear",
        temperature: float = 0.2,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        self.label_reach = check_auto("label_reach", label_reach)
        check_word("weights", weights, ("linear", "inverse"))
        self.weights = weights
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = check_flag("normalize", normalize)

    def find_constants(
        self,
        label_distances: Tensor,  # (P,) of training pairs
    ) -> dict[str, float]:
        """Find the reach, if it is "auto"."""
        if self.label_reach != "auto":
            return {}
        largest = float(finite_sample(label_distances).max())
        if largest == 0:
            raise UserError(
                f"{type(self).__name__} needs label distances above 0 to find its label_reach. "
                "Got a sample of zeros instead; give label_reach as a number."
            )
        return {"label_reach": largest}

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula: the weighted cross-entropy."""
        labels = labels.where(used, torch.inf)
        share = (1 - labels / self.constant("label_reach")).clamp(min=0)  # 0 where infinite
        if self.weights == "inverse":
            ranks = 1 + torch.searchsorted(labels.sort(dim=-1).values, labels)  # equal ones share the best
            share = torch.where(share > 0, 1 / ranks.to(share.dtype), 0)
        share = share.where(used.sum(dim=-1, keepdim=True) >= 2, 0)
        scores = (squared / -self.temperature).masked_fill(~used, torch.finfo(squared.dtype).min)
        return -vecdot(share.to(scores.dtype), scores.log_softmax(dim=-1)), (share > 0).sum(dim=-1)
