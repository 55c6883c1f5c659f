"""The triplet loss: a positive shall be nearer to its anchor than a negative, by a margin."""

from typing import Any, Literal, get_args

from cml.losses.loss import LossInfo
from cml.losses.pml import PmlPairLoss, lp_distance, pml
from cml.settings import check_flag, check_number, check_word

Mining = Literal["all", "semi-hard", "batch-hard"]


class TripletLoss(PmlPairLoss):
    """Require a positive to be nearer to its anchor than a negative, by ``margin``.

    The mean over the mined triplets whose term is above 0 of

        [ D_ap^2 - D_an^2 + margin ]_+        (D instead of D^2 without ``squared``)

    with D the Euclidean distance of embeddings, p an item of the anchor's class and n one of another.

    Inputs: embeddings (B, D), class numbers (B,) int64.

    Relations: ``binary-triplet`` is the mean over all triplets, including those at 0, of squared distances, without a
    tensor of triplets; it takes label distances. ``direction-triplet`` is ``triplet(mining=all)`` plus direction
    regularisation.

    Args:
        margin: At least 0.
        mining: "semi-hard": triplets with D_ap < D_an < D_ap + margin (FaceNet). "batch-hard": each anchor's farthest
            positive with its nearest negative (Hermans et al., who do not square). "all": every triplet.
        squared: Whether to take squared distances, as FaceNet does.
        normalize: Whether to L2-normalise the embeddings first, as FaceNet does.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 1])
        >>> TripletLoss(margin=2.5, mining="batch-hard", squared=False, normalize=False)(points, classes).item()
        1.0

    Reference:
        Schroff, Kalenichenko, Philbin: FaceNet, CVPR 2015. Hermans, Beyer, Leibe: In Defense of the Triplet Loss, 2017.
    """

    info = LossInfo(
        cost="O(triplets), at most O(B^3)",
        source="Schroff et al., CVPR 2015; Hermans et al., 2017",
        when="The usual baseline: semi-hard mining, or batch-hard with a few items per class.",
    )

    def __init__(
        self, margin: float = 0.2, mining: Mining = "semi-hard", squared: bool = True, normalize: bool = True
    ) -> None:
        check_number("margin", margin, least=0)
        check_word("mining", mining, get_args(Mining))
        distance = lp_distance(normalize, power=2 if squared else 1)
        miner: Any = None
        if mining == "semi-hard":
            miner = pml("miners").TripletMarginMiner(margin=margin, type_of_triplets="semihard", distance=distance)
        elif mining == "batch-hard":
            miner = pml("miners").BatchHardMiner(distance=distance)
        super().__init__(pml("losses").TripletMarginLoss(margin=margin, distance=distance), miner)
        self.margin, self.mining, self.squared = margin, mining, check_flag("squared", squared)
