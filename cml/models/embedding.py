"""The embedding model: backbone, linear head, L2 normalisation if the loss requires it; and its cached features."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cml.array_types import Float32, Int64
from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.data.augmentation import center_box
from cml.data.images import stored_size
from cml.data.input_form import Collate, InputForm, Inputs
from cml.data.input_sources import open_inputs
from cml.data.items import Tensors
from cml.data.open_image import MAX_PIXELS
from cml.data.vectors import ComputedRows, Vectors
from cml.errors import DataError, UserError
from cml.models.backbone import CUSTOM, Backbone, as_backbone, get, registry
from cml.models.backbone_checks import check_features, check_rows, describe_batch, evaluating, first_line, least_side
from cml.models.forward_pass import EXACT, ForwardPass, compile_module
from cml.models.heads import JoinedHead, RotatedHead
from cml.option_types import check_options
from cml.processes.device import pin_batch, to_device
from cml.processes.exactness import use_precision
from cml.processes.memory import is_out_of_memory
from cml.storage.saved_options import TINY, check_bounds

AnyInputs = Inputs | NDArray[Any] | Sequence[Any]

_HALF = (torch.float16, torch.bfloat16)
_IMAGES_A_PASS = 64
_VECTORS_A_PASS = 4096
_MOST_IN_MEMORY = 1 << 25  # numbers of vectors
_LARGEST = 65_536  # dimensions of an embedding, pixels of a side: an untrusted file may hold any number


@dataclass(frozen=True)
class ModelConfig:
    """Everything needed to build a model of the same shape."""

    backbone: str  # name of the backbone; ``custom`` for the user's own module
    weights: str  # initial weights of the backbone, as for ``cml.models.get``
    dimension: int  # D, the number of dimensions of the embedding
    normalize: bool  # whether embeddings are L2-normalised, which the loss decides
    image_size: tuple[int, int]  # (height, width) in pixels of the backbone's images; without effect on other inputs
    crop: float = 1.0  # fraction of the stored image's sides that the centre box covers; the rest is room for jitter
    inputs: InputForm = field(default_factory=InputForm)  # the form of the inputs
    # dimensions of the embeddings that the head joins, see ``JoinedHead``; none of a linear head
    parts: tuple[int, ...] = ()

    def check(self) -> None:
        """Refuse options that are out of range, with a UserError."""
        check_bounds(self, {(1, _LARGEST): ("dimension", "image_size", "parts"), (TINY, 1): ("crop",)})
        if sum(self.parts) > 4 * _LARGEST:
            raise UserError(
                f"The 'parts' must be at most {4 * _LARGEST:,} dimensions together. Got {sum(self.parts):,}."
            )
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

    # what is subtracted from inputs: (C, 1, 1) levels of pixels, or (V,) of vectors, which ``fit_standardization`` sets
    mean: Tensor
    std: Tensor  # what divides the difference
    collate: Collate | None  # joins a list of inputs of any kind to a batch; None for images, vectors and tensors

    def __init__(
        self,
        config: ModelConfig,
        *,
        pretrained: bool = True,
        # the user's own module, for which ``config.backbone`` is ``custom``
        backbone: nn.Module | Backbone | None = None,
        features: int | None = None,  # F, if it is known; otherwise it is measured
        example: Any = None,  # noqa: ANN401 - a batch of any kind
        folder: Path | None = None,  # of a saved model that keeps its backbone in there
    ) -> None:
        super().__init__()
        config = check_options(config)
        vars(self)["collate"] = None  # not by assignment, which would make a module in it a part of the model
        if backbone is not None:
            parts = as_backbone(
                backbone,
                name=config.backbone,
                features=features,
                image_size=config.image_size,
                form=config.inputs,
                example=example,
            )
        elif config.backbone == CUSTOM and CUSTOM not in registry.names():
            raise UserError(
                "The backbone of this model is its author's own module, of which only the weights were saved. "
                "Give it: cml.load(path, backbone=module); to a command, by --plugin FILE, a file that registers it by "
                "@cml.models.register('custom')."
            )
        else:
            parts = get(
                config.backbone,
                config.weights,
                image_size=config.image_size,
                pretrained=pretrained,
                form=config.inputs,
                folder=folder,
            )
        self.config = config
        self._map = parts.feature_map
        self.forward_pass = EXACT
        self.backbone = parts.module
        if config.inputs.kind == "images":
            # the fastest layout for convolutions, on CPUs and GPUs; values do not depend on it
            self.backbone = self.backbone.to(memory_format=torch.channels_last)
        # maps features (B, F) to embeddings (B, D): a linear map, or a ``JoinedHead`` with ``config.parts``; during
        # training with another ``start`` a ``RotatedHead``
        self.head: nn.Linear | JoinedHead | RotatedHead
        if config.parts:
            self.head = JoinedHead(parts.features, config.parts, config.dimension)
        else:
            self.head = nn.Linear(parts.features, config.dimension)
            if parts.is_embedding:
                nn.init.orthogonal_(self.head.weight)
            else:
                nn.init.kaiming_normal_(self.head.weight, mode="fan_out")
            nn.init.zeros_(self.head.bias)
        if config.inputs.kind == "vectors":  # fitted to the training rows, so they are part of the state
            self.register_buffer("mean", torch.zeros(config.inputs.shape))
            self.register_buffer("std", torch.ones(config.inputs.shape))
        else:  # constants, not weights: they move with the device, but are not part of the state
            self.register_buffer("mean", 255 * torch.tensor(parts.mean).view(-1, 1, 1), persistent=False)
            self.register_buffer("std", 255 * torch.tensor(parts.std).view(-1, 1, 1), persistent=False)

    def fit_standardization(self, vectors: Vectors) -> str:
        """Set mean and standard deviation, by which vectors are standardised."""
        standardization = vectors.standardization()
        self.mean.copy_(torch.from_numpy(standardization.mean))
        self.std.copy_(torch.from_numpy(standardization.std))
        return vectors.form.describe_constant(standardization.constant, "training vectors")

    def set_collate(self, collate: Collate | None) -> None:
        """Set the function that joins a list of inputs to a batch; it is no part of the saved model."""
        vars(self)["collate"] = collate

    def features(self, inputs: Any) -> Tensor:  # noqa: ANN401 - a tensor, or a batch of any kind
        """Backbone features (B, F) of images (B, 3, h, w) in 0..255, vectors (B, V), tensors (B, ...) or a batch."""
        if self.config.inputs.kind != "images":
            return self._features_of_numbers(inputs)
        try:
            features = self._pass_backbone(inputs)
        except (RuntimeError, AssertionError) as error:  # vision transformers assert
            if is_out_of_memory(error):
                raise
            height, width = inputs.shape[2:]
            if (least := least_side(self.backbone, (height, width), self.config.inputs.channels)) is None:
                raise
            raise UserError(
                f"The backbone {self.config.backbone!r} cannot take images of {height} x {width} pixels; the smallest "
                f"square ones that it accepts have {least} x {least}: set image_size, or use the backbone 'small-cnn'."
            ) from None
        return check_features(features, self.config.backbone, self.head.in_features)

    def _features_of_numbers(self, inputs: Any) -> Tensor:  # noqa: ANN401 - a tensor, or a batch of any kind
        """Backbone features (B, F) of vectors, tensors or a batch that ``collate`` made."""
        if self.config.inputs.has_shape and tuple(inputs.shape[1:]) != self.config.inputs.shape:
            raise UserError(
                f"The model takes {self.config.inputs}. Got an item of shape {tuple(inputs.shape[1:])} instead."
            )
        try:
            features = self._pass_backbone(inputs)
        except (
            RuntimeError,
            AssertionError,
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
        ) as error:  # an own module
            if is_out_of_memory(error):
                raise
            name = self.config.backbone
            reason = f"{type(error).__name__}: {first_line(error)}"
            raise UserError(f"The backbone {name!r} fails on {describe_batch(inputs)} ({reason}).") from error
        return check_features(features, self.config.backbone, self.head.in_features)

    def feature_maps(self, images: Tensor) -> Tensor:
        """The backbone's last map (B, C, h', w') float32, of a transformer its tokens, of images (B, 3, h, w)."""
        if self.config.inputs.kind != "images" or self.config.inputs.channels != 3:
            raise UserError(f"Feature maps are those of RGB images; this model takes {self.config.inputs}.")
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

    def _normalize(self, inputs: Any) -> Any:  # noqa: ANN401 - a tensor, or a batch of any kind
        form = self.config.inputs
        if form.kind not in ("images", "vectors"):
            return inputs
        standardized = (inputs.float() - self.mean) / self.std
        if form.kind == "images":
            return standardized.contiguous(memory_format=torch.channels_last)
        if form.missing == "refuse":
            return standardized
        return torch.where(standardized.isnan(), 0, standardized)  # 0 is the mean of a standardised column

    def _pass_backbone(self, inputs: Any) -> Any:  # noqa: ANN401 - a tensor, or a batch of any kind
        """What the backbone makes of inputs, in the type of its own weights, where that has fewer bits."""
        normalized = self._normalize(inputs)
        if isinstance(normalized, Tensor) and normalized.is_floating_point():
            own = next((one.dtype for one in self.backbone.parameters() if one.is_floating_point()), torch.float32)
            normalized = normalized.to(own) if own in _HALF else normalized
        return self.backbone(normalized)

    def embed_features(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of backbone features (B, F)."""
        if features.dtype in _HALF and not torch.is_autocast_enabled(features.device.type):
            features = features.to(self.head.weight.dtype)
        embeddings: Tensor = self.head(features)
        return functional.normalize(embeddings.float(), dim=1) if self.config.normalize else embeddings

    def forward(self, inputs: Any) -> Tensor:  # noqa: ANN401 - a tensor, or a batch of any kind
        """Embeddings (B, D) of images (B, 3, h, w) in 0..255, vectors (B, V), tensors (B, ...) or a batch."""
        return self.embed_features(self.features(inputs))

    def embed(self, inputs: AnyInputs, *, batch_size: int | None = None, bar: str = "") -> Float32:
        """Embed images of any sizes, or vectors or tensors of the model's shape."""
        return self._by_batches(self.forward, inputs, batch_size, bar)

    def as_embeddings(self, inputs: Any) -> Float32:  # noqa: ANN401 - inputs or embeddings
        """Embed inputs that are not embeddings already."""
        if self.are_embeddings(inputs):
            return np.ascontiguousarray(inputs, np.float32)
        return self.embed(inputs, bar="embed")

    def are_embeddings(self, inputs: Any) -> bool:  # noqa: ANN401 - inputs or embeddings
        """Whether inputs can only be embeddings: an array of another shape than the model's inputs have."""
        form = self.config.inputs
        sizes = {self.config.dimension} - {*form.shape}
        is_matrix = isinstance(inputs, np.ndarray) and inputs.ndim == 2
        return is_matrix and (form.kind == "images" or inputs.shape[1] in sizes)

    @contextlib.contextmanager
    def use_forward_pass(self, how: ForwardPass) -> Iterator[None]:
        """Compute embeddings in another way within the block."""
        before, self.forward_pass = self.forward_pass, how
        undo = compile_module(self.backbone) if how.compile and not before.compile else lambda: None
        try:
            yield
        finally:
            undo()
            self.forward_pass = before

    def open(self, inputs: AnyInputs) -> Inputs:
        """Open inputs as it reads them."""
        size = stored_size(self.config.image_size, self.config.crop)
        return open_inputs(inputs, self.config.inputs, size, self.collate, self.forward_pass.decode)

    def extract(self, inputs: AnyInputs, *, batch_size: int | None = None, bar: str = "") -> Float32:
        """Compute the backbone features of inputs."""
        return self._by_batches(self.features, inputs, batch_size, bar)

    def standardize(self, inputs: AnyInputs, *, bar: str = "") -> Float32:
        """Standardise vectors by the mean and standard deviation of the training vectors."""
        self._check_takes_vectors()
        return self._by_batches(self._normalize, inputs, None, bar)

    def fill_missing(self, inputs: AnyInputs, *, bar: str = "") -> Float32:
        """Read vectors in their own units; a missing number becomes the mean of its column in the training vectors."""
        self._check_takes_vectors()
        return self._by_batches(self._fill, inputs, None, bar)

    def standardize_in_parts(self, inputs: AnyInputs) -> Float32 | ComputedRows:
        """Standardise vectors as ``standardize`` does; many of them part by part, as they are read."""
        self._check_takes_vectors()
        return self._compute_in_parts(self._normalize, inputs)

    def fill_missing_in_parts(self, inputs: AnyInputs) -> Float32 | ComputedRows:
        """Read vectors as ``fill_missing`` does; many of them part by part, as ``standardize_in_parts`` does."""
        self._check_takes_vectors()
        return self._compute_in_parts(None if self.config.inputs.missing == "refuse" else self._fill, inputs)

    def _check_takes_vectors(self) -> None:
        if self.config.inputs.kind != "vectors":
            raise UserError(f"Only vectors are standardised; this model takes {self.config.inputs}.")

    def _fill(self, vectors: Tensor) -> Tensor:
        filled = vectors.float()
        return filled if self.config.inputs.missing == "refuse" else torch.where(filled.isnan(), self.mean, filled)

    def _compute_in_parts(
        self, compute: Callable[[Tensor], Tensor] | None, inputs: AnyInputs
    ) -> Float32 | ComputedRows:
        """Compute rows of vectors, many of them part by part; None takes them as they are."""
        opened = open_inputs(inputs, self.config.inputs, self.config.image_size)
        shape = len(opened), *self.config.inputs.shape
        if not isinstance(opened, Vectors) or opened.reads_anew or math.prod(shape) <= _MOST_IN_MEMORY:
            return self._by_batches(compute or Tensor.float, opened, None, "")
        if compute is None:
            return ComputedRows((shape[0], shape[1]), opened.read)

        @torch.inference_mode()
        def compute_part(rows: slice | Int64) -> Float32:
            items = np.arange(*rows.indices(shape[0])) if isinstance(rows, slice) else rows
            part: Float32 = compute(to_device(opened.read(items), self.mean.device)).cpu().numpy()
            return part

        return ComputedRows((shape[0], shape[1]), compute_part)

    @torch.inference_mode()
    def embed_feature_rows(self, features: Float32, *, batch_size: int = 64) -> Float32:
        """Embed images whose backbone features are known."""
        parts = torch.split(torch.from_numpy(features).to(self.mean.device), batch_size)
        return np.concatenate([self.embed_features(part).float().cpu().numpy() for part in parts])

    @torch.inference_mode()
    def _by_batches(
        self, compute: Callable[[Any], Tensor], source: AnyInputs, batch_size: int | None, bar: str
    ) -> Float32:
        form = self.config.inputs
        inputs = self.open(source)
        step = batch_size or (_VECTORS_A_PASS if form.kind == "vectors" else _IMAGES_A_PASS)
        results = np.empty((0, self.config.dimension), np.float32)

        def read(start: int) -> Any:  # noqa: ANN401 - a batch of any kind
            batch = inputs.read(np.arange(start, min(start + step, len(inputs))))
            batch = center_box(batch, self.config.image_size) if form.kind == "images" else batch
            return pin_batch(batch, self.mean.device)

        unit = form.kind.removesuffix("s")
        shown = ProgressBar(total=len(inputs), desc=bar, unit=unit, delay=BAR_DELAY, leave=False, disable=not bar)
        # the reader decodes the next batch during the network's pass
        cast = use_precision(self.forward_pass.precision, self.mean.device)
        with evaluating(self), cast, shown, ThreadPoolExecutor(1) as reader:
            upcoming = reader.submit(read, 0)
            for start in range(0, len(inputs), step):
                batch = upcoming.result()
                if start + step < len(inputs):
                    upcoming = reader.submit(read, start + step)
                result = compute(to_device(batch, self.mean.device)).float().cpu().numpy()
                count = min(step, len(inputs) - start)
                check_rows(len(result), count)
                if isinstance(inputs, Vectors | Tensors) and not np.isfinite(result).all():
                    inputs.check(np.arange(start, start + count))
                if start == 0:  # which says how many numbers there are to a row
                    results = np.empty((len(inputs), *result.shape[1:]), np.float32)
                results[start : start + count] = result
                shown.update(count)
        return results
