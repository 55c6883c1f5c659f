"""The triplet loss with direction regularisation: negatives are not pushed through the anchor's positive."""

import torch
from torch import Tensor

from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.direction_regularization import SOURCE, class_masks, triplet_geometry
from cml.losses.loss import LossInfo
from cml.losses.pairs import embedding_points
from cml.settings import check_flag, check_number


class DirectionTripletLoss(ClassLoss):
    """Triplet hinge with direction regularisation, over all triplets.

    The mean over every (a, p, n) whose term is above 0 (0 if none is) of

        [ D_ap - D_an + margin - gamma cos(f_n - f_a, f_p - f_a) ]_+

    with D the squared Euclidean distance, p an item of the class of a and n one of another. On the CPU, time and memory
    are those of the triplets: B times the positives times the negatives of an item. Elsewhere, where their number may
    not be looked at, they are those of B^3 triplets.

    Inputs: embeddings (B, D), class numbers (B,) int64.

    Relations: ``triplet(mining=all)`` for gamma = 0.

    Args:
        margin: At least 0, of squared distances.
        gamma: Weight of the regularisation, at least 0.
        normalize: Whether to L2-normalise the embeddings first.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0, 1])
        >>> DirectionTripletLoss(3.5, 0.3, normalize=False).value(points, classes).item()  # cosine 0 at item 0
        0.5

    Reference:
        Mohan, Sankaran, Fedorishin, Setlur, Govindaraju: Moving in the Right Direction, CVPR 2020.
    """

    info = LossInfo(
        cost="O(triplets), at most O(B^3)",
        source=SOURCE,
        when="Triplets on classes that lie close together: negatives are not pushed through the class.",
    )

    def __init__(self, margin: float = 0.2, gamma: float = 0.3, normalize: bool = True) -> None:
        super().__init__()
        self.margin = check_number("margin", margin, least=0)
        self.gamma = check_number("gamma", gamma, least=0)
        self.normalize = check_flag("normalize", normalize)

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The formula."""
        check_classes(embeddings, classes)
        look = self.may_check_numbers(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = embedding_points(embeddings, normalize=self.normalize, look=look)
            positives, negatives = class_masks(classes)
            if look:  # how many triplets there are depends on the classes
                anchor, positive = positives.nonzero(as_tuple=True)  # (P,) pairs
                pair, negative = negatives[anchor].nonzero(as_tuple=True)  # (T,) triplets
                anchor, positive, used = anchor[pair], positive[pair], torch.ones_like(pair, dtype=torch.bool)
            else:
                negative = torch.arange(len(classes), device=classes.device)
                anchor, positive = negative[:, None, None], negative[:, None]  # which broadcast to (B, B, B)
                used = positives[:, :, None] & negatives[:, None, :]
            near, far, cosines = triplet_geometry(points, anchor, positive, negative)
            hinges = (near - far + self.margin - self.gamma * cosines).where(used, 0).clamp(min=0)
            return hinges.sum() / (hinges > 0).sum().clamp(min=1)
