"""The last convolution map of a network; captioning models attend over it."""

from typing import Any

from torch import Tensor, nn

_STAGES = ("features", "layers", "conv5")  # of torchvision's networks without a pooling layer: DenseNet, MobileNetV2


def last_feature_map(network: nn.Module, pixels: Tensor) -> Tensor | None:
    """Compute the last convolution map of a network without a method ``feature_map``.

    It is the input of the last pooling layer, or the output of the convolution stages; its mean over positions is the
    pooled features.

    Args:
        network: Maps pixels to features.
        pixels: Normalised pixels (B, 3, h, w).

    Returns:
        The map (B, C, h', w'); None if the network has none.

    Example:
        >>> import torch
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> last_feature_map(network, torch.zeros(2, 3, 16, 16)).shape
        torch.Size([2, 8, 16, 16])
    """
    caught: list[Any] = []
    paths = {path: module for path, module in network.named_modules() if path}
    # squeeze-and-excitation blocks pool too, but come before the network's own pooling
    pools = [path for path, module in paths.items() if isinstance(module, nn.AdaptiveAvgPool2d)]
    stages = [path for path in _STAGES if path in paths]
    if pools and not any(pools[-1].startswith(stage + ".") for stage in stages):
        hook = paths[pools[-1]].register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    elif stages:
        hook = paths[stages[0]].register_forward_hook(lambda _, inputs, output: caught.append(output))
    else:
        return None
    try:
        network(pixels)
    finally:
        hook.remove()
    # only after the whole pass: DenseNet rectifies its map in place after the layer
    return caught[0] if len(caught) == 1 and isinstance(caught[0], Tensor) else None
