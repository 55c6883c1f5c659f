"""The binary triplet loss: a rule makes positives and negatives of label distances, then triplets as with classes."""

import torch
from torch import Tensor

from cml.losses.anchor_blocks import AnchorMean
from cml.losses.binary_rules import BinaryPairs, RuleLoss, RuleName
from cml.losses.dense_triplet import mean_of_hinges
from cml.losses.loss import LossInfo
from cml.settings import check_flag, check_number


class BinaryTripletLoss(RuleLoss):
    """Triplet hinge over all pairs of a positive p and a negative n of each anchor a.

    The mean over every such (a, p, n) of

        [ D(f_a,f_p) - D(f_a,f_n) + margin ]_+

    with D the squared Euclidean distance of embeddings; triplets whose hinge is 0 count. Anchors without a positive or
    without a negative are left out, with a warning.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``dense-triplet`` for label distances of two values. ``binary`` takes other pair and triplet losses
    behind the same rules.

    The authors' baseline takes an anchor's 30 nearest training images as positives and draws 5 of them and 144 others
    into the batch of one anchor. ``rule="nearest", k=5`` finds exactly these sets again (the 5 are nearer than the
    144), which makes the published 720 triplets.

    Args:
        rule: "nearest" (the k nearest items of the batch are positives), "graph" (so are items that have the anchor
            among their k nearest) or "threshold" (those within a label distance).
        k: For "nearest" and "graph": the number of neighbours, at least 1. ``None``: 5.
        distance: For "threshold": the largest label distance of a positive, in the label's unit, at least 0.
        quantile: For "threshold", in place of a distance: the threshold is this quantile of the label distances of a
            sample of training pairs, in [0, 1). ``fit`` finds it.
        margin: At least 0, of squared distances; 0.2 as published, for normalised embeddings.
        normalize: Whether to L2-normalise the embeddings first, as published.

    Raises:
        UserError: a setting is out of range or belongs to another rule.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> loss = BinaryTripletLoss("threshold", distance=1.0, margin=0.5, normalize=False)
        >>> loss(points, torch.tensor([[0.0, 2.0, 1.0]])).item()  # anchor 0: item 2 is a positive, item 1 a negative
        8.5

    Reference:
        Schroff, Kalenichenko, Philbin: FaceNet, CVPR 2015, over all triplets; margin and rule as in the baseline of
        Kim, Seo, Laptev, Cho, Kwak: Deep Metric Learning Beyond Binary Supervision, CVPR 2019.
    """

    info = LossInfo(
        cost="O(A B log B), no tensor of triplets",
        source="Schroff et al., CVPR 2015; rule: Kim et al., CVPR 2019",
        when="A baseline for continuous labels: items that are near enough are positives, the rest negatives.",
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
        self.normalize = check_flag("normalize", normalize)

    def mean_of_pairs(self, embeddings: Tensor, pairs: BinaryPairs) -> AnchorMean:
        """The formula: dense triplets of an order that puts positives before negatives.

        The sets may be decided anywhere: in the batch, as ``mean`` does, or beforehand over the whole training set.
        """
        order = torch.where(pairs.positives, 0.0, torch.where(pairs.negatives, 1.0, torch.inf))  # (A, B)
        order.fill_diagonal_(0)  # an anchor's own column is left out, whatever the sets say of it
        look = self.may_check_numbers(embeddings)
        return mean_of_hinges(embeddings, order, margin=self.margin, normalize=self.normalize, look=look)
