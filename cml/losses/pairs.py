"""The pairs (anchor, item) of a batch: which of them may be used, how far apart they are, and means over them.

The first A items of a batch are its anchors. Row a of the label distances (A, B) holds those of anchor a to every item;
an anchor's own column is left out, and so is a pair whose label distance is infinite (it cannot be compared).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from cml.errors import UserError
from cml.losses.embeddings import check_matrix, points

# Where a squared distance is below this part of the two squared norms, |a|^2 + |b|^2 - 2ab loses digits of float32 that
# a gradient of 1 / distance would miss: such a block of distances is computed in float64.
NEAR = 0.1
COINCIDENT = 1.5e-8  # and below this part float64 does: the distance is made of the difference


class RowMean(NamedTuple):
    """A loss and what it is the mean of."""

    loss: Tensor  # scalar, sum of the values / sum of the counts; 0 if there is no term
    counts: Tensor  # (A,) terms of each anchor


class Pairs(NamedTuple):
    """The pairs of a batch, (A, B) each."""

    distances: Tensor  # of embeddings, Euclidean
    labels: Tensor  # label distances, 0 where a pair is not used
    used: Tensor  # bool, the pairs that a loss may use


def compare(embeddings: Tensor, label_distances: Tensor, *, normalize: bool) -> Pairs:
    """Check a batch, and the distances of its embeddings, whose gradient is exact even where two nearly coincide.

    Autograd holds several (A, B) matrices; ``row_blocks.mean_over_pairs``, for a sum over anchors, holds none.
    """
    label_distances = check_batch(embeddings, label_distances)
    with torch.autocast(embeddings.device.type, enabled=False):
        distances: Tensor = _Distances.apply(points(embeddings, normalize=normalize), len(label_distances))
    labels, used = usable(label_distances.to(distances.dtype))
    return Pairs(distances, labels, used)


def mean_of(values: Tensor, counts: Tensor) -> RowMean:
    """The mean of terms: ``values`` are their sums, (A,) or finer, ``counts`` (A,) the terms of each anchor."""
    return RowMean(values.sum() / counts.sum().clamp(min=1), counts)


def check_batch(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    """The label distances, after checks of shapes and types and that no used one is NaN or negative.

    They have a number on the diagonal then. They need not be symmetric: a label distance may be declared asymmetric.
    """
    check_matrix("embeddings", embeddings)
    label_distances = as_block(label_distances, embeddings.device)
    check_matrix("label_distances", label_distances, "(A, B)")
    anchors, items = label_distances.shape
    if items != len(embeddings):
        got = f"Got {items} instead."
        raise UserError(f"The 'label_distances' must have one column per embedding, {len(embeddings)}. {got}")
    if not 1 <= anchors <= items or items < 2:
        got = f"Got A={anchors}, B={items} instead."
        raise UserError(f"The anchors are the first A of B items: 1 <= A <= B and B >= 2. {got}")
    if bool(label_distances.amin() >= 0):  # the usual batch is told by this one pass; NaN is not
        return label_distances
    numbers = label_distances.clone()
    numbers.diagonal().zero_()  # left out, whatever stands there
    bad = ~(numbers >= 0)
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise UserError(
            "The 'label_distances' must be numbers of at least 0, or infinite for no comparison. Got "
            f"{numbers[row, column].item():g} between items {row} and {column} of the batch ({int(bad.sum())} "
            "such in all); mend the label distance, or leave the pair out by infinity."
        )
    return numbers


def as_block(label_distances: Tensor | NDArray[Any], device: torch.device) -> Tensor:
    """Label distances as a tensor: an array, as label distances give it, goes to the device of the embeddings."""
    return label_distances if isinstance(label_distances, Tensor) else torch.tensor(label_distances, device=device)


def check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    """Check that a mask is a bool tensor of ``shape`` (A, B)."""
    if mask.dtype != torch.bool or mask.shape != shape:
        got = f"Got shape {tuple(mask.shape)}, {mask.dtype} instead."
        raise UserError(f"The {name!r} must be a bool tensor (A, B) = {tuple(shape)}. {got}")


def masked(label_distances: Tensor, mask: Tensor | None) -> Tensor:
    """Label distances (A, B) with infinity, which leaves a pair out, where a mask (A, B) bool is False."""
    if mask is None:
        return label_distances
    label_distances = as_block(label_distances, mask.device)
    check_matrix("label_distances", label_distances, "(A, B)")
    check_mask("mask", mask, label_distances.shape)
    return label_distances.masked_fill(~mask, torch.inf)


def comparable(label_distances: Tensor, first_anchor: int = 0) -> Tensor:
    """The pairs a loss may use, (A, B) bool, of rows that begin with an anchor: none with itself, none infinite."""
    used = label_distances < torch.inf  # NaN is not
    used.diagonal(first_anchor).fill_(False)
    return used


def usable(label_distances: Tensor, first_anchor: int = 0) -> tuple[Tensor, Tensor]:
    """Label distances (A, B) with 0 where a pair may not be used, and which may, (A, B) bool; see ``comparable``."""
    labels = label_distances.nan_to_num(nan=0, posinf=0)
    labels.diagonal(first_anchor).zero_()
    return labels, comparable(label_distances, first_anchor)


def ones(used: Tensor, like: Tensor) -> Tensor:
    """1 for pairs that are used and 0 for others, to multiply by: several times as fast as ``torch.where``."""
    return used.view(torch.uint8).to(like)


class _Distances(torch.autograd.Function):
    """Euclidean distances (A, B) of the first A points to all."""

    @staticmethod
    def forward(ctx: Any, full: Tensor, anchors: int) -> Tensor:  # noqa: ANN401 - torch has no type
        distances, *precise = squared_distances(full, *centred(full), slice(0, anchors))
        ctx.save_for_backward(full, distances.sqrt_(), *precise)
        return distances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        full, distances, *precise = ctx.saved_tensors
        gradient = torch.zeros_like(full)
        add_gradient(gradient, full, slice(0, len(slopes)), slopes_of_distances(slopes, distances), *precise)
        return gradient, None


def slopes_of_distances(slopes: Tensor, distances: Tensor) -> Tensor:
    """From slopes in Euclidean distances to slopes in squared ones; 0 at distance 0, as torch's norm has it."""
    halves = torch.div(distances.new_tensor(0.5), distances)  # 1 / (2 D), in one pass
    return halves.nan_to_num_(nan=torch.nan, posinf=0).mul_(slopes)


