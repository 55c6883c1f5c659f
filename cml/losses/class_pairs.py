"""The pair and triplet losses over classes that pytorch-metric-learning has, with their published settings.

Each computes exactly what the library computes; the docstring says where that differs from the paper. f are embeddings,
L2-normalised where ``normalize``; D is the Euclidean distance, S the cosine; p has the anchor's class, n another.
"""

import importlib
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.embeddings import points, rescaled
from cml.losses.loss import About
from cml.settings import check_above_zero, check_number, check_word

Mining = Literal["all", "semi-hard", "batch-hard"]


class PmlPairLoss(ClassLoss):
    """A loss over pairs or triplets of pytorch-metric-learning, with a miner of it or without."""

    needs_classes = False  # True if the library cannot compute it from pairs alone

    def __init__(self, inner: nn.Module, miner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner
        self.miner = miner
        self.normalize = bool(getattr(getattr(inner, "distance", None), "normalize_embeddings", False))

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """What the library makes of embeddings (B, D) and classes (B,) int64."""
        check_classes(embeddings, classes)
        with torch.autocast(embeddings.device.type, enabled=False):
            full = rescaled(embeddings) if self.normalize else points(embeddings, normalize=False)
            mined = None if self.miner is None else self.miner(full.detach(), classes)
            value: Tensor = self.inner(full, classes, mined)
        return value


def pml(module: str) -> Any:  # noqa: ANN401 - of an untyped library
    """A module of pytorch-metric-learning, imported where it is needed."""
    return importlib.import_module(f"pytorch_metric_learning.{module}")


def lp_distance(normalize: bool, power: int = 1) -> nn.Module:
    """The library's Euclidean distance to a power, by differences: products are noise where points nearly coincide."""

    class ExactLpDistance(pml("distances").LpDistance):  # type: ignore[misc]
        def compute_mat(self, query_emb: Tensor, ref_emb: Tensor | None) -> Tensor:
            others = query_emb if ref_emb is None else ref_emb
            return torch.cdist(query_emb, others, compute_mode="donot_use_mm_for_euclid_dist")

    made: nn.Module = ExactLpDistance(normalize_embeddings=normalize, power=power)
    return made


class ContrastiveLoss(PmlPairLoss):
    """Positive pairs are drawn together, negative pairs pushed ``margin`` apart.

    The sum of two means, each over the pairs whose term is above 0:

        mean over positive pairs of D^2  +  mean over negative pairs of [ margin - D ]_+^2

    ``squared=False`` leaves both squares out, which is the library's ``ContrastiveLoss`` as it comes; with them it is
    the same loss with a reducer that squares. The paper takes half the sum over all pairs, not normalised.

    Args:
        margin: Above 0; distance from which a negative pair is left alone.
        squared: The squares of the formula.
        normalize: L2-normalise the embeddings.

    Example:
        >>> points, classes = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 1])
        >>> ContrastiveLoss(margin=3.0, normalize=False)(points, classes).item()  # positives 1, one negative (3 - 2)^2
        2.0

    Reference:
        Hadsell, Chopra, LeCun: Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006.
    """

    _when = "The oldest pair loss: a baseline, or where distances should have a fixed scale."
    about = About("O(B^2)", "Hadsell et al., CVPR 2006", _when)

    def __init__(self, margin: float = 1.0, squared: bool = True, normalize: bool = True) -> None:
        class AvgNonZeroSquareReducer(pml("reducers").AvgNonZeroReducer):  # type: ignore[misc]
            def element_reduction_helper(self, losses: Any, embeddings: Any) -> Any:  # noqa: ANN401
                return super().element_reduction_helper(losses.square(), embeddings)

        check_above_zero("margin", margin)
        distance, reducer = lp_distance(normalize), AvgNonZeroSquareReducer() if squared else None
        super().__init__(pml("losses").ContrastiveLoss(neg_margin=margin, distance=distance, reducer=reducer))
        self.margin, self.squared = margin, squared


class TripletLoss(PmlPairLoss):
    """A positive should be nearer to its anchor than a negative, by ``margin``.

    The mean over the mined triplets whose term is above 0 of

        [ D_ap^2 - D_an^2 + margin ]_+        (D instead of D^2 without ``squared``)

    Relations: ``binary-triplet`` is the mean over all triplets, those at 0 too, of squared distances, without a tensor
    of triplets.

    Args:
        margin: At least 0.
        mining: "semi-hard": triplets with D_ap < D_an < D_ap + margin (FaceNet). "batch-hard": each anchor's farthest
            positive with its nearest negative (Hermans et al., who do not square). "all": every triplet.
        squared: Squared distances, as FaceNet.
        normalize: L2-normalise the embeddings, as FaceNet.

    Example:
        >>> points, classes = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 1])
        >>> TripletLoss(margin=2.5, mining="batch-hard", squared=False, normalize=False)(points, classes).item()
        1.0

    Reference:
        Schroff, Kalenichenko, Philbin: FaceNet, CVPR 2015. Hermans, Beyer, Leibe: In Defense of the Triplet Loss, 2017.
    """

    _when = "The usual baseline: semi-hard mining, or batch-hard with a few items per class."
    about = About("O(triplets), at most O(B^3)", "Schroff et al., CVPR 2015; Hermans et al., 2017", _when)

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
        self.margin, self.mining, self.squared = margin, mining, squared


class NPairLoss(PmlPairLoss):
    """A softmax over the positives of other classes: each anchor should pick out its own.

    With one pair (a_i, p_i) of each class in the batch that has two items or more, the mean over pairs of

        log( 1 + sum_{j != i} exp( f_{a_i} . f_{p_j} - f_{a_i} . f_{p_i} ) )

    The library takes the first pair of each class, so a batch should hold two items of many classes
    (``per-class(per_class=2)``). Nothing bounds the embeddings' length: the paper adds their squared length, here
    ``regularization`` times its mean.

    Args:
        regularization: At least 0; weight of the embeddings' mean length.
        normalize: L2-normalise the embeddings; the paper does not.

    Reference:
        Sohn: Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NeurIPS 2016.
    """

    _when = "Many classes with few items each, in batches of two items per class."
    about = About("O(C^2)", "Sohn, NeurIPS 2016", _when)
    needs_classes = True

    def __init__(self, regularization: float = 0.0, normalize: bool = False) -> None:
        check_number("regularization", regularization, least=0)
        distance = pml("distances").DotProductSimilarity(normalize_embeddings=normalize)
        penalty = {"embedding_regularizer": pml("regularizers").LpRegularizer(), "embedding_reg_weight": regularization}
        super().__init__(pml("losses").NPairsLoss(distance=distance, **(penalty if regularization else {})))
        self.regularization = regularization


class LiftedStructureLoss(PmlPairLoss):
    """Each positive pair against all negatives of both its ends.

    The mean over positive pairs (i, j) of

        1/2 [ D_ij + log( sum_{n of i} exp(margin - D_in) + sum_{n of j} exp(margin - D_jn) ) ]_+^2

    The library holds a table of positive pairs by negative pairs; one of more than 8 GB is refused.

    Args:
        margin: Above 0.
        normalize: L2-normalise the embeddings; the paper does not.

    Reference:
        Oh Song, Xiang, Jegelka, Savarese: Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
    """

    _when = "Batches with several items of each of a few classes."
    about = About("O(positive pairs x negative pairs)", "Oh Song et al., CVPR 2016", _when)

    def __init__(self, margin: float = 1.0, normalize: bool = True) -> None:
        class Bounded(pml("losses").LiftedStructureLoss):  # type: ignore[misc]
            def _compute_loss(self, pos_pairs: Any, neg_pairs: Any, indices_tuple: Any) -> Any:  # noqa: ANN401
                bytes_ = 25 * len(pos_pairs) * len(neg_pairs)  # numbers and masks
                if bytes_ > 8e9:
                    raise UserError(
                        f"lifted-structure compares {len(pos_pairs):,} positive with {len(neg_pairs):,} negative pairs "
                        f"of this batch, which takes about {bytes_ / 1e9:.0f} GB; take a smaller batch or "
                        "multi-similarity."
                    )
                return super()._compute_loss(pos_pairs, neg_pairs, indices_tuple)

        check_above_zero("margin", margin)
        super().__init__(Bounded(neg_margin=margin, distance=lp_distance(normalize)))
        self.margin = margin


class MultiSimilarityLoss(PmlPairLoss):
    """Soft weights for hard pairs, after mining those that are hard relative to the anchor's others.

    Kept are negatives with S_in > min_p S_ip - epsilon and positives with S_ip < max_n S_in + epsilon. The mean over
    all items of

        1/alpha log( 1 + sum_p exp(-alpha (S_ip - base)) ) + 1/beta log( 1 + sum_n exp(beta (S_in - base)) )

    Args:
        alpha: Above 0; sharpness for positives.
        beta: Above 0; sharpness for negatives.
        base: The cosine that both are measured from.
        epsilon: The mining's slack, a cosine; ``None`` keeps all pairs.

    Reference:
        Wang, Han, Huang, Dong, Scott: Multi-Similarity Loss with General Pair Weighting, CVPR 2019.
    """

    _when = "Pairs weighted by how hard they are, with a few items of each class in a batch."
    about = About("O(B^2 log B)", "Wang et al., CVPR 2019", _when)

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float | None = 0.1) -> None:
        check_above_zero("alpha", alpha)
        check_above_zero("beta", beta)
        check_number("base", base, least=-1)
        slack = None if epsilon is None else check_number("epsilon", epsilon, least=0)
        miner = None if slack is None else pml("miners").MultiSimilarityMiner(slack)
        super().__init__(pml("losses").MultiSimilarityLoss(alpha=alpha, beta=beta, base=base), miner)
        self.alpha, self.beta, self.base, self.epsilon = alpha, beta, base, epsilon
