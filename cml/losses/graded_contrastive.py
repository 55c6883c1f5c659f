"""The contrastive loss with a graded similarity between 0 and 1 in the place of "same or not".

It is the one to copy for a loss of your own over label distances: a formula over pairs in plain torch, of which
autograd makes the gradient. ``@cml.losses.register("name")`` gives it a name.
"""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, Mask, ScaledLabelLoss
from cml.losses.loss import About
from cml.losses.pairs import Pairs, RowMean, ones
from cml.losses.row_blocks import mean_over_pairs
from cml.settings import check_above_zero, check_number


class GradedContrastiveLoss(ScaledLabelLoss):
    r"""Generalised contrastive loss (GCL) over all pairs (anchor a, item j) of a batch.

    The mean over all pairs of

        psi D^2 / 2 + (1 - psi) [margin - D]_+^2 / 2,   psi = [1 - D_y(a,j) / (reach label_scale)]_+

    with D the Euclidean distance of embeddings and psi the graded similarity: 1 at label distance 0, falling in a
    straight line to 0 at ``reach`` times ``label_scale``. For label distances that are 1 - overlap, as between layouts,
    ``label_scale`` 1 makes psi the overlap, the published similarity; with "auto" half of all pairs have similarity 0,
    as most of the published task's have. Turning or shifting the embeddings leaves the loss as it is where they are not
    normalised.

    Relations: with psi in {0, 1} it is the contrastive loss. ``relaxed-contrastive`` is the same on relative distances.

    Args:
        label_scale: The label distance that counts as 1, or "auto": the median of positive ones of training pairs.
        reach: Label distance from which on the similarity is 0, in units of ``label_scale``, above 0.
        margin: Distance beyond which nothing is pushed, at least 0; 0.5 as published, for normalised embeddings.
        normalize: L2-normalise the embeddings first, as published.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> loss = GradedContrastiveLoss(label_scale=1.0, margin=4.0, normalize=False)
        >>> loss(points, torch.tensor([[0.0, 0.5, 2.0]])).item()
        1.5

    Reference:
        Leyva-Vallina, Strisciuglio, Petkov: Data-efficient Large Scale Place Recognition with Graded Similarity
        Supervision, CVPR 2023. psi as a function of a label distance is cml's.
    """

    _when = "Labels overlap by a degree from 0 to 1, and most pairs do not overlap."
    about = About("O(A B)", "Leyva-Vallina et al., CVPR 2023", _when)
    lacking = "an item of a usable label distance"

    def __init__(
        self, label_scale: Auto = "auto", reach: float = 1.0, margin: float = 0.5, normalize: bool = True
    ) -> None:
        super().__init__(label_scale)
        self.reach = check_above_zero("reach", reach)
        self.margin = check_number("margin", margin, least=0)
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""
        reach = self.reach * self.scale()

        def row_values(pairs: Pairs) -> tuple[Tensor, Tensor]:
            distances, labels, used = pairs  # (R, B) each
            similarity = labels.div_(-reach).add_(1).clamp_(min=0)  # psi
            push, pull = (self.margin - distances).relu().square(), distances.square()
            terms = torch.lerp(push, pull, similarity)  # psi of the pull, 1 - psi of the push
            counted = ones(used, terms)
            return (terms * counted).sum(dim=1) / 2, counted.sum(dim=1).long()

        return mean_over_pairs(embeddings, label_distances, row_values, normalize=self.normalize)


def graded_contrastive_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    label_scale: float,
    margin: float = 0.5,
    normalize: bool = True,
) -> Tensor:
    """``GradedContrastiveLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True.

    The similarity is 0 from the label distance ``label_scale`` on.
    """
    loss = GradedContrastiveLoss(label_scale, margin=margin, normalize=normalize)
    return loss.value(embeddings, label_distances, mask)
