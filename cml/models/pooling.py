"""Pooling of a network's last convolution map to its features."""

from typing import Any, Literal, get_args

from torch import Tensor, nn
from torch.nn import functional

from cml.errors import UserError

Pooling = Literal["mean", "max", "mean-max"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)


def pool_map(
    feature_map: Tensor,  # (B, C, h, w)
    # ``mean``; ``max`` for the maximum, as in the authors' code of multi-similarity (Wang et al., CVPR 2019); or
    # ``mean-max`` for the sum of both, as in that of Proxy-Anchor (Kim et al., CVPR 2020)
    pooling: Pooling,
) -> Tensor:  # features (B, C)
    """Pool a map over its positions.

    Example:
        >>> import torch
        >>> pool_map(torch.tensor([[[[1.0, 3.0]]]]), "mean-max")
        tensor([[5.]])
    """
    if pooling == "mean":
        return feature_map.mean(dim=(2, 3))
    maximum = feature_map.amax(dim=(2, 3))
    return maximum if pooling == "max" else feature_map.mean(dim=(2, 3)) + maximum


class MaxPool(nn.AdaptiveAvgPool2d):
    """The maximum of a map (B, C, h, w), or its sum with the mean, as a map (B, C, 1, 1), in place of a network's mean.

    It is a mean by its type, so that ``last_feature_map`` finds it.
    """

    def __init__(self, pooling: Pooling) -> None:
        super().__init__(1)
        self.with_mean = pooling == "mean-max"

    def forward(self, feature_map: Tensor) -> Tensor:
        """Pool a map."""
        maximum = functional.adaptive_max_pool2d(feature_map, 1)
        return super().forward(feature_map) + maximum if self.with_mean else maximum


def check_pooling(backbone: str, pooling: str) -> None:
    """Check the setting ``pooling`` of a backbone."""
    if pooling not in POOLINGS:
        raise UserError(f"The 'pooling' of {backbone} must be one of {', '.join(POOLINGS)}. Got {pooling!r} instead.")


def replace_module(network: nn.Module, path: str, module: nn.Module) -> None:
    """Replace the module at a path; ``nn.Module.set_submodule`` came with torch 2.5."""
    parent, _, name = path.rpartition(".")
    setattr(network.get_submodule(parent), name, module)


def replace_mean_pool(network: nn.Module, backbone: str, pooling: Pooling) -> None:
    """Replace the last pooling layer of a network, a mean over all positions, by ``MaxPool``."""
    pools = [path for path, module in network.named_modules() if isinstance(module, nn.AdaptiveAvgPool2d)]
    last = network.get_submodule(pools[-1]) if pools else None
    if not isinstance(last, nn.AdaptiveAvgPool2d) or last.output_size not in (1, (1, 1)):
        raise UserError(
            f"The backbone {backbone!r} does not end in a mean over all positions: leave out pooling={pooling}, or "
            "take a network that does, such as resnet50."
        )
    replace_module(network, pools[-1], MaxPool(pooling))


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
