"""The graded contrastive loss: the contrastive loss with a similarity between 0 and 1 in place of "same or not".

Copy this file for a loss of your own over label distances. It has the function that checks its arguments, the formula
over pairs in plain torch, of which autograd makes the gradient, and the module that holds the settings. One line in
``cml/losses/__init__.py``, or ``@cml.losses.register("name")`` elsewhere, gives it a name.
"""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, Mask
from cml.losses.label_scale import ScaledLabelLoss
from cml.losses.loss import LossInfo
from cml.losses.pairs import Pairs, as_numbers, mask_label_distances
from cml.losses.row_blocks import Constant, mean_over_pairs, over
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_above_zero, check_flag, check_number


def graded_contrastive_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    label_scale: float,
    margin: float = 0.5,
    normalize: bool = True,
) -> Tensor:
    """The graded contrastive loss as a function; ``GradedContrastiveLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        label_scale: The label distance from which on the similarity is 0, above 0.
        margin: Distance beyond which no pair repels, at least 0.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        A scalar, or (H,) of H heads; 0 with a warning if no anchor has a usable item.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, or a setting is out of
            range.
    """
    mean = graded_contrastive_mean(
        embeddings,
        mask_label_distances(embeddings, label_distances, mask),
        reach=check_above_zero("label_scale", label_scale),
        margin=check_number("margin", margin, least=0),
        normalize=normalize,
    )
    return warn_without_terms(mean, GradedContrastiveLoss.missing)


def graded_contrastive_mean(
    embeddings: Tensor, label_distances: Tensor, *, reach: Constant, margin: Constant, normalize: bool
) -> RowMean:
    """The formula of ``graded_contrastive_loss``.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        reach: The label distance from which on the similarity is 0; (H, 1, 1) for one per head.
        margin: Distance beyond which no pair repels; (H, 1, 1) for one per head.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The loss, and the used pairs of each anchor.
    """

    def row_values(pairs: Pairs) -> tuple[Tensor, Tensor]:
        distances, labels, used = pairs  # (R, B) each
        similarity = over(labels, -reach).add_(1).clamp_(min=0)  # psi
        push, pull = (margin - distances).relu().square(), distances.square()
        terms = torch.lerp(push, pull, similarity)  # psi of the pull, 1 - psi of the push
        counted = as_numbers(used, terms)
        return (terms * counted).sum(dim=-1) / 2, counted.sum(dim=1).long()

    return mean_over_pairs(embeddings, label_distances, row_values, normalize=normalize)


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

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``graded_contrastive_mean`` with the module's settings, of embeddings (B, D) and label distances (A, B)."""
        return graded_contrastive_mean(
            embeddings,
            label_distances,
            reach=self.reach * self.constant("label_scale"),
            margin=self.margin,
            normalize=self.normalize,
        )
