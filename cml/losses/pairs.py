"""The pairs (anchor, item) of a batch: which of them may be used, how far apart they are, and means over them.

The first A items of a batch are its anchors. Row a of the label distances (A, B) holds those of anchor a to every item;
an anchor's own column is left out, and so is a pair whose label distance is infinite (it cannot be compared).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cml.errors import UserError
from cml.losses.embeddings import check_matrix, points

# A squared distance below this part of the two squared norms is taken from the difference of the two embeddings: in
# the form |a|^2 + |b|^2 - 2ab it would have lost most of its digits, and a gradient of 1 / distance would be noise.
CLOSE = 1e-4


class RowMean(NamedTuple):
    """A loss and what it is the mean of.

    Attributes:
        loss: Scalar, sum of the values / sum of the counts; 0 if there is no term.
        counts: (A,) terms of each anchor.
    """

    loss: Tensor
    counts: Tensor


class Pairs(NamedTuple):
    """The pairs of a batch, (A, B) each.

    Attributes:
        distances: Of embeddings, Euclidean or squared.
        labels: Label distances, 0 where a pair is not used.
        used: bool, the pairs that a loss may use.
    """

    distances: Tensor
    labels: Tensor
    used: Tensor


def compare(embeddings: Tensor, label_distances: Tensor, *, normalize: bool, squared: bool = False) -> Pairs:
    """Check a batch and compute the distances of its embeddings, in at least float32, also under autocast.

    Distances have a gradient: 0 at distance 0, and exact where embeddings nearly coincide.

    Args:
        embeddings: (B, D) floating point.
        label_distances: (A, B) >= 0.
        normalize: L2-normalise the embeddings first.
        squared: Squared Euclidean distances.

    Raises:
        UserError: as ``check_batch`` says.
    """
    check_batch(embeddings, label_distances)
    with torch.autocast(embeddings.device.type, enabled=False):
        distances: Tensor = _Distances.apply(points(embeddings, normalize=normalize), len(label_distances), squared)
    labels, used = label_distances.to(distances.dtype), comparable(label_distances)
    return Pairs(distances, labels.where(used, 0), used)


def mean_of(values: Tensor, counts: Tensor) -> RowMean:
    """The mean of terms: ``values`` are their sums, (A,) or finer, ``counts`` (A,) the terms of each anchor."""
    return RowMean(values.sum() / counts.sum().clamp(min=1), counts)


def check_batch(embeddings: Tensor, label_distances: Tensor) -> None:
    """Check a loss's arguments: shapes, types, and that no used label distance is NaN or negative.

    Symmetry is not the loss's to ask for: a label distance may be declared asymmetric, and who makes the batch knows.

    Raises:
        UserError: a tensor has another number of dimensions or type, B differs, A > B, B < 2, or a label distance is
            NaN or negative.
    """
    check_matrix("embeddings", embeddings)
    check_matrix("label_distances", label_distances, "(A, B)")
    anchors, items = label_distances.shape
    if items != len(embeddings):
        raise UserError(
            f"The 'label_distances' must have one column an embedding, {len(embeddings)}. Got {items} instead."
        )
    if not 1 <= anchors <= items or items < 2:
        raise UserError(
            f"The anchors are the first A of B items: 1 <= A <= B and B >= 2. Got A={anchors}, B={items} instead."
        )
    if not bool(label_distances.amin() >= 0):  # as NaN is not; the usual batch is told by this one pass
        _check_values(label_distances)


def _check_values(label_distances: Tensor) -> None:
    bad = ~(label_distances >= 0)
    bad.diagonal().fill_(False)  # left out, whatever stands there
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise UserError(
            "The 'label_distances' must be numbers of at least 0, or infinite for no comparison. Got "
            f"{label_distances[row, column].item():g} between items {row} and {column} of the batch ({int(bad.sum())} "
            "such in all); mend the label distance, or leave the pair out by infinity."
        )


def check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    """Check that ``mask`` is a bool tensor of ``shape`` (A, B).

    Raises:
        UserError: it is not.
    """
    if mask.dtype != torch.bool or mask.shape != shape:
        raise UserError(
            f"The {name!r} must be a bool tensor (A, B) = {tuple(shape)}. "
            f"Got shape {tuple(mask.shape)}, {mask.dtype} instead."
        )


def masked(label_distances: Tensor, mask: Tensor | None) -> Tensor:
    """Label distances (A, B) with infinity, which leaves a pair out, where a mask (A, B) bool is False.

    Raises:
        UserError: the mask has another shape or type.
    """
    if mask is None:
        return label_distances
    check_matrix("label_distances", label_distances, "(A, B)")
    check_mask("mask", mask, label_distances.shape)
    return label_distances.masked_fill(~mask, torch.inf)


def comparable(label_distances: Tensor, first_anchor: int = 0) -> Tensor:
    """The pairs a loss may use, (A, B) bool: not an anchor with itself, and not an infinite label distance.

    Args:
        label_distances: (A, B), a block of rows.
        first_anchor: The item that the block's first row belongs to.
    """
    used = label_distances < torch.inf  # NaN is not
    used.diagonal(first_anchor).fill_(False)
    return used


class _Distances(torch.autograd.Function):
    """Distances (A, B) of the first A points to all."""

    @staticmethod
    def forward(ctx: Any, full: Tensor, anchors: int, squared: bool) -> Tensor:  # noqa: ANN401 - torch has no type
        shifted, norms = centred(full)
        distances, close = squared_distances(full, shifted, norms, slice(0, anchors))
        if not squared:
            distances.sqrt_()
        ctx.save_for_backward(full, shifted, close, None if squared else distances)
        return distances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        full, shifted, close, distances = ctx.saved_tensors
        if distances is not None:
            slopes = torch.where(distances > 0, slopes / distances, 0).div_(2)
        elif len(close):
            slopes = slopes.clone()
        gradient = torch.zeros_like(full)
        add_gradient(gradient, full, shifted, slice(0, len(slopes)), slopes, close)
        return gradient, None, None


def centred(full: Tensor) -> tuple[Tensor, Tensor]:
    """Points (B, D) around 0, where the product form of distances loses fewer digits, and their squared norms (B,)."""
    shifted = full - full.mean(dim=0)
    return shifted, shifted.square().sum(dim=1)


def squared_distances(full: Tensor, shifted: Tensor, norms: Tensor, block: slice) -> tuple[Tensor, Tensor]:
    """Squared distances of the block's anchors to all, (R, B), and the close pairs, (C, 2) row in block and column."""
    scale = norms[block, None] + norms  # (R, B)
    squared = torch.addmm(scale, shifted[block], shifted.T, alpha=-2)
    excess = torch.sub(squared, scale, alpha=CLOSE)
    excess.diagonal(block.start).fill_(1)
    squared.diagonal(block.start).zero_()
    if bool(excess.amin() >= 0):  # the usual case: looking for close pairs costs more than knowing of none
        return squared, norms.new_empty((0, 2), dtype=torch.int64)
    close = (excess < 0).nonzero()
    for part in _parts(close, full):
        squared[part[:, 0], part[:, 1]] = _differences(full, block, part).square().sum(dim=1)
    return squared, close


