"""The losses of pytorch-metric-learning that have a name in cml, one class each.

Each computes exactly what the library computes, but for the term ``tau`` of SoftTriple. Its docstring says what that is
and where it differs from the paper; its ``__init__`` maps cml's settings to the library's. ``pml.py`` calls the
library.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.loss import LossInfo
from cml.losses.pairs import is_transformed, unit_rows
from cml.losses.pml import PmlPairLoss, PmlProxyLoss, lp_distance, pml
from cml.settings import check_above_zero, check_flag, check_number, check_whole, check_word

Mining = Literal["all", "semi-hard", "batch-hard"]
_BYTES_PER_COMPARISON = 25  # of the library's lifted structure loss: numbers and masks
_MOST_BYTES = 8e9


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


class NPairLoss(PmlPairLoss):
    """A softmax over the positives of all classes, in which each anchor should pick its own.

    With one pair (a_i, p_i) of each class in the batch that has two items or more, the mean over pairs of

        log( 1 + sum_{j != i} exp( f_{a_i} . f_{p_j} - f_{a_i} . f_{p_i} ) )

    The library takes the first pair of each class, so a batch should hold two items of many classes
    (``per-class(per_class=2)``). Nothing bounds the length of the embeddings: the paper adds their squared length, cml
    ``regularization`` times their mean length.

    Inputs: embeddings (B, D), class numbers (B,) int64.

    Relations: ``proxy-nca`` is a softmax over one learnt proxy per class in place of the positives of the batch.

    Args:
        regularization: At least 0. Weight of the embeddings' mean length.
        normalize: Whether to L2-normalise the embeddings first; the paper does not.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0, 1, 1])
        >>> round(NPairLoss()(points, classes).item(), 4)  # log(1 + 1/e)
        0.3133

    Reference:
        Sohn: Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NeurIPS 2016.
    """

    info = LossInfo(
        cost="O(C^2)",
        source="Sohn, NeurIPS 2016",
        when="Many classes with few items each, in batches of two items per class.",
    )
    needs_classes = True

    def __init__(self, regularization: float = 0.0, normalize: bool = False) -> None:
        check_number("regularization", regularization, least=0)
        distance = pml("distances").DotProductSimilarity(normalize_embeddings=check_flag("normalize", normalize))
        if regularization:
            inner = pml("losses").NPairsLoss(
                distance=distance,
                embedding_regularizer=pml("regularizers").LpRegularizer(),
                embedding_reg_weight=regularization,
            )
        else:
            inner = pml("losses").NPairsLoss(distance=distance)
        super().__init__(inner)
        self.regularization = regularization

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The library's value of a batch (B, D), (B,); refused inside a transform of ``torch.func``."""
        if is_transformed(embeddings):
            raise UserError(
                "The loss 'n-pair' does not run inside a transform of torch.func, as pytorch-metric-learning picks its "
                "pairs by NumPy. Use torch.autograd, with create_graph=True for second derivatives."
            )
        return super().value(embeddings, classes)


class LiftedStructureLoss(PmlPairLoss):
    """Compare each positive pair with all negatives of both its items.

    The mean over positive pairs (i, j) of

        1/2 [ D_ij + log( sum_{n of i} exp(margin - D_in) + sum_{n of j} exp(margin - D_jn) ) ]_+^2

    with D the Euclidean distance of embeddings. The library holds a table of positive pairs by negative pairs; a table
    of more than 8 GB is refused.

    Inputs: embeddings (B, D), class numbers (B,) int64.

    Relations: ``triplet`` compares a positive with one negative at a time. ``multi-similarity`` has soft weights too,
    at O(B^2) memory.

    Args:
        margin: Above 0.
        normalize: Whether to L2-normalise the embeddings first; the paper does not.

    Raises:
        UserError: a setting is out of range; in ``forward``, the table of pairs does not fit.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 1])
        >>> LiftedStructureLoss(margin=1.0, normalize=False)(points, classes).shape
        torch.Size([])

    Reference:
        Oh Song, Xiang, Jegelka, Savarese: Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
    """

    info = LossInfo(
        cost="O(positive pairs x negative pairs)",
        source="Oh Song et al., CVPR 2016",
        when="Batches with several items each of a few classes.",
    )

    def __init__(self, margin: float = 1.0, normalize: bool = True) -> None:
        class Bounded(pml("losses").LiftedStructureLoss):  # type: ignore[misc]
            def _compute_loss(self, pos_pairs: Any, neg_pairs: Any, indices_tuple: Any) -> Any:  # noqa: ANN401
                needed = _BYTES_PER_COMPARISON * len(pos_pairs) * len(neg_pairs)
                if needed > _MOST_BYTES:
                    raise UserError(
                        f"lifted-structure compares {len(pos_pairs):,} positive with {len(neg_pairs):,} negative pairs "
                        f"of this batch, which takes about {needed / 1e9:.0f} GB; take a smaller batch or "
                        "multi-similarity."
                    )
                return super()._compute_loss(pos_pairs, neg_pairs, indices_tuple)

        check_above_zero("margin", margin)
        super().__init__(Bounded(neg_margin=margin, distance=lp_distance(normalize)))
        self.margin = margin


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


