"""The last convolution map of a backbone: where things are in the image, before they are averaged away.

Captioning models attend over it. A backbone says where it is by a submodule ``last_map``; for others it is what the
last pooling layer is given, or what the convolution stages give. Not for: pooled features and embeddings
(embedding.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import DataError, UserError

_STAGES = ("features", "layers", "conv5")  # torchvision's networks that pool by a function: DenseNet, MobileNetV2, ..


def feature_map(backbone: nn.Module, images: Tensor, name: str) -> Tensor:
    """The last convolution map of normalised images.

    Args:
        backbone: Maps (B, 3, h, w) to features.
        images: (B, 3, h, w), normalised.
        name: What the backbone is called, for errors.

    Returns:
        (B, C, h', w') float32. Where the backbone's features are the mean over places, so is the mean of this map.

    Raises:
        UserError: the backbone has no such map.
        DataError: the images are too small for it.
    """
    path, of_input = map_layer(backbone, name)
    caught: list[Tensor] = []

    def catch_input(_: nn.Module, given: tuple[Any, ...]) -> None:
        caught.append(given[0])

    def catch_output(_: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        caught.append(output)

    layer = backbone.get_submodule(path)
    hook = layer.register_forward_pre_hook(catch_input) if of_input else layer.register_forward_hook(catch_output)
    try:
        backbone(images)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        height, width = images.shape[2:]
        raise DataError(
            f"The backbone {name!r} cannot take images of {width} x {height} pixels: {str(error).splitlines()[0]}."
        ) from None
    finally:
        hook.remove()
    if len(caught) != 1 or caught[0].ndim != 4:
        raise UserError(f"The backbone {name!r} has no last convolution map; take one with convolutions to its end.")
    # not before the whole pass: DenseNet rectifies its map in place behind the layer
    return caught[0].float()


def map_layer(backbone: nn.Module, name: str) -> tuple[str, bool]:
    """Path of the submodule at which the last convolution map passes, and whether it is its input or its output.

    Raises:
        UserError: there is none, as in a vision transformer.
    """
    paths = {path: module for path, module in backbone.named_modules() if path}
    if "last_map" in paths:
        return "last_map", False
    # squeeze-and-excitation blocks pool too, but stand before the network's own pooling
    pools = [path for path, module in paths.items() if isinstance(module, nn.AdaptiveAvgPool2d)]
    stages = [path for path in _STAGES if path in paths]
    if pools and not any(pools[-1].startswith(stage + ".") for stage in stages):
        return pools[-1], True
    if stages:
        return stages[0], False
    raise UserError(f"The backbone {name!r} has no last convolution map; take one with convolutions to its end.")
