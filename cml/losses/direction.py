"""Direction regularisation: a negative behind the positive is pushed away less, for it would be pushed into the class.

The push is lessened by gamma cos(n - a, p - a). The printed shortcut for the cosine equals it only where both are
orthogonal; here it is the true cosine everywhere. The default of gamma is ours: the sources at hand state none.
"""

import torch
from torch import Tensor

from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.embeddings import in_full, unit
from cml.losses.embeddings import points as points_of
from cml.losses.loss import About
from cml.settings import check_above_zero, check_number

SOURCE = "Mohan et al., CVPR 2020"
# Product of two squared distances, relative to the largest there is, below which a point counts as having no direction
# from its anchor: the cosine fades to 0, where its gradient would grow without bound.
LEAST = 1e-8
TINY = 1e-30  # where all points are one


def class_masks(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Positives and negatives of every item, (B, B) bool each; no item is its own positive."""
    same = classes[:, None] == classes
    return same ^ torch.eye(len(classes), dtype=torch.bool, device=classes.device), ~same


def exact(points: Tensor) -> Tensor:
    """In float64 where the device has it: differences of nearly equal products would be noise in float32."""
    return points if points.device.type == "mps" else points.double()


def triplet_geometry(
    points: Tensor, anchors: Tensor, positives: Tensor, negatives: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """|p - a|^2, |n - a|^2 and cos(n - a, p - a), (T,) each, of triplets of item numbers (T,): no tensor is (T, D)."""
    full = exact(points)
    products = full @ full.T  # (B, B)
    norms = products.diagonal()
    squared = (norms[:, None] + norms - 2 * products).clamp(min=0)
    near, far = squared[anchors, positives], squared[anchors, negatives]
    inner = products[negatives, positives] - products[negatives, anchors] - products[anchors, positives]
    lengths = torch.maximum(near * far, LEAST * squared.detach().max().square().clamp(min=TINY)).sqrt()
    return near.to(points), far.to(points), ((inner + norms[anchors]) / lengths).to(points)


class DirectionTripletLoss(ClassLoss):
    """Triplet hinge with direction regularisation, over all triplets.

    The mean over every (a, p, n) whose term is above 0 (0 if none is) of

        [ D_ap - D_an + margin - gamma cos(f_n - f_a, f_p - f_a) ]_+

    with D the squared Euclidean distance, p of the class of a and n of another. Time and memory are those of the
    triplets: B times the positives times the negatives of an item.
    Relations: ``triplet(mining=all)`` for gamma = 0.

    Args:
        margin: At least 0, of squared distances.
        gamma: At least 0.
        normalize: L2-normalise the embeddings first.

    Example:
        >>> points, classes = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1])
        >>> direction_triplet_loss(points, classes, margin=3.5, gamma=0.3, normalize=False).item()  # cosine 0 at item 0
        0.5

    Reference:
        Mohan, Sankaran, Fedorishin, Setlur, Govindaraju: Moving in the Right Direction, CVPR 2020.
    """

    _when = "Triplets on classes that lie close together: negatives are not pushed through the class."
    about = About("O(triplets), at most O(B^3)", SOURCE, _when)

    def __init__(self, margin: float = 0.2, gamma: float = 0.3, normalize: bool = True) -> None:
        super().__init__()
        self.margin = check_number("margin", margin, least=0)
        self.gamma = check_number("gamma", gamma, least=0)
        self.normalize = normalize

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of embeddings (B, D) and classes (B,) int64, a scalar."""
        check_classes(embeddings, classes)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = points_of(embeddings, normalize=self.normalize)
            positives, negatives = class_masks(classes)
            anchor, positive = positives.nonzero(as_tuple=True)  # (P,) pairs
            pair, negative = negatives[anchor].nonzero(as_tuple=True)  # (T,) triplets
            near, far, cosines = triplet_geometry(points, anchor[pair], positive[pair], negative)  # (T,) each
            hinges = (near - far + self.margin - self.gamma * cosines).clamp(min=0)
            return hinges.sum() / max(int((hinges > 0).sum()), 1)


