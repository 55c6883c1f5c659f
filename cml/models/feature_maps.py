"""The last convolution map of a network that does not say where it is: what its last pooling is given.

Captioning models attend over it. A backbone that knows its map has a method ``feature_map``; for others the map is what
the last pooling layer is given, or what the convolution stages give. Not for: pooled features and embeddings
(embedding.py).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

_STAGES = ("features", "layers", "conv5")  # torchvision's networks that pool by a function: DenseNet, MobileNetV2, ..


def last_map(network: nn.Module, pixels: Tensor) -> Tensor | None:
    """The last convolution map (B, C, h', w') of normalised pixels (B, 3, h, w); None if there is none.

    Where the network's features are the mean over places, so is the mean of this map.
    """
    caught: list[Any] = []

    def catch_input(_: nn.Module, given: tuple[Any, ...]) -> None:
        caught.append(given[0])

    def catch_output(_: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        caught.append(output)

    paths = {path: module for path, module in network.named_modules() if path}
    # squeeze-and-excitation blocks pool too, but stand before the network's own pooling
    pools = [path for path, module in paths.items() if isinstance(module, nn.AdaptiveAvgPool2d)]
    stages = [path for path in _STAGES if path in paths]
    if pools and not any(pools[-1].startswith(stage + ".") for stage in stages):
        hook = paths[pools[-1]].register_forward_pre_hook(catch_input)
    elif stages:
        hook = paths[stages[0]].register_forward_hook(catch_output)
    else:
        return None
    try:
        network(pixels)
    finally:
        hook.remove()
    # not before the whole pass: DenseNet rectifies its map in place behind the layer
    return caught[0] if len(caught) == 1 and isinstance(caught[0], Tensor) else None
