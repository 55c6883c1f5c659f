"""Embeddings as losses take them: checked, in at least float32 whatever autocast says, of length 1 where asked for."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.errors import UserError
from cml.losses.closed_form import check_no_vmap

_NORMALIZE_EPS = 1e-12  # torch's own


def check_matrix(name: str, tensor: Tensor, shape: str = "(B, D)") -> None:
    """Check that a tensor is a floating-point matrix.

    Args:
        name: The argument's name, for the message.
        tensor: The tensor to check.
        shape: What its two sizes are called, for the message.

    Raises:
        UserError: the tensor has another number of dimensions or another type, or is one of many under
            ``torch.func.vmap``.
    """
    check_no_vmap(name, tensor)
    if tensor.ndim != 2 or not tensor.is_floating_point():
        got = f"Got shape {tuple(tensor.shape)}, {tensor.dtype} instead."
        raise UserError(f"The {name!r} must be a floating-point tensor {shape}. {got}")


def in_full(tensor: Tensor) -> Tensor:
    """The tensor in at least float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def rescale_rows(tensor: Tensor) -> Tensor:
    """Multiply each row by a power of two, so that L2-normalisation neither overflows nor loses digits.

    A row of zeros stays one. Its gradient through ``normalize`` is the one that it would have at length 1.

    Args:
        tensor: (..., D) floating point.

    Returns:
        (..., D) in at least float32.
    """
    full = in_full(tensor)
    largest = full.detach().abs().amax(dim=-1, keepdim=True)
    return full * torch.exp2(-largest.log2().floor().clamp(-120, 120)).where(largest > 0, _NORMALIZE_EPS)


def unit_rows(tensor: Tensor) -> Tensor:
    """L2-normalise the rows of (..., D), in at least float32."""
    return functional.normalize(rescale_rows(tensor), dim=-1, eps=_NORMALIZE_EPS)


def embedding_points(embeddings: Tensor, *, normalize: bool) -> Tensor:
    """The points whose distances a loss measures.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        normalize: Whether to L2-normalise them.

    Returns:
        The embeddings in at least float32, with rows of length 1 if ``normalize``.

    Raises:
        UserError: without ``normalize``, a batch's largest number is so small or so large that squares do not fit the
            type.
    """
    if normalize:
        return unit_rows(embeddings)
    full = in_full(embeddings)
    limits = torch.finfo(full.dtype)
    least, most = 1e4 * limits.tiny**0.5, limits.max**0.5 / 1e4
    for largest in full.detach().abs().amax(dim=(-2, -1)).flatten().tolist():
        if 0 < largest < least or most < largest < float("inf"):
            raise UserError(
                f"The largest number of the embeddings must be in {least:.0e}..{most:.0e} or 0, for their squares to "
                f"fit {str(full.dtype).removeprefix('torch.')}. Got {largest:.3g} instead: the network has "
                f"{'diverged' if largest > 1 else 'collapsed'}; take a lower learning rate or a loss that normalises "
                "them."
            )
    return full
