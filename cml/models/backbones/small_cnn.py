"""A small network for images of about 64 pixels, trained from scratch: a whole backbone in a few lines."""

from __future__ import annotations

from torch import Tensor, nn


class SmallCNN(nn.Module):
    """Strided convolutions: (B, 3, h, w) to (B, 256). It has no published weights."""

    features = 256

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

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (B, 256) of normalised pixels (B, 3, h, w)."""
        features: Tensor = self.project(self.pool(self.feature_map(pixels)))
        return features

    def feature_map(self, pixels: Tensor) -> Tensor:
        """The last convolution map (B, 192, h / 16, w / 16)."""
        maps: Tensor = self.stages(pixels)
        return maps


def _conv(before: int, after: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)
    )
