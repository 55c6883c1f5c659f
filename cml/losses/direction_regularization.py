"""Direction regularisation: a negative behind the positive is pushed away less, for it would be pushed into the class.

The push on a negative n of anchor a with positive p is reduced by gamma cos(n - a, p - a). The printed shortcut for the
cosine equals it only where both are orthogonal; here it is the true cosine everywhere. The default of gamma is cml's:
the sources at hand state none. The losses that share this file are ``direction-triplet``,
``direction-multi-similarity`` and ``direction-proxy-nca``.
"""

import torch
from torch import Tensor

from cml.processes.device import has_float64

SOURCE = "Mohan et al., CVPR 2020"
# Product of two squared distances, relative to the largest there is, below which a point counts as having no direction
# from its anchor: the cosine fades to 0, where its gradient would grow without bound.
LEAST = 1e-8
TINY = 1e-30  # where all points are one


def class_masks(classes: Tensor) -> tuple[Tensor, Tensor]:
    """Masks (B, B) of the positives and negatives of every item, of classes (B,); none is its own positive."""
    same = classes[:, None] == classes
    return same ^ torch.eye(len(classes), dtype=torch.bool, device=classes.device), ~same


def as_exact(points: Tensor) -> Tensor:
    """The points in float64 where the device has it: differences of nearly equal products are noise in float32."""
    return points.double() if has_float64(points.device) else points


def triplet_geometry(
    points: Tensor, anchors: Tensor, positives: Tensor, negatives: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """|p - a|^2, |n - a|^2 and cos(n - a, p - a) of triplets of points (B, D), without a tensor (T, D).

    Anchors, positives and negatives are item numbers (T,), or of shapes that broadcast to one.
    """
    full = as_exact(points)
    products = full @ full.T  # (B, B)
    norms = products.diagonal()
    squared = (norms[:, None] + norms - 2 * products).clamp(min=0)
    near, far = squared[anchors, positives], squared[anchors, negatives]
    inner = products[negatives, positives] - products[negatives, anchors] - products[anchors, positives]
    lengths = torch.maximum(near * far, LEAST * squared.detach().max().square().clamp(min=TINY)).sqrt()
    return near.to(points), far.to(points), ((inner + norms[anchors]) / lengths).to(points)
