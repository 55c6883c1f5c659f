"""Soft-target cross-entropy: how an anchor's items share its attention should follow from their label distances."""

from torch import Tensor

from cml.losses.label_distance_loss import Auto, Mask
from cml.losses.label_scale import ScaledLabelLoss
from cml.losses.loss import LossInfo
from cml.losses.pairs import mask_label_distances
from cml.losses.row_blocks import Constant, RowTerms, mean_over_rows, over
from cml.losses.row_cross_entropy import row_cross_entropy
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_above_zero, check_flag


def soft_target_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    label_temperature: float,
    temperature: float = 0.2,
    normalize: bool = True,
) -> Tensor:
    """Soft-target cross-entropy as a function; ``SoftTargetLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        label_temperature: In the label's unit, above 0.
        temperature: Above 0, of squared distances of embeddings.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        A scalar, or (H,) of H heads; 0 with a warning if no anchor has two usable items.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, or a setting is out of
            range.
    """
    mean = soft_target_mean(
        embeddings,
        mask_label_distances(embeddings, label_distances, mask),
        label_temperature=check_above_zero("label_temperature", label_temperature),
        temperature=check_above_zero("temperature", temperature),
        normalize=normalize,
    )
    return warn_without_terms(mean, SoftTargetLoss.missing)


def soft_target_mean(
    embeddings: Tensor, label_distances: Tensor, *, label_temperature: Constant, temperature: Constant, normalize: bool
) -> RowMean:
    """The formula of ``soft_target_loss``.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        label_temperature: In the label's unit; (H, 1, 1) for one per head.
        temperature: Divides squared distances; (H, 1, 1) for one per head.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The loss, and 1 for each anchor that counts.
    """

    def log_weights(labels: Tensor, nearest: Tensor) -> Tensor:
        return over(nearest - labels, label_temperature)

    def _row_terms(squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        return row_cross_entropy(squared, labels, used, log_weights, temperature)

    return mean_over_rows(embeddings, label_distances, _row_terms, normalize=normalize)


class SoftTargetLoss(ScaledLabelLoss):
    r"""Cross-entropy of a softmax of label distances and one of embedding distances.

    The mean over anchors a of

        -sum_j p_j log q_j,   p = softmax_j(-D_y(a,j) / label_temperature),   q = softmax_j(-D(f_a,f_j) / temperature)

    with D the squared Euclidean distance of embeddings and j over the anchor's used items; anchors with fewer than 2 do
    not count. Of normalised embeddings D is 2 - 2 cosine, so that a temperature of t here is one of t / 2 for cosines.
    The loss is invariant to adding a constant to a row of label distances, and, for embeddings that are not normalised,
    to rotating and shifting them. Its least value is the entropy of p, not 0.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``kernel-supcon`` weighs items by exp(-D_y^2) instead. With all of p on one item it is InfoNCE.

    Args:
        label_scale: The label distance that counts as 1, above 0, or "auto": the median of the positive ones over a
            sample of training pairs.
        label_temperature: In units of ``label_scale``, above 0. The published 0.1 is for cosines of labels, whose
            distances are of the order of 1, too.
        temperature: Above 0, of squared distances of embeddings; 0.2 is the published 0.1 of cosines.
        normalize: Whether to L2-normalise the embeddings first, as published.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [2.0]])
        >>> loss = SoftTargetLoss(label_scale=1.0, temperature=3.0, normalize=False)
        >>> f"{loss(points, torch.tensor([[0.0, 1.0, 1.0]])):.4f}"  # both should have half, and have 0.731 and 0.269
        '0.8133'

    Reference:
        Sobal, Ibrahim, Balestriero, Cabannes, Bouchacourt, Astolfi, Cho, LeCun: X-Sample Contrastive Loss, ICLR 2025,
        with negative label distances in place of similarities of labels.
    """

    info = LossInfo(
        cost="O(A B)",
        source="Sobal et al., ICLR 2025",
        when="Near neighbours count most, weighted by how near they are.",
    )
    takes_heads = True

    def __init__(
        self,
        label_scale: Auto = "auto",
        label_temperature: float = 0.1,
        temperature: float = 0.2,
        normalize: bool = True,
    ) -> None:
        super().__init__(label_scale)
        self.label_temperature = check_above_zero("label_temperature", label_temperature)
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = check_flag("normalize", normalize)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``soft_target_mean`` with the settings of the module, of embeddings (B, D) and label distances (A, B)."""
        return soft_target_mean(
            embeddings,
            label_distances,
            label_temperature=self.label_temperature * self.constant("label_scale"),
            temperature=self.temperature,
            normalize=self.normalize,
        )
