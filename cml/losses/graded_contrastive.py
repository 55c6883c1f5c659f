"""Graded contrastive loss: the contrastive loss with a similarity between 0 and 1 in the place of "same or not"."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from cml.losses.label_distance_loss import check_batch, check_number, warn_without_gradient
from cml.losses.label_scale import ScaledLabelLoss
from cml.losses.loss import About
from cml.losses.row_blocks import RowMean, RowTerms, mean_over_rows, slopes_of_distances, used_labels

_LACKING = "an item of a usable label distance"


def graded_contrastive_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Tensor | None = None,
    label_scale: float = 1.0,
    margin: float = 0.5,
    normalize: bool = True,
) -> Tensor:
    r"""Generalised contrastive loss (GCL) over all pairs (anchor a, item j) of a batch, a block of rows at a time.

    The mean over all pairs of

        psi D^2 / 2 + (1 - psi) [margin - D]_+^2 / 2,   psi = [1 - D_y(a,j) / label_scale]_+

    with D the Euclidean distance of embeddings and psi the graded similarity: 1 at label distance 0, falling in a
    straight line to 0 at ``label_scale``. For label distances that are 1 - overlap, as between layouts, ``label_scale``
    1 makes psi the overlap, the published similarity. Turning or shifting the embeddings leaves the loss as it is
    where they are not normalised.

    Relations: with psi in {0, 1} it is the contrastive loss. ``relaxed_contrastive_loss`` is the same on relative
    distances.

    Args:
        embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
        label_distances: (A, B), >= 0, in the label's unit; row a belongs to item a. The anchor's own column and
            infinite entries are left out.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        label_scale: Label distance from which on the similarity is 0, in the label's unit, above 0.
        margin: Distance beyond which nothing is pushed, at least 0; 0.5 as published, for normalised embeddings.
        normalize: L2-normalise the embeddings first, as published.

    Returns:
        Scalar. If no pair is used, 0 with zero gradient and a warning.

    Raises:
        UserError: an argument has another shape, type or range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> label_distances = torch.tensor([[0.0, 0.5, 2.0]])
        >>> graded_contrastive_loss(points, label_distances, margin=4.0, normalize=False).item()
        1.5

    Reference:
        Leyva-Vallina, Strisciuglio, Petkov: Data-efficient Large Scale Place Recognition with Graded Similarity
        Supervision, CVPR 2023. psi as a function of a label distance is cml's.
    """
    check_number("margin", margin, least=0)
    check_number("label_scale", label_scale, least=0, open_=True)
    mean = _graded_contrastive(embeddings, label_distances, mask, label_scale, margin, normalize)
    warn_without_gradient(mean.counts, _LACKING)
    return mean.loss


class GradedContrastiveLoss(ScaledLabelLoss):
    """``graded_contrastive_loss`` with settings, the unit of label distances found from the training set.

    Args:
        label_scale: The label distance that counts as 1, or "auto": the median of positive ones over a sample of
            training pairs.
        reach: Label distance from which on the similarity is 0, in units of ``label_scale``, above 0.
        margin: Distance beyond which nothing is pushed, at least 0.
        normalize: L2-normalise the embeddings.

    With "auto" and ``reach`` 1 half of all pairs have similarity 0, as most of the published task's have.

    Raises:
        UserError: a setting is out of range; or, at the first batch, "auto" was not fitted.

    Example:
        >>> import torch
        >>> loss = GradedContrastiveLoss(label_scale=0.5)
        >>> loss(torch.randn(8, 4), torch.rand(8, 8)).shape
        torch.Size([])
    """

    about: ClassVar[About] = About(
        cost="O(A B)",
        source="Leyva-Vallina et al., CVPR 2023",
        when="Labels overlap to a degree, 0 to 1, and most pairs not at all.",
    )

    def __init__(
        self,
        label_scale: float | Literal["auto"] = "auto",
        reach: float = 1.0,
        margin: float = 0.5,
        normalize: bool = True,
    ) -> None:
        super().__init__(label_scale)
        self.reach = check_number("reach", reach, least=0, open_=True)
        self.margin = check_number("margin", margin, least=0)
        self.normalize = normalize

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), label_distances (A, B), result a scalar."""
        scale = self.reach * self.scale()
        mean = _graded_contrastive(embeddings, label_distances, None, scale, self.margin, self.normalize)
        self.count_left_out(mean.counts)
        warn_without_gradient(mean.counts, _LACKING)
        return mean.loss

    def extra_repr(self) -> str:
        """The settings, as they are written."""
        return f"label_scale={self.label_scale!r}, reach={self.reach}, margin={self.margin}, normalize={self.normalize}"


def _graded_contrastive(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None,
    label_scale: float,
    margin: float,
    normalize: bool,
) -> RowMean:
    check_batch(embeddings, label_distances, mask)

    def row_terms(squared: Tensor, rows: slice) -> RowTerms:
        labels, used = used_labels(label_distances, mask, rows, squared.dtype)
        similarity = (1 - labels.div_(label_scale)).clamp_min_(0)  # psi
        distances = squared.sqrt_()
        short = (margin - distances).clamp_min_(0)
        pull, push = similarity * distances, (1 - similarity).mul_(short)
        values = (pull * distances + push * short).where(used, 0).sum(dim=1) / 2
        slopes = (pull - push).where(used, 0)
        return RowTerms(values, used.sum(dim=1), slopes_of_distances(slopes, distances))

    return mean_over_rows(embeddings, len(label_distances), row_terms, normalize=normalize)
