"""Losses with a gradient in closed form: sums over anchors, a block of rows of squared distances at a time.

The gradient is gathered on the way, so that no (A, B) matrix is held; the backward pass keeps (B, D) and the label
distances. A loss gives its formula in plain torch (``anchor_blocks.py``), and for a block of rows the same values with
their slopes in the squared distances. A closed form is a number, which torch cannot differentiate again: where that is
asked for, by gradients of gradients (``create_graph=True``) or transforms of ``torch.func``, the plain formula takes
its place. ``torch.compile`` runs a closed form as it is, since its compiled loops and threads are no graph.

One head has embeddings (B, D) and H heads have (H, B, D). Heads share the label distances, and what a loss computes of
these alone it computes once; a setting may be one number, or a tensor (H, 1, 1) with one per head.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from cml.losses.anchor_blocks import AnchorMean, AnchorValues, plain_mean
from cml.losses.pairs import Pairs, check_batch, comparable_pairs, embedding_points, is_transformed, usable_labels
from cml.losses.squared_distances import (
    add_gradient,
    center_points,
    plain_distances,
    plain_squared_distances,
    slopes_of_distances,
    squared_distances,
)

_AUTOGRAD_BYTES = 64 << 20


class RowTerms(NamedTuple):
    """What a loss finds in a block of R anchors."""

    values: Tensor  # (..., R) value of each row, a sum over its terms
    counts: Tensor  # (R,) how many terms (1 if the row's value is a mean already); 0 leaves the anchor out
    # (..., R, B) derivative of each row's value in each of its squared distances; 0 where a pair is not used
    slopes: Tensor


# The terms of R anchors, of what ``AnchorValues`` takes: it may overwrite the squared distances and the used pairs, and
# must leave the label distances as they are.
AnchorSlopes = Callable[[Tensor, Tensor, Tensor], RowTerms]


def mean_over_rows(
    embeddings: Tensor,
    label_distances: Tensor,
    values: AnchorValues,
    slopes: AnchorSlopes,
    *,
    normalize: bool,
    look: bool = True,
    block_bytes: int | None = None,
) -> AnchorMean:
    """Check a batch and take the mean of a function of the anchors' rows of squared distances, with its gradient.

    An anchor's distance to itself is 0. ``block_bytes`` is the size of one block of distances: by default 4 MiB on the
    CPU, which its cache holds, and 256 MiB on other devices.
    """
    label_distances = check_batch(embeddings, label_distances, look=look)
    with torch.autocast(embeddings.device.type, enabled=False):
        points = embedding_points(embeddings, normalize=normalize, look=look)

        def plain(points: Tensor) -> AnchorMean:
            return plain_mean(points, label_distances, values)

        if is_transformed(points):
            return plain(points)
        if block_bytes is None:
            block_bytes = 4 << 20 if points.device.type == "cpu" else 256 << 20
        rows = max(1, block_bytes // (points.element_size() * points[..., 0].numel()))
        return AnchorMean(*_apply(_MeanOverBlocks)(points, plain, label_distances, slopes, rows))


def slopes_by_autograd(
    values: AnchorValues, squared: Tensor, labels: Tensor, used: Tensor, *, number_bytes: int
) -> RowTerms:
    """The terms of R anchors by autograd, where a loss has no faster way to its slopes: a few anchors at a time.

    ``number_bytes`` are the bytes that the formula takes of one tensor for each anchor.
    """
    parts = []
    anchors = torch.arange(squared.shape[-2], device=labels.device)
    for rows in torch.split(anchors, max(1, _AUTOGRAD_BYTES // number_bytes)):
        leaf = squared[..., rows, :].detach().requires_grad_()
        with torch.enable_grad():
            of_anchors, counts = values(leaf, labels[rows], used[rows])
            (slopes,) = torch.autograd.grad(of_anchors.sum(), leaf)
        parts.append(RowTerms(of_anchors.detach(), counts, slopes))
    return RowTerms(
        torch.cat([part.values for part in parts], dim=-1),
        torch.cat([part.counts for part in parts]),
        torch.cat([part.slopes for part in parts], dim=-2),
    )


def compare_by_closed_form(embeddings: Tensor, label_distances: Tensor, *, normalize: bool, look: bool) -> Pairs:
    """Check a batch and compute its distances (A, B), whose gradient is made by products and holds no differences."""
    label_distances = check_batch(embeddings, label_distances, look=look)
    with torch.autocast(embeddings.device.type, enabled=False):
        points, rows = embedding_points(embeddings, normalize=normalize, look=look), slice(0, len(label_distances))

        def plain(points: Tensor) -> Tensor:
            return plain_distances(plain_squared_distances(points, rows))

        distances = plain(points) if is_transformed(points) else _apply(_EuclideanDistances)(points, plain, rows)
    return Pairs(distances, *usable_labels(label_distances.to(distances.dtype)))


def _apply(function: type[torch.autograd.Function]) -> Any:  # noqa: ANN401 - torch has no type
    if torch.compiler.is_compiling():
        disable: Any = torch.compiler.disable  # not a decorator: its first use imports the whole compiler
        return disable(function.apply)
    return function.apply


def _plain_gradient(plain: Callable[[Tensor], Tensor], points: Tensor, slopes: Tensor) -> Tensor:
    """The gradient (..., B, D) of a plain formula, for slopes in its result, which torch can differentiate again."""
    with torch.enable_grad(), torch.autocast(points.device.type, enabled=False):
        value = plain(points)
        (gradient,) = torch.autograd.grad(value, points, slopes, create_graph=True, materialize_grads=True)
    return gradient


class _MeanOverBlocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type
        full: Tensor,
        plain: Callable[[Tensor], AnchorMean],
        label_distances: Tensor,
        row_terms: AnchorSlopes,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        """The loss and the counts of points (..., B, D); the gradient is made on the way."""
        shifted, norms = center_points(full)
        gradient = torch.zeros_like(shifted, memory_format=torch.contiguous_format) if ctx.needs_input_grad[0] else None
        total, counts, anchors = norms.new_zeros(full.shape[:-2]), [], len(label_distances)
        for start in range(0, anchors, rows):
            block = slice(start, min(start + rows, anchors))
            squared, precise, near = squared_distances(full, shifted, norms, block)
            labels = label_distances[block].to(squared.dtype)
            terms = row_terms(squared, labels, comparable_pairs(labels, start))
            total += terms.values.sum(dim=-1)
            counts.append(terms.counts)
            if gradient is not None:
                add_gradient(gradient, full, block, terms.slopes, precise, near)
        all_counts = torch.cat(counts)
        number = all_counts.sum().clamp_(min=1)
        ctx.mark_non_differentiable(all_counts)
        if gradient is not None:
            ctx.save_for_backward(full, gradient.div_(number))
            ctx.plain = plain
        return total / number, all_counts

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        full, gradient = ctx.saved_tensors
        slope = slopes[0]  # counts have no slope
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            return _plain_gradient(lambda points: ctx.plain(points).loss, full, slope), None, None, None, None
        return gradient * slope[..., None, None], None, None, None, None


class _EuclideanDistances(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type
        full: Tensor,
        plain: Callable[[Tensor], Tensor],
        rows: slice,
    ) -> Tensor:
        """The distances (..., A, B) of points (..., B, D)."""
        squared, shifted, near = squared_distances(full, *center_points(full), rows)
        distances = squared.sqrt_()
        ctx.save_for_backward(full, distances, shifted, near)
        ctx.plain = plain
        return distances

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        full, distances, shifted, near = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            return _plain_gradient(ctx.plain, full, slopes), None, None
        gradient = torch.zeros_like(full, memory_format=torch.contiguous_format)
        block = slice(0, slopes.shape[-2])
        with torch.autocast(full.device.type, enabled=False):
            add_gradient(gradient, full, block, slopes_of_distances(slopes, distances), shifted, near)
        return gradient, None, None
