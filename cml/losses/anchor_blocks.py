"""The mean over anchors of a formula in plain torch, a block of anchors at a time where the batch is large.

Autograd would hold a dozen (A, B) matrices of a formula for its gradient. Of a large batch it holds none: each block of
anchors is computed again for the gradient (``torch.utils.checkpoint``). Closed forms have a gradient of their own in
place of autograd's (``closed_form.py``). Losses in which anchors meet other than by their mean do not fit here
(``rkd_distance.py``).
"""

from __future__ import annotations  # the compiler of torch 2.4 does not take types of functions in functions

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cml.losses.pairs import Pairs, check_batch, comparable_pairs, embedding_points, is_transformed, usable_labels
from cml.losses.squared_distances import plain_distances, plain_squared_distances

# Of one (R, B) matrix. A batch is one block up to the first; parts of a larger one have the second.
_WHOLE_BYTES = 16 << 20
_BLOCK_BYTES = 4 << 20
_BYTES_ON_A_GPU = 256 << 20  # of both, where many small kernels are slow

# The value (..., R) of each of R anchors, a sum over its terms, and how many terms those are (R,); 0 leaves the anchor
# out. Of squared distances (..., R, B), label distances (R, B), infinite where a pair cannot be compared, and the pairs
# that may be used (R, B).
AnchorValues = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


class AnchorMean(NamedTuple):
    """A loss, and the number of terms that it is the mean of."""

    loss: Tensor  # Scalar, the sum of the values over the sum of the counts; 0 if there is no term. (H,) for H heads
    counts: Tensor  # (A,) terms of each anchor; 0 if the anchor has none


def mean_of(values: Tensor, counts: Tensor) -> AnchorMean:
    """The mean of the terms of all anchors.

    Args:
        values: (A,) or finer, the sums of the anchors' terms.
        counts: (A,) how many terms each anchor has.

    Returns:
        The loss and the counts.

    Example:
        >>> mean_of(torch.tensor([3.0, 0.0]), torch.tensor([2, 0])).loss  # one anchor has two terms, the other none
        tensor(1.5000)
    """
    return AnchorMean(values.sum() / counts.sum().clamp(min=1), counts)


def compare(embeddings: Tensor, label_distances: Tensor, *, normalize: bool, look: bool = True) -> Pairs:
    """Check a batch and compute the distances of its embeddings, in at least float32, also under autocast.

    The gradient of a distance is exact even where two embeddings nearly coincide, and 0 where they do.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        normalize: Whether to L2-normalise the embeddings first.
        look: Whether to check numbers too, which waits for a GPU.

    Returns:
        The pairs.

    Raises:
        UserError: A tensor has another shape or type, or a label distance is NaN or negative.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> pairs = compare(points, torch.cdist(points, points), normalize=False)
        >>> pairs.distances[0], pairs.used[0]  # of the first item to all, itself left out
        (tensor([0., 1., 3.]), tensor([False,  True,  True]))
    """
    label_distances = check_batch(embeddings, label_distances, look=look)
    with torch.autocast(embeddings.device.type, enabled=False):
        points = embedding_points(embeddings, normalize=normalize, look=look)
        distances = plain_distances(plain_squared_distances(points, slice(0, len(label_distances)), look=look))
    return Pairs(distances, *usable_labels(label_distances.to(distances.dtype)))


def mean_over_anchors(
    embeddings: Tensor, label_distances: Tensor, values: AnchorValues, *, normalize: bool, look: bool
) -> AnchorMean:
    """Check a batch, and take the mean of ``values`` over its anchors."""
    label_distances = check_batch(embeddings, label_distances, look=look)
    with torch.autocast(embeddings.device.type, enabled=False):
        points = embedding_points(embeddings, normalize=normalize, look=look)
        return plain_mean(points, label_distances, values, look=look)


def plain_mean(points: Tensor, label_distances: Tensor, values: AnchorValues, *, look: bool = False) -> AnchorMean:
    """The mean of ``values`` over the anchors of points (..., B, D), differentiable any number of times."""
    anchors, size = len(label_distances), _anchors_of_a_block(points, len(label_distances))

    def of_block(points: Tensor, start: int) -> tuple[Tensor, Tensor]:
        rows = slice(start, min(start + size, anchors))
        labels = label_distances[rows].to(points.dtype)
        of_anchors, counts = values(
            plain_squared_distances(points, rows, look=look), labels, comparable_pairs(labels, start)
        )
        return of_anchors.sum(dim=-1), counts

    if size >= anchors:
        total, counts = of_block(points, 0)
    else:
        learns = points.requires_grad and torch.is_grad_enabled() and not is_transformed(points)
        parts = [
            checkpoint(of_block, points, start, use_reentrant=False, preserve_rng_state=False)
            if learns
            else of_block(points, start)
            for start in range(0, anchors, size)
        ]
        total, counts = torch.stack([part[0] for part in parts]).sum(dim=0), torch.cat([part[1] for part in parts])
    return AnchorMean(total / counts.sum().clamp(min=1), counts)


def _anchors_of_a_block(points: Tensor, anchors: int) -> int:
    if torch.compiler.is_compiling():  # whose graph is one block, as it fuses what would be held
        return anchors
    row_bytes = points.element_size() * points[..., 0].numel()
    if points.dtype == torch.float64:  # by differences, (R, B, D)
        row_bytes *= points.shape[-1]
    on_cpu = points.device.type == "cpu"
    if anchors * row_bytes <= (_WHOLE_BYTES if on_cpu else _BYTES_ON_A_GPU):
        return anchors
    return max(1, (_BLOCK_BYTES if on_cpu else _BYTES_ON_A_GPU) // row_bytes)
