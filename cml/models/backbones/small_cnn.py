"""A small network for images of about 64 pixels, trained from scratch."""

from typing import Literal

from torch import Tensor, nn

from cml.errors import UserError

_LAYERS = {  # channels after each convolution, and its stride
    4: ((32, 2), (64, 2), (128, 2), (256, 2)),
    6: ((32, 2), (64, 2), (128, 2), (128, 1), (192, 2), (192, 1)),
}


class SmallCNN(nn.Module):
    """Strided convolutions: (B, channels, h, w) to (B, 256). It has no published weights.

    Args:
        norm: "batch", or "group": the features of an image do not depend on the rest of the batch.
        grid: The last map is averaged in this many rows and columns. With 1, where something is in the image does not
            matter.
        layers: Convolutions, 4 or 6. With 4, a step takes two thirds of the time, which is the better choice for
            minutes of training.
        channels: The number of bands of the images: 3 for RGB; 1 for grey, 4 for RGBA or four bands of any kind, and so
            on, which are read as they are, with 8 or 16 bits.
    """

    features = 256

    def __init__(
        self, norm: Literal["batch", "group"] = "batch", grid: int = 4, layers: Literal[4, 6] = 6, channels: int = 3
    ) -> None:
        super().__init__()
        if norm not in ("batch", "group"):
            raise UserError(f"The 'norm' of small-cnn must be batch or group. Got {norm!r} instead.")
        if type(grid) is not int or not 1 <= grid <= 16:
            raise UserError(f"The 'grid' of small-cnn must be from 1 to 16. Got {grid!r} instead.")
        if layers not in _LAYERS:
            raise UserError(f"The 'layers' of small-cnn must be 4 or 6. Got {layers} instead.")
        if type(channels) is not int or not 1 <= channels <= 4096:
            raise UserError(f"The 'channels' of small-cnn must be from 1 to 4096. Got {channels!r} instead.")
        self.channels = channels
        sizes = [channels, *(after for after, _ in _LAYERS[layers])]
        self.stages = nn.Sequential(
            *(_conv(sizes[row], after, stride, norm) for row, (after, stride) in enumerate(_LAYERS[layers]))
        )
        # the position of a limb matters as much as its presence: a coarse grid instead of a global average
        self.pool = nn.AdaptiveAvgPool2d(grid)
        last = nn.BatchNorm1d(256) if norm == "batch" else nn.GroupNorm(16, 256)
        pooled = sizes[-1] * grid**2
        self.project = nn.Sequential(nn.Flatten(), nn.Linear(pooled, 256), last, nn.ReLU(inplace=True))

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute the features of images.

        Args:
            pixels: Normalised pixels (B, channels, h, w).

        Returns:
            Features (B, 256).
        """
        return self.project(self.pool(self.feature_map(pixels)))  # type: ignore[no-any-return]

    def feature_map(self, pixels: Tensor) -> Tensor:
        """Compute the last convolution map.

        Args:
            pixels: Normalised pixels (B, channels, h, w).

        Returns:
            (B, C, h / 16, w / 16), of 192 channels or, with 4 layers, 256.
        """
        return self.stages(pixels)  # type: ignore[no-any-return]


def _conv(before: int, after: int, stride: int, norm: str) -> nn.Module:
    normalised = nn.BatchNorm2d(after) if norm == "batch" else nn.GroupNorm(16, after)
    return nn.Sequential(nn.Conv2d(before, after, 3, stride, padding=1, bias=False), normalised, nn.ReLU(inplace=True))