class ProxyNCALoss(PmlProxyLoss):
    """A softmax over squared distances to one learnt proxy per class.

    The mean over items of

        -log( exp(-s |f - p_y|^2) / sum over all classes k of exp(-s |f - p_k|^2) )

    with f and p the L2-normalised embeddings and proxies and y the item's class. The paper leaves the item's own class
    out of the sum, which lets the loss fall below 0; the library keeps it.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the proxies.

    Relations: with s = 1 / T it is ``proxy-nca-pp``. ``direction-proxy-nca`` adds direction regularisation.

    Args:
        scale: s, above 0.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> loss = ProxyNCALoss()
        >>> loss.prepare(torch.tensor([0, 1, 2, 0]), dimension=4)
        >>> loss(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])

    Reference:
        Movshovitz-Attias, Toshev, Leung, Ioffe, Singh: No Fuss Distance Metric Learning using Proxies, ICCV 2017.
    """

    info = LossInfo(
        cost="O(B C)",
        source="Movshovitz-Attias et al., ICCV 2017",
        when="The first proxy loss; a baseline for the later ones.",
    )

    def __init__(self, scale: float = 1.0) -> None:
        distance = lp_distance(normalize=True, power=2, exact=False)
        super().__init__("ProxyNCALoss", softmax_scale=check_above_zero("scale", scale), distance=distance)
        self.scale = float(scale)


class ProxyAnchorLoss(PmlProxyLoss):
    """Take each learnt proxy as an anchor, which pulls the items of its class and pushes all others.

    With P all C proxies, P+ those whose class is in the batch, X_p+ and X_p- the batch's items of the proxy's class
    and of others:

        1/|P+| sum_{p in P+} log( 1 + sum_{x in X_p+} exp(-alpha (S - delta)) )
      + 1/|P|  sum_{p in P}  log( 1 + sum_{x in X_p-} exp( alpha (S + delta)) )

    where S is the cosine of item and proxy. Hard items weigh most.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the proxies.

    Relations: ``proxy-nca`` has the items as anchors.

    Args:
        alpha: Above 0. Sharpness of the weights.
        delta: At least 0. The margin, a cosine.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> loss = ProxyAnchorLoss()
        >>> loss.prepare(torch.tensor([0, 1, 2, 0]), dimension=4)
        >>> loss(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])

    Reference:
        Kim, Kim, Cho, Kwak: Proxy Anchor Loss for Deep Metric Learning, CVPR 2020.
    """

    info = LossInfo(
        cost="O(B C)",
        source="Kim et al., CVPR 2020",
        when="Classes with several items each: converges fast, and random batches will do.",
    )

    def __init__(self, alpha: float = 32.0, delta: float = 0.1) -> None:
        alpha, delta = check_above_zero("alpha", alpha), check_number("delta", delta, least=0)
        super().__init__("ProxyAnchorLoss", alpha=alpha, margin=delta)
        self.alpha, self.delta = alpha, delta


class SoftTripleLoss(PmlProxyLoss):
    """A softmax over classes of several learnt centres each, for classes that fall into kinds.

    With S_k = sum over the centres m of class k of softmax_m(S_km / gamma) S_km, the mean over items of

        -log( exp(scale (S_y - margin)) / ( exp(scale (S_y - margin)) + sum_{k != y} exp(scale S_k) ) )

    where S_km is the cosine of the item and a centre, and y the item's class. With ``tau``, a term is added that merges
    centres of a class: tau / (C M (M - 1)) times the sum, over the pairs of centres of each class, of their distance.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the centres.

    Relations: ``proxy-gml`` has several proxies per class too, and looks only at those that are near an item.

    Args:
        centers: M, centres per class, at least 1.
        scale: Above 0.
        gamma: Above 0. How soft the choice among a class's centres is.
        margin: At least 0, a cosine.
        tau: At least 0. Weight of the term that merges centres; 0.2 in the authors' code.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> loss = SoftTripleLoss(centers=2)
        >>> loss.prepare(torch.tensor([0, 1, 2, 0]), dimension=4)
        >>> loss(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])

    Reference:
        Qian, Shang, Sun, Hu, Li, Jin: SoftTriple Loss, ICCV 2019.
    """

    info = LossInfo(
        cost="O(B C M), M centres per class",
        source="Qian et al., ICCV 2019",
        when="Classes that fall into several kinds, such as views of a product.",
    )

    def __init__(
        self, centers: int = 10, scale: float = 20.0, gamma: float = 0.1, margin: float = 0.01, tau: float = 0.0
    ) -> None:
        check_whole("centers", centers)
        scale, gamma = check_above_zero("scale", scale), check_above_zero("gamma", gamma)
        margin = check_number("margin", margin, least=0)
        super().__init__("SoftTripleLoss", centers_per_class=centers, la=scale, gamma=gamma, margin=margin)
        self.centers, self.scale, self.gamma, self.margin = centers, scale, gamma, margin
        self.tau = check_number("tau", tau, least=0)

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch."""
        value = super().forward(embeddings, classes)
        return value + self.tau * self._spread() if self.tau and self.centers > 1 else value

    def _spread(self) -> Tensor:
        """Half the mean distance of two centres of a class."""
        # the library's SparseCentersRegularizer compares all centres of all classes
        with torch.autocast(self.inner.fc.device.type, enabled=False):
            rows = unit_rows(self.inner.fc.T)  # (C M, D)
            centers = rows.reshape(-1, self.centers, rows.shape[1])  # (C, M, D)
            cosines = centers @ centers.mT  # (C, M, M)
            pairs = torch.ones(cosines.shape[1:], dtype=torch.bool, device=cosines.device).triu(diagonal=1)
            # as in the authors' code, the constant keeps the gradient finite where two centres coincide
            spread: Tensor = (2 + 1e-5 - 2 * cosines[:, pairs]).sqrt().mean() / 2  # of (C, M (M - 1) / 2)
        return spread
