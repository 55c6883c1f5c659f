"""The embedding model: backbone, linear head, L2 normalisation if the loss requires it; and its cached features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.data.augmentation import center_box, stored_size
from cml.data.images import Images, UInt8
from cml.data.inputs import image_source
from cml.data.open_image import MAX_PIXELS
from cml.errors import DataError, UserError
from cml.models.backbone import CUSTOM, Backbone, as_backbone, get
from cml.models.backbone_checks import check_features, evaluating, first_line, least_side
from cml.processes.out_of_memory import is_out_of_memory
from cml.storage.saved_options import TINY, check_bounds

AnyImages = Images | UInt8 | Sequence[Any]
Float32 = NDArray[np.float32]

_LARGEST = 65_536  # dimensions of an embedding, pixels of a side: an untrusted file may hold any number


@dataclass(frozen=True)
class ModelConfig:
    """Everything needed to build a model of the same shape.

    Attributes:
        backbone: Name of the backbone; ``custom`` for the user's own module.
        weights: Initial weights of the backbone, as for ``cml.models.get``.
        dimension: D, the number of dimensions of the embedding.
        normalize: Whether embeddings are L2-normalised, which the loss decides.
        image_size: (height, width) in pixels of the backbone's images.
        crop: Fraction of the stored image's sides that the centre box covers; the rest is room for jitter.
    """

    backbone: str
    weights: str
    dimension: int
    normalize: bool
    image_size: tuple[int, int]
    crop: float = 1.0

    def __post_init__(self) -> None:
        check_bounds(self, {(1, _LARGEST): ("dimension", "image_size"), (TINY, 1): ("crop",)})
        height, width = stored_size(self.image_size, self.crop)
        if height * width > MAX_PIXELS:
            raise UserError(
                f"'image_size' {self.image_size} and 'crop' {self.crop} need images of {height} x {width} pixels; the "
                f"limit is {MAX_PIXELS:,} pixels."
            )

    @property
    def published(self) -> ModelConfig:
        """The same shape with published weights: the backbone's initial ones, or the default ones for ``none``."""
        return self if self.weights != "none" else replace(self, weights="imagenet")


