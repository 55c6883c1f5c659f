"""The contrastive loss: positive pairs are pulled together, and negative pairs pushed to a distance."""

from typing import Any

from cml.losses.loss import LossInfo
from cml.losses.pml import PmlPairLoss, lp_distance, pml
from cml.settings import check_above_zero, check_flag


class ContrastiveLoss(PmlPairLoss):
    """Pull positive pairs together and push negative pairs ``margin`` apart.

    The sum of two means, each over the pairs whose term is above 0:

        mean over positive pairs of D^2  +  mean over negative pairs of [ margin - D ]_+^2

    with D the Euclidean distance of two embeddings. ``squared=False`` leaves both squares out, which is the
    ``ContrastiveLoss`` of pytorch-metric-learning with its defaults. With the squares, it is that loss with a reducer
    that squares. The paper takes half the sum over all pairs, not normalised.

    Inputs: embeddings (B, D), class numbers (B,) int64.

    Relations: ``graded-contrastive`` replaces "same class or not" by a similarity between 0 and 1. ``triplet`` compares
    a positive with a negative, so it needs no absolute distance. On continuous labels: ``binary(loss=contrastive)``.

    Args:
        margin: Above 0. Negative pairs that are farther apart than this are left alone.
        squared: Whether to square the terms.
        normalize: Whether to L2-normalise the embeddings first.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 1])
        >>> ContrastiveLoss(margin=3.0, normalize=False)(points, classes).item()  # positives 1, one negative (3 - 2)^2
        2.0

    Reference:
        Hadsell, Chopra, LeCun: Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006.
    """

    info = LossInfo(
        cost="O(B^2)",
        source="Hadsell et al., CVPR 2006",
        when="The oldest pair loss: a baseline, or where distances should have a fixed scale.",
    )

    def __init__(self, margin: float = 1.0, squared: bool = True, normalize: bool = True) -> None:
        class AvgNonZeroSquareReducer(pml("reducers").AvgNonZeroReducer):  # type: ignore[misc]
            def element_reduction_helper(self, losses: Any, embeddings: Any) -> Any:  # noqa: ANN401
                return super().element_reduction_helper(losses.square(), embeddings)

        check_above_zero("margin", margin)
        distance = lp_distance(normalize)
        reducer = AvgNonZeroSquareReducer() if squared else None
        super().__init__(pml("losses").ContrastiveLoss(neg_margin=margin, distance=distance, reducer=reducer))
        self.margin, self.squared = margin, check_flag("squared", squared)
