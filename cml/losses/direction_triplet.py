"""Direction regularisation, and the triplet hinge with it: negatives are not pushed through the anchor's positive.

In three losses of the field the push on a negative is lessened by gamma cos(n - a, p - a): where the negative lies in
the direction of the positive, pushing it away from the anchor would push it into the class. The printed shortcut for
the cosine equals it only where both are orthogonal; here it is the true cosine everywhere. The default of gamma is
ours: the sources at hand state none.
"""

import torch
from torch import Tensor

from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.embeddings import points as points_of
from cml.losses.loss import About
from cml.settings import check_number

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
    """|p - a|^2, |n - a|^2 and cos(n - a, p - a) of T triplets of points (B, D), (T,) each, of the type of ``points``.

    Triplets are item numbers (T,). All comes from the products of the points, see ``exact``: no tensor is (T, D).
    """
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

    about = About(
        "O(triplets), at most O(B^3)",
        SOURCE,
        "Triplets on classes that lie close together: negatives are not pushed through the class.",
    )

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
