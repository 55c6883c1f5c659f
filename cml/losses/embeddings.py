"""Embeddings as losses take them: checked, in at least float32 whatever autocast says, of length 1 where asked for."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from cml.errors import UserError


def check_matrix(name: str, tensor: Tensor, shape: str = "(B, D)") -> None:
    """Check that ``tensor`` is a floating-point matrix; ``shape`` is what its two sizes are called.

    Raises:
        UserError: it is not.
    """
    if tensor.ndim != 2 or not tensor.is_floating_point():
        raise UserError(
            f"The {name!r} must be a floating-point tensor {shape}. "
            f"Got shape {tuple(tensor.shape)}, {tensor.dtype} instead."
        )


def in_full(tensor: Tensor) -> Tensor:
    """``tensor`` in at least float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def unit(tensor: Tensor) -> Tensor:
    """Rows of length 1, in at least float32."""
    return functional.normalize(in_full(tensor), dim=1)


def points(embeddings: Tensor, *, normalize: bool) -> Tensor:
    """The embeddings in at least float32, of length 1 with ``normalize``."""
    return unit(embeddings) if normalize else in_full(embeddings)
