"""A multilayer perceptron for vectors."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from cml.errors import UserError
from cml.models.backbone import Backbone
from cml.settings import check_flag, check_whole, check_word

_WIDEST = 65_536
_ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU}


class SkippedPerceptron(nn.Module):
    """A perceptron whose features are the vector itself and those of the last layer, side by side."""

    def __init__(self, layers: nn.Sequential, *, unit: bool) -> None:  # layers (B, F)
        super().__init__()
        self.layers, self.unit = layers, unit

    def forward(self, vectors: Tensor) -> Tensor:
        """Features (B, F + H) of vectors (B, F)."""
        rows = functional.normalize(vectors, dim=1) if self.unit else vectors
        return torch.cat([rows, self.layers(rows)], dim=1)


def mlp(
    vector_size: int,
    widths: Sequence[int] | int = (512, 512),
    dropout: float = 0.0,
    skip: bool = False,
    unit: bool = False,
    layer_norm: bool = True,
    activation: str = "gelu",
) -> Backbone:
    """A multilayer perceptron on standardised vectors: for each width a linear layer, layer normalisation and GELU.

    ``mlp(512, 512)`` is short for ``mlp(widths=[512, 512])``.

    Args:
        vector_size: F, the numbers of a vector.
        widths: The number of units of each layer.
        dropout: The share of units that are set to zero in training, after each layer.
        skip: Whether the features are the vector itself and those of the last layer, side by side.
        unit: With ``skip``, whether standardised vectors are L2-normalised first.
        layer_norm: Whether layer normalisation follows each linear layer.
        activation: "gelu" or "relu".

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
    if check_flag("unit", unit) and not check_flag("skip", skip):
        raise UserError("The setting 'unit' of mlp goes with skip=true. Got skip=false.")
    with_norm = check_flag("layer_norm", layer_norm)
    check_word("activation", activation, tuple(_ACTIVATIONS))
    layers: list[nn.Module] = []
    before = vector_size
    for size in sizes:
        layers.append(nn.Linear(before, size))
        if with_norm:
            layers.append(nn.LayerNorm(size))
        layers.append(_ACTIVATIONS[activation]())
        if dropout:
            layers.append(nn.Dropout(dropout))
        before = size
    perceptron = nn.Sequential(*layers)
    if skip:
        return Backbone(SkippedPerceptron(perceptron, unit=unit), vector_size + before)
    return Backbone(perceptron, before)
