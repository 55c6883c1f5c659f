"""The pairs (anchor, item) of a batch, as losses take them: checked, in at least float32, without what is left out.

The first A items of a batch are its anchors. Row a of the label distances (A, B) holds those of anchor a to every item.
An anchor's own column is left out, and so is a pair whose label distance is infinite: it cannot be compared. Row a
belongs to item a, so the own columns are the diagonal; of a block of rows that begins at anchor ``first``, they are the
diagonal shifted by it.
"""

import warnings
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._C import _functorch
from torch.nn import functional

from cml.distances.matrix_check import DIAGONAL, SIMILARITIES, find_odd_matrix
from cml.errors import ImplausibleData, UserError

_FEWEST_ANCHORS = 8  # of fewer, an order that looks odd may be chance
_NORMALIZE_EPS = 1e-12  # torch's own


class Pairs(NamedTuple):
    """The pairs of a batch, or of a block of its anchors."""

    # (A, B) Euclidean distances of embeddings, or their squares where the loss asks for these; (H, A, B) for H heads
    distances: Tensor
    labels: Tensor  # (A, B) label distances, 0 where a pair is not used
    used: Tensor  # (A, B) bool, the pairs that a loss may use


def is_transformed(tensor: Tensor) -> bool:
    """Whether a transform of ``torch.func`` (grad, jvp, hessian, ...) follows a tensor."""
    return not torch.compiler.is_compiling() and _functorch.is_functorch_wrapped_tensor(tensor)


def unwrap(tensor: Tensor) -> Tensor:
    """The numbers of a tensor, without the transforms of ``torch.func`` that follow it: they end before a loss does."""
    while is_transformed(tensor):
        tensor = _functorch.get_unwrapped(tensor)
    return tensor


def check_no_vmap(name: str, tensor: Tensor) -> None:
    """Refuse a tensor that is one of many under ``torch.func.vmap``."""
    while is_transformed(tensor):
        inner = _functorch.get_unwrapped(tensor)  # torch.func.debug_unwrap came with torch 2.6
        if inner.ndim > tensor.ndim:
            raise UserError(
                f"A loss does not run under torch.func.vmap, as it checks the numbers of a batch. Got {name!r} of many "
                "batches at once; call the loss for one batch after the other."
            )
        tensor = inner


def check_matrix(name: str, tensor: Tensor, shape: str = "(B, D)") -> None:
    """Check that a tensor is a floating-point matrix, whose two sizes are called as in ``shape``."""
    check_no_vmap(name, tensor)
    if tensor.ndim != 2 or not tensor.is_floating_point():
        got = f"Got shape {tuple(tensor.shape)}, {tensor.dtype} instead."
        raise UserError(f"The {name!r} must be a floating-point tensor {shape}. {got}")