def add_gradient(gradient: Tensor, full: Tensor, shifted: Tensor, block: slice, slopes: Tensor, close: Tensor) -> None:
    """Add the block's part: sum over pairs of 2 slope (f_a - f_i) to anchor a, and its opposite to item i.

    Args:
        gradient: (B, D), added to.
        full: (B, D) points.
        shifted: The points around 0.
        block: The rows' anchors.
        slopes: (R, B) derivatives in squared distances; set to 0 at the close pairs.
        close: The close pairs of the block.
    """
    for part in _parts(close, full):
        rows, columns = part[:, 0], part[:, 1]
        pull = _differences(full, block, part).mul_(2 * slopes[rows, columns, None])
        gradient.index_add_(0, rows + block.start, pull)
        gradient.index_add_(0, columns, pull, alpha=-1)
    if len(close):
        slopes[close[:, 0], close[:, 1]] = 0
    if len(slopes) == len(shifted):  # every item is an anchor of this block: one product does for both parts
        slopes = slopes + slopes.T
        gradient.addcmul_(slopes.sum(dim=1, keepdim=True), shifted, value=2).addmm_(slopes, shifted, alpha=-2)
        return
    anchors = shifted[block]
    gradient[block].addcmul_(slopes.sum(dim=1, keepdim=True), anchors, value=2).addmm_(slopes, shifted, alpha=-2)
    gradient.addcmul_(slopes.sum(dim=0)[:, None], shifted, value=2).addmm_(slopes.T, anchors, alpha=-2)


def _differences(full: Tensor, block: slice, pairs: Tensor) -> Tensor:
    """f_a - f_i of the pairs, (C, D); of the points as given, for the shift has rounded them."""
    return full[pairs[:, 0] + block.start] - full[pairs[:, 1]]


def _parts(pairs: Tensor, full: Tensor) -> tuple[Tensor, ...]:
    """The close pairs in parts whose differences take 16 MiB; none if there are no pairs."""
    at_once = max(1, (16 << 20) // (full.element_size() * max(1, full.shape[1])))
    return torch.split(pairs, at_once) if len(pairs) else ()
