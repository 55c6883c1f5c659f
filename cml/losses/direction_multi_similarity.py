"""The multi-similarity loss with direction regularisation."""

import torch
from torch import Tensor

from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.direction import SOURCE, class_masks, exact, triplet_geometry
from cml.losses.embeddings import in_full, unit
from cml.losses.loss import About
from cml.settings import check_above_zero, check_number


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
