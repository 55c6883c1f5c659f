"""Losses that are a sum over anchors of some function of the anchor's row of squared distances.

Such a loss says, for a block of rows, the value of each row and its slope in every squared distance. This file makes
the rest: the distances, the gradient in the embeddings and the memory bound. Rows are taken a block at a time and
the gradient is gathered on the way, so that no (A, B) matrix is held: what the backward pass keeps is (B, D).
Not for losses that tie different anchors' rows together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cml.losses.label_distance_loss import comparable

# A squared distance below this part of the two squared norms is taken from the difference of the two embeddings: in
# the form |a|^2 + |b|^2 - 2ab it would have lost most of its digits, and a gradient of 1 / distance would be noise.
CLOSE = 1e-4


class RowTerms(NamedTuple):
    """What a loss says about a block of R anchors.

    Attributes:
        values: (R,) value of each row, a sum over its terms.
        counts: (R,) how many terms (1 if the row's value is a mean already); 0 leaves the anchor out.
        slopes: (R, B) derivative of each row's value in each of its squared distances; 0 where a pair is not used.
    """

    values: Tensor
    counts: Tensor
    slopes: Tensor


class RowMean(NamedTuple):
    """A loss and what it is the mean of.

    Attributes:
        loss: Scalar, sum of the values / sum of the counts; 0 if there is no term.
        counts: (A,) terms of each anchor.
    """

    loss: Tensor
    counts: Tensor


def used_labels(label_distances: Tensor, mask: Tensor | None, rows: slice, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A block of rows of the label distances, 0 where a pair is not used, and which pairs are: (R, B) each."""
    labels = label_distances[rows].to(dtype)
    used = comparable(labels, rows.start)
    if mask is not None:
        used &= mask[rows]
    return labels.where(used, 0), used


def slopes_of_distances(slopes: Tensor, distances: Tensor) -> Tensor:
    """From slopes in Euclidean distances (R, B) to slopes in squared ones; 0 at distance 0, as torch's norm has it."""
    return torch.where(distances > 0, slopes / distances.mul(2), 0)


def mean_over_rows(
    embeddings: Tensor,
    anchors: int,
    row_terms: Callable[[Tensor, slice], RowTerms],
    *,
    normalize: bool,
    block_bytes: int | None = None,
) -> RowMean:
    """Mean of a function of the anchors' rows of squared distances, with its gradient.

    Args:
        embeddings: (B, D). Computed with in at least float32, whatever autocast says.
        anchors: A, the first A embeddings are the anchors.
        row_terms: Called with the squared Euclidean distances of a block of anchors, (R, B), and the block's rows.
            It may overwrite what it is given. An anchor's distance to itself is 0.
        normalize: L2-normalise the embeddings first.
        block_bytes: Size of one (R, B) block. ``None``: what stays in a processor's cache, or 256 MiB on other devices.

    Returns:
        The loss, differentiable once, and the number of terms of each anchor.
    """
    with torch.autocast(embeddings.device.type, enabled=False):
        full = embeddings if embeddings.dtype == torch.float64 else embeddings.float()
        if normalize:
            full = torch.nn.functional.normalize(full, dim=1)
        if block_bytes is None:
            block_bytes = 4 << 20 if full.device.type == "cpu" else 256 << 20
        rows = max(1, min(anchors, block_bytes // (full.element_size() * len(full))))
        loss, counts = _MeanOverRows.apply(full, anchors, row_terms, rows)
        return RowMean(loss, counts)


class _MeanOverRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives it no public type
        embeddings: Tensor,
        anchors: int,
        row_terms: Callable[[Tensor, slice], RowTerms],
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        shifted = embeddings - embeddings.mean(dim=0)  # distances stay, the product form loses fewer digits
        norms = shifted.square().sum(dim=1)  # (B,)
        gradient = torch.zeros_like(shifted) if ctx.needs_input_grad[0] else None
        total, counts = norms.new_zeros(()), []
        for start in range(0, anchors, rows):
            block = slice(start, min(start + rows, anchors))
            squared, pairs = _squared_distances(embeddings, shifted, norms, block)
            terms = row_terms(squared, block)
            total += terms.values.sum()
            counts.append(terms.counts)
            if gradient is not None:
                _add_gradient(gradient, embeddings, shifted, block, terms.slopes, pairs)
        number = torch.cat(counts)
        scale = 1 / max(int(number.sum()), 1)
        ctx.mark_non_differentiable(number)
        if gradient is not None:
            ctx.save_for_backward(gradient.mul_(scale))
        return total * scale, number

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        (gradient,) = ctx.saved_tensors
        return gradient * grad_loss, None, None, None


def _squared_distances(embeddings: Tensor, shifted: Tensor, norms: Tensor, block: slice) -> tuple[Tensor, Tensor]:
    """Squared distances of the block's anchors to all, (R, B), and the close pairs, (C, 2) row in block and column."""
    scale = norms[block, None] + norms  # (R, B)
    squared = torch.addmm(scale, shifted[block], shifted.T, alpha=-2)
    excess = torch.sub(squared, scale, alpha=CLOSE)
    excess.diagonal(block.start).fill_(1)
    squared.diagonal(block.start).zero_()
    if bool(excess.amin() >= 0):  # the usual case: looking for close pairs costs more than knowing of none
        return squared, norms.new_empty((0, 2), dtype=torch.int64)
    pairs = (excess < 0).nonzero()
    for part in _parts(pairs, embeddings):
        squared[part[:, 0], part[:, 1]] = _differences(embeddings, block, part).square().sum(dim=1)
    return squared, pairs


def _add_gradient(
    gradient: Tensor, embeddings: Tensor, shifted: Tensor, block: slice, slopes: Tensor, pairs: Tensor
) -> None:
    """Add the block's part: sum over pairs of 2 slope (f_a - f_i) to anchor a, and its opposite to item i."""
    for part in _parts(pairs, embeddings):
        rows, columns = part[:, 0], part[:, 1]
        pull = _differences(embeddings, block, part).mul_(2 * slopes[rows, columns, None])
        gradient.index_add_(0, rows + block.start, pull)
        gradient.index_add_(0, columns, pull, alpha=-1)
    if len(pairs):
        slopes[pairs[:, 0], pairs[:, 1]] = 0
    if len(slopes) == len(shifted):  # every item is an anchor of this block: one product does for both parts
        slopes = slopes + slopes.T
        gradient.addcmul_(slopes.sum(dim=1, keepdim=True), shifted, value=2).addmm_(slopes, shifted, alpha=-2)
        return
    anchors = shifted[block]
    gradient[block].addcmul_(slopes.sum(dim=1, keepdim=True), anchors, value=2).addmm_(slopes, shifted, alpha=-2)
    gradient.addcmul_(slopes.sum(dim=0)[:, None], shifted, value=2).addmm_(slopes.T, anchors, alpha=-2)


def _differences(embeddings: Tensor, block: slice, pairs: Tensor) -> Tensor:
    """f_a - f_i of the pairs, (C, D); of the embeddings as given, for the shift has rounded them."""
    return embeddings[pairs[:, 0] + block.start] - embeddings[pairs[:, 1]]


def _parts(pairs: Tensor, embeddings: Tensor) -> tuple[Tensor, ...]:
    """The close pairs in parts whose differences take 16 MiB; none if there are no pairs."""
    at_once = max(1, (16 << 20) // (embeddings.element_size() * max(1, embeddings.shape[1])))
    return torch.split(pairs, at_once) if len(pairs) else ()
