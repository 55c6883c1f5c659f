"""Multi-similarity: pairs are mined and weighted by how hard they are among those of their anchor."""

from cml.losses.loss import LossInfo
from cml.losses.pml import PmlPairLoss, pml
from cml.settings import check_above_zero, check_number


class MultiSimilarityLoss(PmlPairLoss):
    """Weight hard pairs softly, after mining the pairs that are hard relative to the anchor's others.

    Negatives with S_in > min_p S_ip - epsilon and positives with S_ip < max_n S_in + epsilon are kept. The mean over
    all items i of

        1/alpha log( 1 + sum_p exp(-alpha (S_ip - base)) ) + 1/beta log( 1 + sum_n exp(beta (S_in - base)) )

    with S the cosine of embeddings.

    Inputs: embeddings (B, D), class numbers (B,) int64. The embeddings are L2-normalised.

    Relations: ``direction-multi-similarity`` adds direction regularisation. On continuous labels:
    ``binary(loss=multi-similarity)``.

    Args:
        alpha: Above 0. Sharpness for positives.
        beta: Above 0. Sharpness for negatives.
        base: The cosine that both are measured from, at least -1.
        epsilon: The slack of the mining, a cosine, at least 0. ``None`` keeps all pairs.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> MultiSimilarityLoss()(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])

    Reference:
        Wang, Han, Huang, Dong, Scott: Multi-Similarity Loss with General Pair Weighting, CVPR 2019.
    """

    info = LossInfo(
        cost="O(B^2 log B)",
        source="Wang et al., CVPR 2019",
        when="Pairs weighted by how hard they are, with a few items of each class in a batch.",
    )

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float | None = 0.1) -> None:
        check_above_zero("alpha", alpha)
        check_above_zero("beta", beta)
        check_number("base", base, least=-1)
        slack = None if epsilon is None else check_number("epsilon", epsilon, least=0)
        miner = None if slack is None else pml("miners").MultiSimilarityMiner(slack)
        super().__init__(pml("losses").MultiSimilarityLoss(alpha=alpha, beta=beta, base=base), miner)
        self.alpha, self.beta, self.base, self.epsilon = alpha, beta, base, epsilon
