"""A multilayer perceptron for vectors."""

from collections.abc import Sequence

from torch import nn

from cml.errors import UserError
from cml.models.backbone import Backbone
from cml.settings import check_whole

_WIDEST = 65_536


def mlp(vector_size: int, widths: Sequence[int] | int = (512, 512), dropout: float = 0.0) -> Backbone:
    """A multilayer perceptron on standardised vectors: for each width a linear layer, layer normalisation and GELU.

    ``mlp(512, 512)`` is short for ``mlp(widths=[512, 512])``.

    Args:
        vector_size: F, the numbers of a vector.
        widths: The number of units of each layer.
        dropout: The share of units that are set to zero in training, after each layer.

    Returns:
        The backbone, with random weights.

    Raises:
        UserError: A setting is out of range.
    """
    vector_size = check_whole("vector_size", vector_size)
    sizes = [widths] if isinstance(widths, int) else list(widths)
    if not sizes or not all(type(size) is int and 1 <= size <= _WIDEST for size in sizes):
        raise UserError(f"The 'widths' of mlp must be whole numbers from 1 to {_WIDEST:,}. Got {widths!r} instead.")
    if not isinstance(dropout, int | float) or isinstance(dropout, bool) or not 0 <= dropout < 1:
        raise UserError(f"The 'dropout' of mlp must be from 0 to below 1. Got {dropout!r} instead.")
    layers: list[nn.Module] = []
    before = vector_size
    for size in sizes:
        layers += [nn.Linear(before, size), nn.LayerNorm(size), nn.GELU()]
        if dropout:
            layers.append(nn.Dropout(dropout))
        before = size
    return Backbone(nn.Sequential(*layers), before)