class EmbeddingModel(nn.Module):
    """Backbone and linear head, which starts kaiming-normal by fan-out with zero bias, as in the paper's code.

    Args:
        config: The shape of the model.
        pretrained: Load the initial weights of the backbone; False if others follow.
        backbone: The user's own module, for which ``config.backbone`` is ``custom``.

    Attributes:
        backbone: Maps normalised pixels (B, 3, h, w) to features (B, F).
        head: Maps features (B, F) to embeddings (B, D).

    Raises:
        UserError: The backbone is unknown or missing, or its weights cannot be loaded.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, config: ModelConfig, *, pretrained: bool = True, backbone: nn.Module | Backbone | None = None
    ) -> None:
        super().__init__()
        if backbone is not None:
            parts = as_backbone(backbone, name=config.backbone, image_size=config.image_size)
        elif config.backbone == CUSTOM:
            raise UserError(
                "The backbone of this model is its author's own module, of which only the weights were saved. "
                "Give it: cml.load(path, backbone=module)."
            )
        else:
            parts = get(config.backbone, config.weights, image_size=config.image_size, pretrained=pretrained)
        self.config = config
        self._map = parts.feature_map
        # the fastest layout for convolutions, on CPUs and GPUs; values do not depend on it
        self.backbone = parts.module.to(memory_format=torch.channels_last)
        self.head = nn.Linear(parts.features, config.dimension)
        nn.init.kaiming_normal_(self.head.weight, mode="fan_out")
        nn.init.zeros_(self.head.bias)
        # constants, not weights: they move with the device, but are not part of the state
        self.register_buffer("mean", 255 * torch.tensor(parts.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(parts.std).view(3, 1, 1), persistent=False)

    def features(self, images: Tensor) -> Tensor:
        """Backbone features (B, F) of images (B, 3, h, w), uint8 or float in 0..255."""
        try:
            features = self.backbone(self._normalize(images))
        except (RuntimeError, AssertionError) as error:  # vision transformers assert
            if is_out_of_memory(error):
                raise
            height, width = images.shape[2:]
            if (least := least_side(self.backbone, (height, width))) is None:
                raise
            raise UserError(
                f"The backbone {self.config.backbone!r} cannot take images of {height} x {width} pixels; the smallest "
                f"square ones that it accepts have {least} x {least}: set image_size, or use the backbone 'small-cnn'."
            ) from None
        return check_features(features, self.config.backbone, self.head.in_features)

    def feature_maps(self, images: Tensor) -> Tensor:
        """The backbone's last map (B, C, h', w') float32, of a transformer its tokens, of images (B, 3, h, w)."""
        pixels, name = self._normalize(images), self.config.backbone
        try:
            maps = self._map(self.backbone, pixels)
        except (RuntimeError, AssertionError) as error:  # vision transformers assert
            if is_out_of_memory(error):
                raise
            height, width = images.shape[2:]
            raise DataError(
                f"The backbone {name!r} cannot take images of {width} x {height} pixels: {first_line(error)}. It "
                "accepts those of the model's image size (--view crop)."
            ) from None
        if not isinstance(maps, Tensor) or maps.ndim != 4:
            raise UserError(
                f"The backbone {name!r} has no last convolution map; use a convolutional network, or a vision "
                "transformer of timm, whose tokens make a map."
            )
        return maps.float()

    def _normalize(self, images: Tensor) -> Tensor:
        return ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)

    def embed_features(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of backbone features (B, F)."""
        embeddings: Tensor = self.head(features)
        return functional.normalize(embeddings.float(), dim=1) if self.config.normalize else embeddings

    def forward(self, images: Tensor) -> Tensor:
        """Embeddings (B, D) of images (B, 3, h, w), uint8 or float in 0..255."""
        return self.embed_features(self.features(images))

    def embed(self, images: AnyImages, *, batch_size: int = 64, bar: str = "") -> Float32:
        """Embed images of any sizes.

        Args:
            images: N images, of any kind that ``cml.fit`` takes.
            batch_size: Images per pass.
            bar: Title of a progress bar; "" for none.

        Returns:
            Embeddings (N, D), in evaluation mode.
        """
        return self._by_batches(self.forward, images, batch_size, bar)

    def extract(self, images: AnyImages, *, batch_size: int = 64, bar: str = "") -> Float32:
        """Compute the backbone features of images of any sizes.

        Args:
            images: N images, of any kind that ``cml.fit`` takes.
            batch_size: Images per pass.
            bar: Title of a progress bar; "" for none.

        Returns:
            Features (N, F), in evaluation mode.
        """
        return self._by_batches(self.features, images, batch_size, bar)

    @torch.inference_mode()
    def embed_extracted(self, features: Float32, *, batch_size: int = 64) -> Float32:
        """Embed images whose backbone features are known.

        Args:
            features: (N, F) from ``extract``.
            batch_size: Rows per pass.

        Returns:
            Embeddings (N, D), equal to ``embed`` of the images.
        """
        parts = torch.split(torch.from_numpy(features).to(self.mean.device), batch_size)
        return np.concatenate([self.embed_features(part).float().cpu().numpy() for part in parts])

    @torch.inference_mode()
    def _by_batches(self, compute: Callable[[Tensor], Tensor], source: AnyImages, batch_size: int, bar: str) -> Float32:
        size = stored_size(self.config.image_size, self.config.crop)
        images = source if isinstance(source, Images) else Images(image_source(source), size)
        results: list[Float32] = []

        def read(start: int) -> Tensor:
            rows = np.arange(start, min(start + batch_size, len(images)))
            return center_box(images.read(rows), self.config.image_size)

        shown = ProgressBar(total=len(images), desc=bar, unit="image", delay=BAR_DELAY, leave=False, disable=not bar)
        # the reader decodes the next batch during the network's pass
        with evaluating(self), shown, ThreadPoolExecutor(1) as reader:
            upcoming = reader.submit(read, 0)
            for start in range(0, len(images), batch_size):
                batch = upcoming.result()
                if start + batch_size < len(images):
                    upcoming = reader.submit(read, start + batch_size)
                results.append(compute(batch.to(self.mean.device)).float().cpu().numpy())
                shown.update(len(batch))
        return np.concatenate(results) if results else np.empty((0, self.config.dimension), np.float32)
