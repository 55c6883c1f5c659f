"""Pooling of a network's last convolution map to its features."""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional

from cml.errors import UserError

Pooling = Literal["mean", "mean-max"]
POOLINGS: tuple[Pooling, ...] = ("mean", "mean-max")


def pool_map(
    feature_map: Tensor,  # (B, C, h, w)
    # ``mean``, or ``mean-max`` for the sum of mean and maximum, as in the authors' code of Proxy-Anchor (Kim et al.,
    # CVPR 2020)
    pooling: Pooling,
) -> Tensor:  # features (B, C)
    """Pool a map over its positions.

    Example:
        >>> import torch
        >>> pool_map(torch.tensor([[[[1.0, 3.0]]]]), "mean-max")
        tensor([[5.]])
    """
    mean = feature_map.mean(dim=(2, 3))
    return mean if pooling == "mean" else mean + feature_map.amax(dim=(2, 3))


class MeanMaxPool(nn.AdaptiveAvgPool2d):
    """The sum of mean and maximum of a map (B, C, h, w), as a map (B, C, 1, 1), in place of a network's mean."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, feature_map: Tensor) -> Tensor:
        """Pool a map."""
        return super().forward(feature_map) + functional.adaptive_max_pool2d(feature_map, 1)


def check_pooling(backbone: str, pooling: str) -> None:
    """Check the setting ``pooling`` of a backbone."""
    if pooling not in POOLINGS:
        raise UserError(f"The 'pooling' of {backbone} must be {' or '.join(POOLINGS)}. Got {pooling!r} instead.")


def replace_mean_pool(network: nn.Module, backbone: str) -> None:
    """Replace the last pooling layer of a network, a mean over all positions, by ``MeanMaxPool``."""
    pools = [path for path, module in network.named_modules() if isinstance(module, nn.AdaptiveAvgPool2d)]
    last = network.get_submodule(pools[-1]) if pools else None
    if not isinstance(last, nn.AdaptiveAvgPool2d) or last.output_size not in (1, (1, 1)):
        raise UserError(
            f"The backbone {backbone!r} does not end in a mean over all positions: leave out pooling=mean-max, or take "
            "a network that does, such as resnet50."
        )
    network.set_submodule(pools[-1], MeanMaxPool())
