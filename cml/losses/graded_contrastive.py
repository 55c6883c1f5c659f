"""The graded contrastive loss: the contrastive loss with a similarity between 0 and 1 in place of "same or not".

Copy this file for a loss of your own over label distances: one class, with its settings, and its formula over a row of
pairs in plain torch, of which autograd makes the gradient. One line in ``cml/losses/__init__.py``, or
``@cml.losses.register("name")`` elsewhere, gives it a name.
"""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, ScaledLabelLoss
from cml.losses.loss import LossInfo
from cml.losses.squared_distances import plain_distances
from cml.settings import check_above_zero, check_flag, check_number


class GradedContrastiveLoss(ScaledLabelLoss):
    r"""Generalised contrastive loss (GCL) over all pairs (anchor a, item j) of a batch.

    The mean over all pairs of

        psi D^2 / 2 + (1 - psi) [margin - D]_+^2 / 2,   psi = [1 - D_y(a,j) / (reach label_scale)]_+

    with D the Euclidean distance of embeddings and psi the graded similarity: 1 at label distance 0, falling in a
    straight line to 0 at ``reach`` times ``label_scale``. For label distances that are 1 - overlap, as between layouts,
    ``label_scale`` 1 makes psi the overlap, the published similarity; with "auto" half of all pairs have similarity 0,
    as most of the published task's have. For embeddings that are not normalised, the loss is invariant to rotating and
    shifting them.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: with psi in {0, 1} it is the contrastive loss. ``relaxed-contrastive`` is the same on relative distances.

    Args:
        label_scale: The label distance that counts as 1, above 0, or "auto": the median of the positive ones over a
            sample of training pairs.
        reach: Label distance from which on the similarity is 0, in units of ``label_scale``, above 0.
        margin: Distance beyond which no pair repels, at least 0; 0.5 as published, for normalised embeddings.
        normalize: Whether to L2-normalise the embeddings first, as published.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> loss = GradedContrastiveLoss(label_scale=1.0, margin=4.0, normalize=False)
        >>> loss(points, torch.tensor([[0.0, 0.5, 2.0]])).item()
        1.5

    Reference:
        Leyva-Vallina, Strisciuglio, Petkov: Data-efficient Large Scale Place Recognition with Graded Similarity
        Supervision, CVPR 2023. psi as a function of a label distance is cml's.
    """

    info = LossInfo(
        cost="O(A B)",
        source="Leyva-Vallina et al., CVPR 2023",
        when="Labels overlap by a degree from 0 to 1, and most pairs do not overlap.",
    )
    missing = "an item of a usable label distance"
    takes_heads = True

    def __init__(
        self, label_scale: Auto = "auto", reach: float = 1.0, margin: float = 0.5, normalize: bool = True
    ) -> None:
        super().__init__(label_scale)
        self.reach = check_above_zero("reach", reach)
        self.margin = check_number("margin", margin, least=0)
        self.normalize = check_flag("normalize", normalize)

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula."""
        distances = plain_distances(squared)  # D
        similarity = (1 - labels / (self.reach * self.constant("label_scale"))).clamp(min=0)  # psi
        push, pull = (self.margin - distances).relu().square(), distances.square()
        terms = torch.lerp(push, pull, similarity) / 2  # psi of the pull, 1 - psi of the push
        return terms.where(used, 0).sum(dim=-1), used.sum(dim=-1)
