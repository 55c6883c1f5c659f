"""Losses that are a sum over anchors of some function of the anchor's row of squared distances, with its gradient.

The gradient is gathered block by block of rows: no (A, B) matrix is held, and the backward pass keeps (B, D). A loss
gives the value of each row of a block (``mean_over_pairs``; autograd finds the slopes) or its slopes in the squared
distances too (``mean_over_rows``: for counts, which autograd does not see through, and where it is faster).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cml.losses.embeddings import points
from cml.losses.pairs import (
    Pairs,
    RowMean,
    add_gradient,
    centred,
    check_batch,
    comparable,
    slopes_of_distances,
    squared_distances,
    usable,
)


class RowTerms(NamedTuple):
    """What a loss says about a block of R anchors."""

    values: Tensor  # (R,) value of each row, a sum over its terms
    counts: Tensor  # (R,) how many terms (1 if the row's value is a mean already); 0 leaves the anchor out
    slopes: Tensor  # (R, B) derivative of each row's value in each of its squared distances; 0 where a pair is not used


def mean_over_rows(
    embeddings: Tensor,
    label_distances: Tensor,
    row_terms: Callable[[Tensor, Tensor, Tensor], RowTerms],
    *,
    normalize: bool,
    block_bytes: int | None = None,
) -> RowMean:
    """Check a batch and take the mean of a function of the anchors' rows of squared distances, with its gradient.

    ``row_terms`` is given squared Euclidean distances (R, B), label distances, which it must leave as they are, and the
    pairs that may be used. A block has ``block_bytes``, by default what a cache holds, or 256 MiB on other devices.
    """
    label_distances = check_batch(embeddings, label_distances)

    def of_block(squared: Tensor, rows: slice) -> RowTerms:
        labels = label_distances[rows].to(squared.dtype)
        return row_terms(squared, labels, comparable(labels, rows.start))

    if block_bytes is None:
        block_bytes = 4 << 20 if embeddings.device.type == "cpu" else 256 << 20
    return _mean(embeddings, len(label_distances), of_block, normalize, block_bytes)


def mean_over_pairs(
    embeddings: Tensor,
    label_distances: Tensor,
    row_values: Callable[[Pairs], tuple[Tensor, Tensor]],
    *,
    normalize: bool,
) -> RowMean:
    """Check a batch and take the mean of a function of the anchors' pairs, written in plain torch.

    ``row_values`` gives the value of each of R anchors, a sum over its terms, and how many terms those are: (R,) each.
    """
    label_distances = check_batch(embeddings, label_distances)
    learns = embeddings.requires_grad and torch.is_grad_enabled()

    def of_block(squared: Tensor, rows: slice) -> RowTerms:
        labels, distances = label_distances[rows].to(squared.dtype), squared.sqrt_().requires_grad_(learns)
        with torch.set_grad_enabled(learns):
            values, counts = row_values(Pairs(distances, *usable(labels, rows.start)))
            slopes = torch.autograd.grad(values.sum(), distances)[0] if learns else distances
        return RowTerms(values.detach(), counts, slopes_of_distances(slopes, distances.detach()))

    in_cache = 1 << 20 if embeddings.device.type == "cpu" else 64 << 20  # of a block of which autograd makes many
    return _mean(embeddings, len(label_distances), of_block, normalize, in_cache)


Terms = Callable[[Tensor, slice], RowTerms]  # of a block of squared distances and its rows


def _mean(embeddings: Tensor, anchors: int, terms: Terms, normalize: bool, block_bytes: int) -> RowMean:
    with torch.autocast(embeddings.device.type, enabled=False):
        full = points(embeddings, normalize=normalize)
        rows = max(1, min(anchors, block_bytes // (full.element_size() * len(full))))
        return RowMean(*_MeanOverRows.apply(full, anchors, terms, rows))


class _MeanOverRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, full: Tensor, anchors: int, terms: Terms, rows: int) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        shifted, norms = centred(full)
        gradient = torch.zeros_like(shifted) if ctx.needs_input_grad[0] else None
        total, counts = norms.new_zeros(()), []
        for start in range(0, anchors, rows):
            block = slice(start, min(start + rows, anchors))
            squared, *precise = squared_distances(full, shifted, norms, block)
            found = terms(squared, block)
            total += found.values.sum()
            counts.append(found.counts)
            if gradient is not None:
                add_gradient(gradient, full, block, found.slopes, *precise)
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