def in_full(tensor: Tensor) -> Tensor:
    """The tensor in at least float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def rescale_rows(tensor: Tensor) -> Tensor:
    """Multiply each row (..., D) by a power of two, so that L2-normalisation neither overflows nor loses digits.

    A row of zeros stays one. Its gradient through ``normalize`` is the one that it would have at length 1.
    """
    full = in_full(tensor)
    largest = full.detach().abs().amax(dim=-1, keepdim=True)
    return full * torch.exp2(-largest.log2().floor().clamp(-120, 120)).where(largest > 0, _NORMALIZE_EPS)


def unit_rows(tensor: Tensor) -> Tensor:
    """L2-normalise the rows of (..., D), in at least float32."""
    return functional.normalize(rescale_rows(tensor), dim=-1, eps=_NORMALIZE_EPS)


def embedding_points(embeddings: Tensor, *, normalize: bool, look: bool = True) -> Tensor:
    """The points whose distances a loss measures: embeddings (..., B, D) in at least float32, normalised or not.

    ``look`` checks, of points that are not normalised, that their squares fit the type.
    """
    if normalize:
        return unit_rows(embeddings)
    full = in_full(embeddings)
    if not look:
        return full
    limits = torch.finfo(full.dtype)
    least, most = 1e4 * limits.tiny**0.5, limits.max**0.5 / 1e4
    for largest in map(float, full.detach().abs().amax(dim=(-2, -1)).flatten()):  # tolist fails under torch 2.4's func
        if 0 < largest < least or most < largest < float("inf"):
            raise UserError(
                f"The largest number of the embeddings must be in {least:.0e}..{most:.0e} or 0, for their squares to "
                f"fit {str(full.dtype).removeprefix('torch.')}. Got {largest:.3g} instead: the network has "
                f"{'diverged' if largest > 1 else 'collapsed'}; take a lower learning rate or a loss that normalises "
                "them."
            )
    return full


def as_block(label_distances: Tensor | NDArray[Any], embeddings: Tensor) -> Tensor:
    """Label distances (A, B) as a tensor on the device of the embeddings; integers in at least float32."""
    if not isinstance(label_distances, Tensor):
        label_distances = torch.tensor(label_distances, device=embeddings.device)
    is_number = label_distances.is_floating_point() or label_distances.is_complex()
    if is_number or label_distances.dtype == torch.bool:
        return label_distances
    return label_distances.to(torch.float64 if embeddings.dtype == torch.float64 else torch.float32)


def check_batch(embeddings: Tensor, label_distances: Tensor, *, look: bool = True) -> Tensor:
    """Check shapes and types of a batch, and with ``look`` its numbers: none NaN or negative, no similarities.

    Label distances need not be symmetric: a label distance may be declared asymmetric. Returns them, with a number in
    the anchors' own columns.
    """
    if embeddings.ndim != 3 or not embeddings.is_floating_point():
        check_matrix("embeddings", embeddings)
    check_no_vmap("embeddings", embeddings)
    label_distances = as_block(label_distances, embeddings)
    items = embeddings.shape[-2]
    if label_distances.shape[:1] == (items,) and label_distances.shape[1:].numel() < items:
        size = " x ".join(map(str, label_distances.shape))
        raise UserError(
            f"The 'label_distances' must be a matrix with one column per embedding, {items}. Got {size} numbers, which "
            "look like labels. Pass the distances between them: with distance = cml.distances.get('euclidean') and "
            "encoded = distance.encode(labels), distance.pairwise(encoded, encoded)."
        )
    check_matrix("label_distances", label_distances, "(A, B)")
    if label_distances.requires_grad and torch.is_grad_enabled():
        raise UserError(
            "The 'label_distances' must not require a gradient: only embeddings get one. Pass "
            "label_distances.detach() instead."
        )
    anchors, columns = label_distances.shape
    if columns != items:
        raise UserError(f"The 'label_distances' must have one column per embedding, {items}. Got {columns} instead.")
    if not 1 <= anchors <= items or items < 2:
        got = f"Got A={anchors}, B={items} instead."
        raise UserError(f"The anchors are the first A of B items: 1 <= A <= B and B >= 2. {got}")
    if look:
        least, largest = map(float, label_distances.detach().aminmax())
        if least >= 0 and float(label_distances.detach().diagonal().amax()) <= DIAGONAL * largest < float("inf"):
            return label_distances  # the usual batch; NaN does not pass
        refuse_similarities(label_distances.detach())
    numbers = label_distances.clone()
    numbers.diagonal().zero_()  # left out, whatever it holds
    bad = ~(numbers >= 0)
    if look and bool(bad.any()):
        row, column = bad.nonzero()[0].tolist()
        raise UserError(
            "The 'label_distances' must be numbers of at least 0, or infinite for no comparison. Got "
            f"{numbers[row, column].item():g} between items {row} and {column} of the batch ({int(bad.sum())} "
            "such in all); correct the label distance, or exclude the pair with an infinite distance."
        )
    return numbers


def refuse_similarities(label_distances: Tensor) -> None:
    """Refuse label distances (A, B) of which an anchor's own, on the diagonal, is clearly above 0.

    What is infinite or NaN there says nothing: [queries; documents] are infinite inside the queries.
    """
    own = label_distances.diagonal()
    is_above = own.isfinite() & (own > 0)
    largest = label_distances.amax()
    if not bool(largest < torch.inf):
        largest = label_distances.where(label_distances.isfinite(), 0).amax()
    is_above &= own > DIAGONAL * largest
    if bool(is_above.any()):
        row = int(is_above.int().argmax())
        raise UserError(
            f"The 'label_distances' hold {own[row].item():g} between item {row} of the batch and itself, which should "
            f"be 0. {SIMILARITIES}."
        )


def warn_of_odd_matrix(embeddings: Tensor, label_distances: Tensor) -> None:
    """Warn of label distances (A, B) among the anchors that have two numbers for a pair, or look like similarities.

    Both are legal: a label distance may have a direction.
    """
    if label_distances.ndim != 2 or not label_distances.is_floating_point() or is_transformed(embeddings):
        return
    anchors, items = label_distances.shape
    if not _FEWEST_ANCHORS <= anchors <= items:
        return
    square = label_distances.detach()[:, :anchors].to("cpu", torch.float64).clone()
    if not bool((square.fill_diagonal_(0) >= 0).all()):  # which is an error
        return
    fault = find_odd_matrix(square.numpy())
    if fault:
        warnings.warn(f"The 'label_distances' among the anchors of the batch {fault}", ImplausibleData, stacklevel=4)


def comparable_pairs(label_distances: Tensor, first: int = 0) -> Tensor:
    """The pairs that a loss may use (R, B): no anchor with itself, and no infinite label distance."""
    used = label_distances < torch.inf  # NaN is not
    used.diagonal(first).fill_(False)
    return used


def usable_labels(label_distances: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
    """Label distances (R, B) with 0 where a pair may not be used, and the mask (R, B) of the pairs that may."""
    used = comparable_pairs(label_distances, first)
    return label_distances.where(used, 0), used


def without_diagonal(square: Tensor) -> Tensor:
    """The entries of a square of label distances (N, N) between different items, (N (N - 1),)."""
    return square[~torch.eye(len(square), dtype=torch.bool, device=square.device)]
