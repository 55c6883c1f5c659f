"""Embeddings as losses take them: checked, in at least float32 whatever autocast says, of length 1 where asked for."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.errors import UserError

_NORMALIZE_EPS = 1e-12  # torch's own


def check_matrix(name: str, tensor: Tensor, shape: str = "(B, D)") -> None:
    """Check that a tensor is a floating-point matrix; ``shape`` is what its two sizes are called."""
    if tensor.ndim != 2 or not tensor.is_floating_point():
        got = f"Got shape {tuple(tensor.shape)}, {tensor.dtype} instead."
        raise UserError(f"The {name!r} must be a floating-point tensor {shape}. {got}")


def in_full(tensor: Tensor) -> Tensor:
    """``tensor`` in at least float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def rescaled(tensor: Tensor) -> Tensor:
    """Rows in at least float32, each times a power of two, so that ``normalize`` neither overflows nor loses digits.

    A row of zeros stays one, and ``normalize`` gives it the gradient that it would have at length 1.
    """
    full = in_full(tensor)
    largest = full.detach().abs().amax(dim=1, keepdim=True)
    return full * torch.exp2(-largest.log2().floor().clamp(-120, 120)).where(largest > 0, _NORMALIZE_EPS)


def unit(tensor: Tensor) -> Tensor:
    """Rows of length 1, in at least float32."""
    return functional.normalize(rescaled(tensor), dim=1, eps=_NORMALIZE_EPS)


def points(embeddings: Tensor, *, normalize: bool) -> Tensor:
    """The embeddings in at least float32, of length 1 with ``normalize``; without it, their squares must fit."""
    if normalize:
        return unit(embeddings)
    full = in_full(embeddings)
    limits, largest = torch.finfo(full.dtype), float(full.detach().abs().max())
    least, most = 1e4 * limits.tiny**0.5, limits.max**0.5 / 1e4
    if 0 < largest < least or most < largest < float("inf"):
        raise UserError(
            f"The largest number of the embeddings must be in {least:.0e}..{most:.0e} or 0, for their squares to fit "
            f"{str(full.dtype).removeprefix('torch.')}. Got {largest:.3g} instead: the network has "
            f"{'diverged' if largest > 1 else 'collapsed'}; take a lower learning rate or a loss that normalises them."
        )
    return full
