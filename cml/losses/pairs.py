"""The pairs (anchor, item) of a batch: its checks, its mask, and the distances of its embeddings.

The first A items of a batch are its anchors. Row a of the label distances (A, B) holds those of anchor a to every item;
an anchor's own column is left out (``own_column.py``), and so is a pair whose label distance is infinite: it cannot be
compared.
"""

from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from cml.errors import UserError
from cml.losses.closed_form import check_no_vmap
from cml.losses.embedding_checks import check_matrix, embedding_points
from cml.losses.own_column import comparable_pairs, zero_own_column
from cml.losses.squared_distances import euclidean_distances


class Pairs(NamedTuple):
    """The pairs of a batch, or of a block of its anchors.

    Attributes:
        distances: (A, B) Euclidean distances of embeddings; (H, A, B) for H heads.
        labels: (A, B) label distances, 0 where a pair is not used.
        used: (A, B) bool, the pairs that a loss may use.
    """

    distances: Tensor
    labels: Tensor
    used: Tensor


def compare(embeddings: Tensor, label_distances: Tensor, *, normalize: bool) -> Pairs:
    """Check a batch and compute the distances of its embeddings, in at least float32, also under autocast.

    The gradient of a distance is exact even where two embeddings nearly coincide, and 0 where they do. Autograd holds
    several (A, B) matrices; ``row_blocks.mean_over_pairs``, for a sum over anchors, holds none.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The pairs.

    Raises:
        UserError: see ``check_batch``.
    """
    label_distances = check_batch(embeddings, label_distances)
    with torch.autocast(embeddings.device.type, enabled=False):
        distances = euclidean_distances(embedding_points(embeddings, normalize=normalize), len(label_distances))
    return Pairs(distances, *usable_labels(label_distances.to(distances.dtype)))


def check_batch(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    """Check shapes and types of a batch, and that no used label distance is NaN or negative.

    Label distances need not be symmetric: a label distance may be declared asymmetric.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B) numbers; integers are converted to the type of the embeddings.

    Returns:
        The label distances, with a number in the anchors' own columns.

    Raises:
        UserError: a tensor has another number of dimensions or type, B differs, A > B, B < 2, or a label distance is
            NaN or negative, or asks for a gradient.
    """
    if embeddings.ndim != 3 or not embeddings.is_floating_point():
        check_matrix("embeddings", embeddings)
    check_no_vmap("embeddings", embeddings)
    label_distances = as_block(label_distances, embeddings)
    check_matrix("label_distances", label_distances, "(A, B)")
    if label_distances.requires_grad and torch.is_grad_enabled():
        raise UserError(
            "The 'label_distances' must not require a gradient: a loss has gradients in the embeddings alone. Pass "
            "label_distances.detach() instead."
        )
    anchors, items = label_distances.shape
    if items != embeddings.shape[-2]:
        raise UserError(
            f"The 'label_distances' must have one column per embedding, {embeddings.shape[-2]}. Got {items} instead."
        )
    if not 1 <= anchors <= items or items < 2:
        got = f"Got A={anchors}, B={items} instead."
        raise UserError(f"The anchors are the first A of B items: 1 <= A <= B and B >= 2. {got}")
    if bool(label_distances.amin() >= 0):  # the usual batch passes by this one look; NaN does not
        return label_distances
    numbers = zero_own_column(label_distances.clone())  # left out, whatever it holds
    bad = ~(numbers >= 0)
    if bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise UserError(
            "The 'label_distances' must be numbers of at least 0, or infinite for no comparison. Got "
            f"{numbers[row, column].item():g} between items {row} and {column} of the batch ({int(bad.sum())} "
            "such in all); mend the label distance, or leave the pair out by infinity."
        )
    return numbers


def as_block(label_distances: Tensor | NDArray[Any], embeddings: Tensor) -> Tensor:
    """Label distances as a loss takes them.

    Args:
        label_distances: (A, B). An array, as ``pairwise`` gives it, goes to the device of the embeddings.
        embeddings: (B, D).

    Returns:
        The tensor; integers in the type of the embeddings, which is at least float32.
    """
    if not isinstance(label_distances, Tensor):
        label_distances = torch.tensor(label_distances, device=embeddings.device)
    is_number = label_distances.is_floating_point() or label_distances.is_complex()
    if is_number or label_distances.dtype == torch.bool:
        return label_distances
    return label_distances.to(torch.float64 if embeddings.dtype == torch.float64 else torch.float32)


def check_mask(name: str, mask: Tensor, shape: torch.Size) -> None:
    """Check that a mask is a bool tensor of a shape.

    Args:
        name: The argument's name, for the message.
        mask: The mask to check.
        shape: (A, B).

    Raises:
        UserError: it has another type or shape.
    """
    if mask.dtype != torch.bool or mask.shape != shape:
        got = f"Got shape {tuple(mask.shape)}, {mask.dtype} instead."
        raise UserError(f"The {name!r} must be a bool tensor (A, B) = {tuple(shape)}. {got}")


def mask_label_distances(embeddings: Tensor, label_distances: Tensor, mask: Tensor | None) -> Tensor:
    """Set label distances to infinity, which leaves a pair out, where a mask is False.

    Args:
        embeddings: (B, D).
        label_distances: (A, B).
        mask: (A, B) bool. ``None``: every pair may be used.

    Returns:
        (A, B).

    Raises:
        UserError: the mask or the label distances have another shape or type.
    """
    if mask is None:
        return label_distances
    label_distances = as_block(label_distances, embeddings)
    check_matrix("label_distances", label_distances, "(A, B)")
    check_mask("mask", mask, label_distances.shape)
    return label_distances.masked_fill(~mask, torch.inf)


def usable_labels(label_distances: Tensor, first_anchor: int = 0) -> tuple[Tensor, Tensor]:
    """Label distances with 0 where a pair may not be used, and the mask of the pairs that may.

    Args:
        label_distances: (R, B), rows of consecutive anchors.
        first_anchor: The item that the first row belongs to.

    Returns:
        The label distances (R, B), and the mask (R, B) bool of ``comparable_pairs``.
    """
    labels = zero_own_column(label_distances.nan_to_num(nan=0, posinf=0), first_anchor)
    return labels, comparable_pairs(label_distances, first_anchor)


def as_numbers(used: Tensor, like: Tensor) -> Tensor:
    """1 for used pairs and 0 for others, of the type of ``like``: to multiply by it is faster than ``torch.where``."""
    return used.view(torch.uint8).to(like)
