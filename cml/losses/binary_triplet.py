"""The binary triplet loss: a rule makes positives and negatives of label distances, then triplets as with classes."""

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.dense_triplet import DenseTripletLoss
from cml.losses.label_distance_loss import taught
from cml.losses.loss import About
from cml.losses.pairs import RowMean, check_mask
from cml.losses.positives import BinaryPairs, RuleLoss, RuleName, with_warning
from cml.settings import check_number


def binary_triplet_loss(
    embeddings: Tensor, positives: Tensor, negatives: Tensor, *, margin: float = 0.2, normalize: bool = True
) -> Tensor:
    """``BinaryTripletLoss`` of embeddings (B, D) and the positives and negatives of each anchor, (A, B) bool, disjoint.

    These may come from a batch or from the whole training set. An anchor's own column is left out whatever it says.
    """
    loss = BinaryTripletLoss(margin=margin, normalize=normalize)
    return taught(loss.mean_of_pairs(embeddings, BinaryPairs(positives, negatives)), loss.lacking)


class BinaryTripletLoss(RuleLoss):
    """Triplet hinge over all pairs of a positive p and a negative n of each anchor a.

    The mean over every such (a, p, n) of

        [ D(f_a,f_p) - D(f_a,f_n) + margin ]_+

    with D the squared Euclidean distance of embeddings; triplets whose hinge is 0 count. Anchors without a positive or
    without a negative are left out, with a warning.

    Relations: ``dense-triplet`` for label distances of two values.

    The authors' baseline takes an anchor's 30 nearest training images for positives and draws 5 of them and 144 others
    into the batch of one anchor. ``rule="nearest", k=5`` finds exactly these sets again (the 5 are nearer than the
    144), which makes the published 720 triplets.

    Args:
        rule: "nearest" (the k nearest items of the batch are positives), "graph" (so are items whose k nearest the
            anchor is one of) or "threshold" (those within a label distance).
        k: Of "nearest" and "graph". ``None``: 5.
        distance: Of "threshold", in the label's unit.
        quantile: Of "threshold", instead of a distance: the threshold is this quantile of the label distances of a
            sample of training pairs, in [0, 1), found by ``fit``.
        margin: At least 0, of squared distances; 0.2 as published, for normalised embeddings.
        normalize: L2-normalise the embeddings first, as published.

    Raises:
        UserError: a setting is out of range or belongs to another rule.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> positives, negatives = torch.tensor([[False, False, True]]), torch.tensor([[False, True, False]])
        >>> binary_triplet_loss(points, positives, negatives, margin=0.5, normalize=False).item()
        8.5

    Reference:
        Schroff, Kalenichenko, Philbin: FaceNet, CVPR 2015, over all triplets; margin and rule as in the baseline of
        Kim, Seo, Laptev, Cho, Kwak: Deep Metric Learning Beyond Binary Supervision, CVPR 2019.
    """

    about = About(
        "O(A B log B), no tensor of triplets",
        "Schroff et al., CVPR 2015; rule: Kim et al., CVPR 2019",
        "A baseline for continuous labels: items that are near enough are positives, the rest negatives.",
    )

    def __init__(
        self,
        rule: RuleName = "nearest",
        k: int | None = None,
        distance: float | None = None,
        quantile: float | None = None,
        margin: float = 0.2,
        normalize: bool = True,
    ) -> None:
        super().__init__(rule, k, distance, quantile)
        self.margin = check_number("margin", margin, least=0)
        self.normalize = normalize

    def mean_of_pairs(self, embeddings: Tensor, pairs: BinaryPairs) -> RowMean:
        """The dense triplets of an order that puts positives before negatives."""
        positives, negatives = pairs
        check_mask("positives", positives, positives.shape)
        check_mask("negatives", negatives, positives.shape)
        if bool((positives & negatives).any()):
            raise UserError("An item must not be positive and negative for one anchor; make the two masks disjoint.")
        order = torch.where(positives, 0.0, torch.where(negatives, 1.0, torch.inf))  # (A, B)
        return with_warning(DenseTripletLoss(self.margin, self.normalize).mean(embeddings, order))