def centred(full: Tensor) -> tuple[Tensor, Tensor]:
    """Points (B, D) around 0, where the product form of distances loses fewer digits, and their squared norms (B,)."""
    shifted = full - full.mean(dim=0)
    return shifted, shifted.square().sum(dim=1)


def squared_distances(full: Tensor, shifted: Tensor, norms: Tensor, block: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Squared distances of the block's anchors to all, (R, B), and what ``add_gradient`` needs of how they were made.

    That is the points around 0, in float64 where float32 loses digits, and the pairs (C, 2), row in block and column,
    which so nearly coincide that theirs are made of their differences.
    """
    single = full.dtype != torch.float64
    squared, near = _products(shifted, norms, block, NEAR if single else COINCIDENT)
    if near is None:
        return squared, shifted, norms.new_empty((0, 2), dtype=torch.int64)
    if single:  # on the processor where the device has no float64
        shifted, norms = centred(full.to("cpu" if full.device.type == "mps" else full.device, torch.float64))
        squared, near = _products(shifted, norms, block, COINCIDENT)
        squared = squared.to(full)
    pairs = full.new_empty((0, 2), dtype=torch.int64) if near is None else near.nonzero().to(full.device)
    for rows, columns, differences in _differences(full, block, pairs):
        squared[rows, columns] = differences.square().sum(dim=1)
    return squared, shifted, pairs


def _differences(full: Tensor, block: slice, pairs: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows, columns and f_a - f_i of the pairs, in parts of 16 MiB; of the points as given, which no shift rounded."""
    at_once = max(1, (16 << 20) // (full.element_size() * max(1, full.shape[1])))
    for rows, columns in (part.T for part in torch.split(pairs, at_once)):
        yield rows, columns, full[rows + block.start] - full[columns]


def _products(shifted: Tensor, norms: Tensor, block: slice, limit: float) -> tuple[Tensor, Tensor | None]:
    """Squared distances (R, B) by products, and which are below ``limit`` times the two norms, (R, B) bool or None."""
    scale = norms[block, None] + norms  # (R, B)
    squared = torch.addmm(scale, shifted[block], shifted.T, alpha=-2)
    excess = torch.sub(squared, scale, alpha=limit)
    excess.diagonal(block.start).fill_(1)
    squared.diagonal(block.start).zero_()
    return squared, None if bool(excess.amin() >= 0) else excess < 0


def add_gradient(gradient: Tensor, full: Tensor, block: slice, slopes: Tensor, shifted: Tensor, pairs: Tensor) -> None:
    """Add 2 slope (f_a - f_i) of the block's pairs to anchor a, and its opposite to item i, in ``gradient`` (B, D).

    ``slopes`` (R, B) are in squared distances; ``shifted`` and ``pairs`` are what ``squared_distances`` gave with them.
    """
    for rows, columns, differences in _differences(full, block, pairs):
        pull = differences.mul_(2 * slopes[rows, columns, None])
        gradient.index_add_(0, rows + block.start, pull).index_add_(0, columns, pull, alpha=-1)
    if len(pairs):
        slopes = slopes.index_put((pairs[:, 0], pairs[:, 1]), slopes.new_zeros(()))
    slopes = slopes.to(shifted)
    if len(slopes) == len(shifted):  # every item is an anchor of this block: one product does for both parts
        slopes = slopes + slopes.T
        of_all = torch.addmm(slopes.sum(dim=1, keepdim=True) * shifted, slopes, shifted, beta=2, alpha=-2)
        gradient += of_all.to(gradient)
        return
    anchors = shifted[block]
    of_anchors = torch.addmm(slopes.sum(dim=1, keepdim=True) * anchors, slopes, shifted, beta=2, alpha=-2)
    gradient[block] += of_anchors.to(gradient)
    of_items = torch.addmm(slopes.sum(dim=0)[:, None] * shifted, slopes.T, anchors, beta=2, alpha=-2)
    gradient += of_items.to(gradient)