def direction_triplet_loss(
    embeddings: Tensor, classes: Tensor, *, margin: float = 0.2, gamma: float = 0.3, normalize: bool = True
) -> Tensor:
    """``DirectionTripletLoss`` as a function of embeddings (B, D) and classes (B,) int64."""
    return DirectionTripletLoss(margin, gamma, normalize).value(embeddings, classes)


class DirectionMultiSimilarityLoss(ClassLoss):
    """Multi-similarity loss with direction regularisation.

    With the mining of multi-similarity, and p* the item's positive of the least cosine, the mean over items i of

        1/alpha log( 1 + sum_p exp(-alpha (S_ip - base)) )
      + 1/beta  log( 1 + sum_n exp( beta (S_in - base) - gamma cos(f_n - f_i, f_p* - f_i)) )

    An item without a positive has no direction: its negatives stay as they are where they are not mined away.
    Relations: ``multi-similarity`` for gamma = 0.

    Args:
        alpha: Above 0.
        beta: Above 0.
        base: A cosine.
        epsilon: The mining's slack, a cosine; ``None`` keeps all pairs.
        gamma: At least 0.

    Example:
        >>> points = torch.eye(4)
        >>> value = direction_multi_similarity_loss(points, torch.tensor([0, 0, 1, 1]), gamma=0.0)
        >>> round(value.item(), 4)  # all cosines are 0: log(1 + e) / 2, and nearly nothing from the negatives
        0.6566

    Reference:
        Mohan, Sankaran, Fedorishin, Setlur, Govindaraju: Moving in the Right Direction, CVPR 2020.
    """

    about = About("O(B^2)", SOURCE, "Multi-similarity on classes that lie close together.")
    normalize = True

    def __init__(
        self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float | None = 0.1, gamma: float = 0.3
    ) -> None:
        super().__init__()
        self.alpha = check_above_zero("alpha", alpha)
        self.beta = check_above_zero("beta", beta)
        self.base = check_number("base", base, least=-1)
        self.epsilon = None if epsilon is None else check_number("epsilon", epsilon, least=0)
        self.gamma = check_number("gamma", gamma, least=0)

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of embeddings (B, D) and classes (B,) int64, a scalar."""
        check_classes(embeddings, classes)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = unit(exact(embeddings))  # which positive is the hardest is noise in float32 where all lie near
            kept_positives, kept_negatives = positives, negatives = class_masks(classes)
            cosines = points @ points.T  # (B, B)
            fixed = cosines.detach()
            hardest, farthest = fixed.masked_fill(~positives, torch.inf).min(dim=1)  # (B,), infinite without a positive
            if self.epsilon is not None:
                nearest = fixed.masked_fill(~negatives, -torch.inf).amax(dim=1)
                kept_positives = positives & (fixed - self.epsilon < nearest[:, None])
                kept_negatives = negatives & (fixed + self.epsilon > hardest[:, None])
            item, negative = (negatives & hardest.isfinite()[:, None]).nonzero(as_tuple=True)  # those with a direction
            direction = triplet_geometry(points, item, farthest[item], negative)[2]
            turned = torch.zeros_like(cosines).index_put((item, negative), direction)
            pull = _log_one_plus_sum(-self.alpha * (cosines - self.base), kept_positives) / self.alpha
            push = self.beta * (cosines - self.base) - self.gamma * turned
            value = (pull + _log_one_plus_sum(push, kept_negatives) / self.beta).mean()
            return value.to(in_full(embeddings).dtype)


def direction_multi_similarity_loss(
    embeddings: Tensor,
    classes: Tensor,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    epsilon: float | None = 0.1,
    gamma: float = 0.3,
) -> Tensor:
    """``DirectionMultiSimilarityLoss`` as a function of embeddings (B, D) and classes (B,) int64."""
    return DirectionMultiSimilarityLoss(alpha, beta, base, epsilon, gamma).value(embeddings, classes)


def _log_one_plus_sum(exponents: Tensor, kept: Tensor) -> Tensor:
    """log(1 + sum of the kept exponentials) of each row of (B, B), without overflow: (B,)."""
    kept_or_one = torch.cat([exponents.new_zeros(len(exponents), 1), exponents.masked_fill(~kept, -torch.inf)], dim=1)
    return kept_or_one.logsumexp(dim=1)
