"""Losses that are a sum over anchors of some function of the anchor's row of squared distances, with its gradient.

Rows are taken a block at a time and the gradient is gathered on the way, so that no (A, B) matrix is held: what the
backward pass keeps is (B, D). A loss says, for a block of rows, the value of each row (``mean_over_pairs``; autograd
finds the slopes) or its slope in every squared distance as well (``mean_over_rows``: for counts, which autograd does
not see through, and where it is faster). Not for losses in which rows meet other than by their sum (rkd_distance.py).
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
        full = points(embeddings, normalize=normalize)
        if block_bytes is None:
            block_bytes = 4 << 20 if full.device.type == "cpu" else 256 << 20
        rows = max(1, min(anchors, block_bytes // (full.element_size() * len(full))))
        loss, counts = _MeanOverRows.apply(full, anchors, row_terms, rows)
        return RowMean(loss, counts)


def mean_over_pairs(
    embeddings: Tensor,
    label_distances: Tensor,
    row_values: Callable[[Pairs], tuple[Tensor, Tensor]],
    *,
    normalize: bool,
) -> RowMean:
    """Check a batch and take the mean of a function of the anchors' pairs, written in plain torch.

    Args:
        embeddings: (B, D). Computed with in at least float32, whatever autocast says.
        label_distances: (A, B).
        row_values: Gives the value (R,) of each anchor, a sum over its terms, and how many terms those are (R,), of
            the pairs of R anchors, with Euclidean distances.
        normalize: L2-normalise the embeddings first.
    """
    label_distances = check_batch(embeddings, label_distances)
    learns = embeddings.requires_grad and torch.is_grad_enabled()

    def row_terms(squared: Tensor, rows: slice) -> RowTerms:
        labels, distances = label_distances[rows].to(squared.dtype), squared.sqrt_().requires_grad_(learns)
        with torch.set_grad_enabled(learns):
            values, counts = row_values(Pairs(distances, *usable(labels, rows.start)))
            slopes = torch.autograd.grad(values.sum(), distances)[0] if learns else distances
        return RowTerms(values.detach(), counts, slopes_of_distances(slopes, distances.detach()))

    in_cache = 1 << 20 if embeddings.device.type == "cpu" else 64 << 20  # of a block of which autograd makes many
    return mean_over_rows(embeddings, len(label_distances), row_terms, normalize=normalize, block_bytes=in_cache)


class _MeanOverRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch gives it no public type
        full: Tensor,
        anchors: int,
        row_terms: Callable[[Tensor, slice], RowTerms],
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        shifted, norms = centred(full)
        gradient = torch.zeros_like(shifted) if ctx.needs_input_grad[0] else None
        total, counts = norms.new_zeros(()), []
        for start in range(0, anchors, rows):
            block = slice(start, min(start + rows, anchors))
            squared, *precise = squared_distances(full, shifted, norms, block)
            terms = row_terms(squared, block)
            total += terms.values.sum()
            counts.append(terms.counts)
            if gradient is not None:
                add_gradient(gradient, full, block, terms.slopes, *precise)
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
