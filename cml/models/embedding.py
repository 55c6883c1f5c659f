"""The embedding model: backbone, linear head, L2 normalisation if the loss requires it; and its cached features."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.data.augmentation import center_box, stored_size
from cml.data.images import PIXELS, Images, UInt8
from cml.data.inputs import image_source
from cml.data.open_image import MAX_PIXELS
from cml.errors import DataError, UserError
from cml.models.backbone import CUSTOM, Backbone, as_backbone, checked_features, evaluating, first_line, get, least_side
from cml.storage.cache_folder import cache_folder
from cml.storage.npy import load_or_compute_rows
from cml.storage.saved_options import TINY, check_bounds

Given = Images | UInt8 | Sequence[Any]
Float32 = NDArray[np.float32]

_LARGEST = 65_536  # dimensions of an embedding, pixels of a side: an untrusted file may hold any number


@dataclass(frozen=True)
class ModelConfig:
    """Everything needed to build a model of the same shape."""

    backbone: str  # its name, ``custom`` for the user's own module
    weights: str  # the initial ones of the backbone, as for ``cml.models.get``
    dimension: int  # D of the embedding
    normalize: bool  # whether embeddings are L2-normalised; decided by the loss
    image_size: tuple[int, int]  # (height, width) in pixels of the backbone's images
    crop: float = 1.0  # share of the stored image's sides that the centre box covers; the rest is room for jitter

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
    """Backbone and linear head, which starts kaiming-normal by fan-out with zero bias, as in the paper's code."""

    mean: Tensor
    std: Tensor

    def __init__(
        self, config: ModelConfig, *, pretrained: bool = True, backbone: nn.Module | Backbone | None = None
    ) -> None:
        super().__init__()
        if backbone is not None:
            made = as_backbone(backbone, name=config.backbone, image_size=config.image_size)
        elif config.backbone == CUSTOM:
            raise UserError(
                "The backbone of this model is its author's own module, of which only the weights were saved. "
                "Give it: cml.load(path, backbone=module)."
            )
        else:
            made = get(config.backbone, config.weights, image_size=config.image_size, pretrained=pretrained)
        self.config = config
        self._map = made.feature_map
        # the fastest layout for convolutions, on CPUs and GPUs; values do not depend on it
        self.backbone = made.module.to(memory_format=torch.channels_last)
        self.head = nn.Linear(made.features, config.dimension)
        nn.init.kaiming_normal_(self.head.weight, mode="fan_out")
        nn.init.zeros_(self.head.bias)
        # constants, not weights: they move with the device, but are not part of the state
        self.register_buffer("mean", 255 * torch.tensor(made.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", 255 * torch.tensor(made.std).view(3, 1, 1), persistent=False)

    def features(self, images: Tensor) -> Tensor:
        """Backbone features (B, F) of images (B, 3, h, w), uint8 or float in 0..255."""
        try:
            features = self.backbone(self._normalized(images))
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, AssertionError):  # vision transformers assert
            height, width = images.shape[2:]
            if (least := least_side(self.backbone, (height, width))) is None:
                raise
            raise UserError(
                f"The backbone {self.config.backbone!r} cannot take images of {height} x {width} pixels; the smallest "
                f"square ones that it accepts have {least} x {least}: set image_size, or use the backbone 'small-cnn'."
            ) from None
        return checked_features(features, self.config.backbone, self.head.in_features)

    def feature_maps(self, images: Tensor) -> Tensor:
        """The backbone's last map (B, C, h', w') float32, of a transformer its tokens, of images (B, 3, h, w)."""
        pixels, name = self._normalized(images), self.config.backbone
        try:
            maps = self._map(self.backbone, pixels)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, AssertionError) as error:  # vision transformers assert
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

    def _normalized(self, images: Tensor) -> Tensor:
        return ((images.float() - self.mean) / self.std).contiguous(memory_format=torch.channels_last)

    def embed_features(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of backbone features (B, F)."""
        embeddings: Tensor = self.head(features)
        return functional.normalize(embeddings.float(), dim=1) if self.config.normalize else embeddings

    def forward(self, images: Tensor) -> Tensor:
        """Embeddings (B, D) of images (B, 3, h, w), uint8 or float in 0..255."""
        return self.embed_features(self.features(images))

    def embed(self, images: Given, *, batch_size: int = 64, bar: str = "") -> Float32:
        """Embeddings (N, D) of images as ``image_source`` takes them, of any sizes; ``bar`` is a bar's title."""
        return self._by_batches(self.forward, images, batch_size, bar)

    def extract(self, images: Given, *, batch_size: int = 64, bar: str = "") -> Float32:
        """Backbone features (N, F) of images; arguments as for ``embed``."""
        return self._by_batches(self.features, images, batch_size, bar)

    @torch.inference_mode()
    def embed_extracted(self, features: Float32, *, batch_size: int = 64) -> Float32:
        """Embeddings (N, D) of backbone features (N, F) from ``extract``; equal to ``embed`` of the images."""
        parts = torch.split(torch.from_numpy(features).to(self.mean.device), batch_size)
        return np.concatenate([self.embed_features(part).float().cpu().numpy() for part in parts])

    @torch.inference_mode()
    def _by_batches(self, compute: Callable[[Tensor], Tensor], given: Given, batch_size: int, bar: str) -> Float32:
        size = stored_size(self.config.image_size, self.config.crop)
        images = given if isinstance(given, Images) else Images(image_source(given), size)
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


def backbone_fingerprint(model: EmbeddingModel) -> str:
    """Digest of the backbone; a run with a frozen backbone has that of the published network."""
    constants = [model.mean.flatten().tolist(), model.std.flatten().tolist()]
    return weights_fingerprint(model.backbone, f"{model.config.backbone} {constants}")


def weights_fingerprint(network: nn.Module, shape: str) -> str:
    """Digest of a network's weights and of ``shape``, a text of everything else that its results depend on."""
    digest = hashlib.sha256(shape.encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def frozen_features(model: EmbeddingModel, paths: Sequence[Path], *, bar: str = "") -> Float32:
    """Backbone features (N, F) of N image files, as of ``extract``; those of published weights are cached."""
    compute = functools.partial(model.extract, paths, bar=bar)
    path = features_file(model, paths)
    return compute() if path is None else load_or_compute_rows(path, len(paths), compute)


def features_file(model: EmbeddingModel, paths: Sequence[Path]) -> Path | None:
    """The file of the cache for the features of image files; None if they are not cached."""
    if (config := model.config).weights == "none":
        return None
    digest = hashlib.sha256(f"{backbone_fingerprint(model)} {config.image_size} {config.crop} {PIXELS}".encode())
    for path in paths:
        try:
            stat = path.stat()
        except OSError:  # reading the image will say what is wrong
            return None
        digest.update(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return cache_folder() / "features" / f"{digest.hexdigest()[:32]}.npy"
