"""The multi-similarity loss with direction regularisation."""

import torch
from torch import Tensor

from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.direction_regularization import SOURCE, as_exact, class_masks, triplet_geometry
from cml.losses.loss import LossInfo
from cml.losses.pairs import in_full, unit_rows
from cml.settings import check_above_zero, check_number


class DirectionMultiSimilarityLoss(ClassLoss):
    """Multi-similarity loss with direction regularisation.

    With the mining of multi-similarity, and p* the item's positive of the least cosine, the mean over items i of

        1/alpha log( 1 + sum_p exp(-alpha (S_ip - base)) )
      + 1/beta  log( 1 + sum_n exp( beta (S_in - base) - gamma cos(f_n - f_i, f_p* - f_i)) )

    with S the cosine of embeddings. An item without a positive has no direction: its negatives stay as they are where
    they are not mined away.

    Inputs: embeddings (B, D), class numbers (B,) int64. The embeddings are L2-normalised.

    Relations: ``multi-similarity`` for gamma = 0.

    Args:
        alpha: Above 0. Sharpness for positives.
        beta: Above 0. Sharpness for negatives.
        base: The cosine that both are measured from, at least -1.
        epsilon: The slack of the mining, a cosine, at least 0. ``None`` keeps all pairs.
        gamma: Weight of the regularisation, at least 0.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> value = DirectionMultiSimilarityLoss(gamma=0.0)(torch.eye(4), torch.tensor([0, 0, 1, 1]))
        >>> round(value.item(), 4)  # all cosines are 0: log(1 + e) / 2, and nearly nothing from the negatives
        0.6566

    Reference:
        Mohan, Sankaran, Fedorishin, Setlur, Govindaraju: Moving in the Right Direction, CVPR 2020.
    """

    info = LossInfo(cost="O(B^2)", source=SOURCE, when="Multi-similarity on classes that lie close together.")
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
        """The formula."""
        check_classes(embeddings, classes)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = unit_rows(as_exact(embeddings))  # the hardest positive is noise in float32 where all lie near
            kept_positives, kept_negatives = positives, negatives = class_masks(classes)
            cosines = points @ points.T  # S, (B, B)
            fixed = cosines.detach()
            hardest, farthest = fixed.masked_fill(~positives, torch.inf).min(dim=1)  # infinite without a positive
            if self.epsilon is not None:
                nearest = fixed.masked_fill(~negatives, -torch.inf).amax(dim=1)
                kept_positives = positives & (fixed - self.epsilon < nearest[:, None])
                kept_negatives = negatives & (fixed + self.epsilon > hardest[:, None])
            item = torch.arange(len(points), device=points.device)[:, None]
            direction = triplet_geometry(points, item, farthest[:, None], item.T)[2]  # of each item with each, (B, B)
            direction = direction.where(negatives & hardest.isfinite()[:, None], 0)
            pull = _log_one_plus_sum(-self.alpha * (cosines - self.base), kept_positives) / self.alpha
            push = self.beta * (cosines - self.base) - self.gamma * direction
            value = (pull + _log_one_plus_sum(push, kept_negatives) / self.beta).mean()
            return value.to(in_full(embeddings).dtype)


def _log_one_plus_sum(exponents: Tensor, kept: Tensor) -> Tensor:
    """log(1 + sum of the kept exponentials) of each row of (B, B), without overflow: (B,)."""
    kept_or_one = torch.cat([exponents.new_zeros(len(exponents), 1), exponents.masked_fill(~kept, -torch.inf)], dim=1)
    return kept_or_one.logsumexp(dim=1)
