"""Squared distances of embeddings, exact where two points nearly coincide, and their gradients.

|a|^2 + |b|^2 - 2ab loses the digits that a gradient of 1 / distance needs where a and b are near each other. So it is
computed in float32 where no two points are near, else in float64. Plain formulas may look whether points are near on
the CPU alone, and have it in float64 elsewhere (``plain_squared_distances``). Closed forms (``squared_distances``) have
near pairs from their differences while they are few, and otherwise those that nearly coincide even in float64. Every
function takes points (B, D), or (H, B, D) of H heads.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from cml.losses.pairs import is_transformed
from cml.processes.device import device_of_float64, has_float64

# Where a squared distance is below this part of the two squared norms, float32 products lose digits.
NEAR = 0.1
COINCIDENT = 1.5e-8  # and below this part float64 products do
_NO_DIGITS = 1e-14  # below this part of a squared norm, a float64 product is rounding alone
_FEW = 1 / 32  # of all pairs: their differences take less time than a product of all in float64
_DIFFERENCE_BYTES = 16 << 20  # of a part of the pairs that are computed from their differences


def plain_squared_distances(points: Tensor, rows: slice, *, look: bool = False) -> Tensor:
    """Squared distances (..., R, B) of some points to all, by operations that torch differentiates any number of times.

    ``look`` lets them be a product in float32 where no two points are near; one in float64 has digits to spare. Of
    float64 itself, and on devices without it, they come from differences, which takes O(R B D) memory.
    """
    if points.dtype == torch.float64 or not has_float64(points.device):
        return (points[..., rows, None, :] - points[..., None, :, :]).square().sum(dim=-1)
    if look and points.device.type == "cpu" and not is_transformed(points):
        squared, norms = _plain_product(points, rows)
        own = squared.detach().diagonal(rows.start, -2, -1)  # whose gradient is 0, as the product's is but for rounding
        own.fill_(torch.inf)
        all_are_far = bool(squared.detach().amin() >= 2 * NEAR * norms.detach().amax())
        own.zero_()
        if all_are_far:
            return squared
    squared, norms = _plain_product(points.double(), rows)
    apart = squared.detach() > _NO_DIGITS * norms.detach()[..., rows, :]
    return squared.to(points.dtype).where(apart, 0)


def _plain_product(points: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    """|a|^2 + |b|^2 - 2ab (..., R, B) in one product, and the squared norms (..., B, 1) around 0, which are smaller."""
    centered = points - points.detach().mean(dim=-2, keepdim=True)
    norms = centered.square().sum(dim=-1, keepdim=True)
    ones = torch.ones_like(norms)
    left = torch.cat([-2 * centered[..., rows, :], norms[..., rows, :], ones[..., rows, :]], dim=-1)
    return left @ torch.cat([centered, ones, norms], dim=-1).mT, norms


def plain_distances(squared: Tensor) -> Tensor:
    """The roots of squared distances, differentiable any number of times, with gradients of 0 at distance 0.

    Args:
        squared: Squared distances, of any shape.

    Returns:
        The distances.

    Example:
        >>> plain_distances(torch.tensor([0.0, 4.0]))
        tensor([0., 2.])
    """
    apart = squared > 0
    return squared.where(apart, 1).sqrt().where(apart, 0)


class SquaredDistances(NamedTuple):
    """Squared distances of a block of anchors to all points, and what their gradient needs."""

    values: Tensor  # (..., R, B)
    shifted: Tensor  # (..., B, D) the points around 0, in float64 where float32 loses digits
    # (C, 2) row in block and column of the pairs that are computed from their differences; (C, 3) with the head's
    # number before them
    near: Tensor


def slopes_of_distances(slopes: Tensor, distances: Tensor) -> Tensor:
    """Turn slopes in Euclidean distances (..., R, B) into slopes in squared ones; 0 at distance 0, as torch's norm."""
    halves = torch.div(distances.new_tensor(0.5), distances)  # 1 / (2 D), in one pass
    return halves.nan_to_num_(nan=torch.nan, posinf=0).mul_(slopes)


def center_points(points: Tensor) -> tuple[Tensor, Tensor]:
    """The points minus their mean (..., B, D), whose products lose fewer digits, and their squared norms (..., B)."""
    shifted = points - points.mean(dim=-2, keepdim=True)
    return shifted, shifted.square().sum(dim=-1)


