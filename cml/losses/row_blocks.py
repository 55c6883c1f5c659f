"""Losses that are a sum over anchors of some function of the anchor's row of squared distances, with its gradient.

Rows are taken a block at a time and the gradient is gathered on the way: no (A, B) matrix is held, and the backward
pass keeps (B, D) and the label distances. A loss gives, for a block of rows, the value of each row
(``mean_over_pairs``; autograd finds the slopes), or its slopes in the squared distances too (``mean_over_rows``: for
counts, which autograd does not see through, and where it is faster). Differentiated twice, all rows are one block and
autograd differentiates the values. Losses in which rows meet other than by their sum do not fit here
(``rkd_distance.py``).

One head has embeddings (B, D) and H heads have (H, B, D). Heads share the label distances, and what a loss computes of
these alone it computes once; its settings may be one number, or a tensor (H, 1, 1) with one per head.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cml.losses.closed_form import apply_closed_form, plain_gradient
from cml.losses.embedding_checks import embedding_points
from cml.losses.own_column import comparable_pairs
from cml.losses.pairs import Pairs, check_batch, usable_labels
from cml.losses.row_mean import RowMean
from cml.losses.squared_distances import (
    add_gradient,
    center_points,
    plain_distances,
    plain_squared_distances,
    slopes_of_distances,
    squared_distances,
)

Constant = float | Tensor  # a setting of a formula: one number, or (H, 1, 1) with one of each of H heads


def plus(tensor: Tensor, constant: Constant) -> Tensor:
    """``tensor`` plus a constant: in place for one number, as allocating a block costs more than the sum."""
    return tensor + constant if isinstance(constant, Tensor) else tensor.add_(constant)


def times(tensor: Tensor, constant: Constant) -> Tensor:
    """``tensor`` times a constant: in place for one number, as allocating a block costs more than the product."""
    return tensor * constant if isinstance(constant, Tensor) else tensor.mul_(constant)


def over(tensor: Tensor, constant: Constant) -> Tensor:
    """``tensor`` over a constant: in place for one number, as allocating a block costs more than the quotient."""
    return tensor / constant if isinstance(constant, Tensor) else tensor.div_(constant)


class RowTerms(NamedTuple):
    """What a loss finds in a block of R anchors.

    Attributes:
        values: (..., R) value of each row, a sum over its terms.
        counts: (..., R) how many terms (1 if the row's value is a mean already); 0 leaves the anchor out.
        slopes: (..., R, B) derivative of each row's value in each of its squared distances; 0 where a pair is not used.
    """

    values: Tensor
    counts: Tensor
    slopes: Tensor


def mean_over_rows(
    embeddings: Tensor,
    label_distances: Tensor,
    row_terms: Callable[[Tensor, Tensor, Tensor], RowTerms],
    *,
    normalize: bool,
    block_bytes: int | None = None,
) -> RowMean:
    """Check a batch and take the mean of a function of the anchors' rows of squared distances, with its gradient.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads. Computed with in at least float32, also under autocast.
        label_distances: (A, B).
        row_terms: Called with the squared Euclidean distances (..., R, B) of a block of anchors, which it may
            overwrite, their label distances (R, B), which it must leave as they are, and the pairs that may be used
            (R, B), which it may overwrite. An anchor's distance to itself is 0. Where torch follows the squared
            distances (``is_followed``), the values must be differentiable in them, and the slopes are not used.
        normalize: Whether to L2-normalise the embeddings first.
        block_bytes: Size of one block of distances. ``None``: 4 MiB on the CPU, which its cache holds, and 256 MiB on
            other devices.

    Returns:
        The loss, and the number of terms of each anchor.

    Raises:
        UserError: see ``check_batch``.
    """
    label_distances = check_batch(embeddings, label_distances)

    def block_terms(squared: Tensor, rows: slice) -> RowTerms:
        labels = label_distances[rows].to(squared.dtype)
        return row_terms(squared, labels, comparable_pairs(labels, rows.start))

    def plain_terms(squared: Tensor) -> tuple[Tensor, Tensor]:
        values, counts, _ = block_terms(squared, slice(0, len(label_distances)))
        return values, counts

    if block_bytes is None:
        block_bytes = 4 << 20 if embeddings.device.type == "cpu" else 256 << 20
    return _mean_over_blocks(embeddings, len(label_distances), block_terms, plain_terms, normalize, block_bytes)


def mean_over_pairs(
    embeddings: Tensor,
    label_distances: Tensor,
    row_values: Callable[[Pairs], tuple[Tensor, Tensor]],
    *,
    normalize: bool,
) -> RowMean:
    """Check a batch and take the mean of a function of the anchors' pairs, written in plain torch.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads. Computed with in at least float32, also under autocast.
        label_distances: (A, B).
        row_values: Called with the pairs of R anchors, with Euclidean distances. It gives the value (..., R) of each
            anchor, a sum over its terms, and how many terms those are (R,).
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The loss, and the number of terms of each anchor.

    Raises:
        UserError: see ``check_batch``.
    """
    label_distances = check_batch(embeddings, label_distances)
    learns = embeddings.requires_grad and torch.is_grad_enabled()

    def block_terms(squared: Tensor, rows: slice) -> RowTerms:
        labels, distances = label_distances[rows].to(squared.dtype), squared.sqrt_().requires_grad_(learns)
        with torch.set_grad_enabled(learns):
            values, counts = row_values(Pairs(distances, *usable_labels(labels, rows.start)))
            slopes = torch.autograd.grad(values.sum(), distances)[0] if learns else distances
        return RowTerms(values.detach(), counts, slopes_of_distances(slopes, distances.detach()))

    def plain_terms(squared: Tensor) -> tuple[Tensor, Tensor]:
        return row_values(Pairs(plain_distances(squared), *usable_labels(label_distances.to(squared.dtype))))

    block_bytes = 1 << 20 if embeddings.device.type == "cpu" else 64 << 20  # of a block of which autograd makes many
    return _mean_over_blocks(embeddings, len(label_distances), block_terms, plain_terms, normalize, block_bytes)


_BlockTerms = Callable[[Tensor, slice], RowTerms]  # of a block of squared distances and its rows
_PlainTerms = Callable[[Tensor], tuple[Tensor, Tensor]]  # values and counts of all rows


def _mean_over_blocks(
    embeddings: Tensor,
    anchors: int,
    block_terms: _BlockTerms,
    plain_terms: _PlainTerms,
    normalize: bool,
    block_bytes: int,
) -> RowMean:
    def plain(points: Tensor) -> tuple[Tensor, Tensor]:
        values, counts = plain_terms(plain_squared_distances(points, anchors))
        return values.sum(dim=-1) / counts.sum(dim=-1).clamp(min=1), counts

    with torch.autocast(embeddings.device.type, enabled=False):
        full = embedding_points(embeddings, normalize=normalize)
        row_bytes = full.element_size() * full[..., 0].numel()
        rows = max(1, min(anchors, block_bytes // row_bytes))
        return RowMean(*apply_closed_form(_MeanOverBlocks, plain, full, anchors, block_terms, rows))


class _MeanOverBlocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type
        full: Tensor,
        plain: Callable[[Tensor], tuple[Tensor, Tensor]],
        anchors: int,
        block_terms: _BlockTerms,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        """The loss and the counts; the gradient is made on the way.

        Args:
            ctx: The context of torch.
            full: (..., B, D) the points.
            plain: The same of points by plain operations.
            anchors: A.
            block_terms: Gives the terms of a block of squared distances.
            rows: Anchors of a block.
        """
        shifted, norms = center_points(full)
        gradient = torch.zeros_like(shifted, memory_format=torch.contiguous_format) if ctx.needs_input_grad[0] else None
        total, counts = norms.new_zeros(full.shape[:-2]), []
        for start in range(0, anchors, rows):
            block = slice(start, min(start + rows, anchors))
            squared, precise, near = squared_distances(full, shifted, norms, block)
            terms = block_terms(squared, block)
            total += terms.values.sum(dim=-1)
            counts.append(terms.counts)
            if gradient is not None:
                add_gradient(gradient, full, block, terms.slopes, precise, near)
        all_counts = torch.cat(counts, dim=-1)
        number = all_counts.sum(dim=-1).clamp_(min=1)
        ctx.mark_non_differentiable(all_counts)
        if gradient is not None:
            ctx.save_for_backward(full, gradient.div_(number if number.ndim == 0 else number[..., None, None]))
            ctx.plain = plain
        return total / number, all_counts

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        full, gradient = ctx.saved_tensors
        slope = slopes[0]  # counts have no slope
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            return plain_gradient(lambda points: ctx.plain(points)[0], full, slope), None, None, None, None
        return gradient * slope[..., None, None], None, None, None, None