def squared_distances(full: Tensor, shifted: Tensor, norms: Tensor, block: slice) -> SquaredDistances:
    """Squared distances of R consecutive anchors, ``block``, of the points ``full`` and their ``center_points``."""
    single = full.dtype != torch.float64
    squared, near = _products(shifted, norms, block, NEAR if single else COINCIDENT)
    if near is None:
        return SquaredDistances(squared, shifted, norms.new_empty((0, full.ndim), dtype=torch.int64))
    if single and int(near.count_nonzero()) > _FEW * near.numel():  # on the processor where the device has no float64
        shifted, norms = center_points(full.to(device_of_float64(full.device), torch.float64))
        squared, near = _products(shifted, norms, block, COINCIDENT)
        squared = squared.to(full)
    none = full.new_empty((0, full.ndim), dtype=torch.int64)
    pairs = none if near is None else near.nonzero().to(full.device)
    for part, differences in _differences(full, block, pairs):
        squared[part.unbind(1)] = differences.square().sum(dim=1)
    return SquaredDistances(squared, shifted, pairs)


def add_gradient(gradient: Tensor, full: Tensor, block: slice, slopes: Tensor, shifted: Tensor, near: Tensor) -> None:
    """Add 2 slope (f_a - f_i) of the block's pairs to anchor a of ``gradient`` (..., B, D), and its opposite to item i.

    ``slopes`` (..., R, B) are those in the squared distances; the others are as in ``squared_distances``.
    """
    if len(near):
        rows = gradient.view(-1, gradient.shape[-1])
        for part, differences in _differences(full, block, near):
            anchors, items = _flat_ends(part, block, full.shape[-2])
            pull = differences.mul_(2 * slopes[part.unbind(1)][:, None])
            rows.index_add_(0, anchors, pull).index_add_(0, items, pull, alpha=-1)
        slopes = slopes.index_put(near.unbind(1), slopes.new_zeros(()))
    slopes = slopes.to(shifted)
    if slopes.shape[-2] == shifted.shape[-2]:  # every item is an anchor of this block: one product does for both parts
        slopes = slopes + slopes.mT
        of_all = _add_product(slopes.sum(dim=-1, keepdim=True) * shifted, slopes, shifted, beta=2)
        gradient += of_all.to(gradient)
        return
    anchors = shifted[..., block, :]
    of_anchors = _add_product(slopes.sum(dim=-1, keepdim=True) * anchors, slopes, shifted, beta=2)
    gradient[..., block, :] += of_anchors.to(gradient)
    of_items = _add_product(slopes.sum(dim=-2)[..., None] * shifted, slopes.mT, anchors, beta=2)
    gradient += of_items.to(gradient)


def _differences(full: Tensor, block: slice, pairs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Parts of the pairs and their f_a - f_i; of the points as given, which no shift has rounded."""
    at_once = max(1, _DIFFERENCE_BYTES // (full.element_size() * max(1, full.shape[-1])))
    for part in torch.split(pairs, at_once):
        anchors, items = _flat_ends(part, block, full.shape[-2])
        points = full.flatten(0, -2)
        yield part, points[anchors] - points[items]


def _flat_ends(pairs: Tensor, block: slice, items: int) -> tuple[Tensor, Tensor]:
    """The anchors and items of pairs as rows of the points (B, D), or of (H B, D)."""
    *head, rows, columns = pairs.unbind(1)
    first = head[0] * items if head else 0
    return rows + block.start + first, columns + first


def _products(shifted: Tensor, norms: Tensor, block: slice, limit: float) -> tuple[Tensor, Tensor | None]:
    """Squared distances (..., R, B) by products, and which are below ``limit`` times the two norms, if any is."""
    scale = norms[..., block, None] + norms[..., None, :]  # (..., R, B)
    squared = _add_product(scale, shifted[..., block, :], shifted.mT, beta=1)
    excess = torch.sub(squared, scale, alpha=limit)
    excess.diagonal(block.start, -2, -1).fill_(1)
    squared.diagonal(block.start, -2, -1).zero_()
    return squared, None if bool(excess.amin() >= 0) else excess < 0


def _add_product(addend: Tensor, left: Tensor, right: Tensor, *, beta: float) -> Tensor:
    """Beta times ``addend`` minus twice the matrix product, of one head or of H."""
    product = torch.addmm if left.ndim == 2 else torch.baddbmm
    return product(addend, left, right, beta=beta, alpha=-2)
