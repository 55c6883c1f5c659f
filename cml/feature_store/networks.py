"""What computes features: a backbone, a sentence model, or a function of the user's own."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import nn

from cml.array_types import Float32
from cml.data.bands import upright_rgb
from cml.data.dataset_items import DatasetItems
from cml.data.image_sources import as_array
from cml.data.images import PIXELS
from cml.data.input_form import Collate
from cml.data.items import Items
from cml.data.open_image import read_upright
from cml.errors import UserError
from cml.feature_store.manifest import MadeBy, list_departures
from cml.models.backbone import Backbone
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.models.weights import backbone_fingerprint
from cml.processes.own_generator import draw_from
from cml.word_vectors.sentence_model import encode_images, encode_texts, model_sha256, takes_images

SENTENCES = "sentences/"  # before the name of a sentence model
HUB = "sentence-transformers/"  # the hub's own models, whose names begin so
_IMAGES_A_PASS = 64


class FeatureNetwork(Protocol):
    """What computes features."""

    made_by: MadeBy  # its description, by which a store tells whether another one made it
    chunk: int  # items after which the work so far is recorded, a multiple of the items of a pass

    def extract(self, items: Any) -> Float32:  # noqa: ANN401 - what the network takes
        """Compute the features (n, F) of some items."""
        ...


class BackboneNetwork:
    """The backbone of a model, on images, vectors, tensors or items of any kind."""

    def __init__(self, model: EmbeddingModel) -> None:
        config = model.config
        kind = config.inputs.kind
        self.chunk = (16 if kind == "vectors" else 1) * 1024  # 16 passes
        fingerprint = backbone_fingerprint(model)
        departures = list_departures(model.forward_pass.departures)
        if model.collate is not None:
            fingerprint = hashlib.sha256(f"{fingerprint}\n{_describe_code(model.collate)}".encode()).hexdigest()
        self.made_by: MadeBy = {
            "kind": "objects" if kind == "items" else kind,
            "backbone": config.backbone,
            "weights": config.weights,
            "fingerprint": fingerprint,
            "image_size": list(config.image_size) if kind == "images" else [],
            "crop": config.crop if kind == "images" else 1.0,
            "preprocessing": PIXELS if kind == "images" else 0,
            **departures,
        }
        self._model = model

    def extract(self, items: Any) -> Float32:  # noqa: ANN401
        """Features (n, F) of inputs."""
        if self._model.collate is None:
            return self._model.extract(items)
        return self._model.extract(Items(DatasetItems(items, labelled=False), self._model.collate))


class SentenceNetwork:
    """A sentence-transformers model, on texts."""

    chunk = 2048

    def __init__(self, model: str) -> None:
        self.made_by: MadeBy = {
            "kind": "texts",
            "backbone": f"{SENTENCES}{model}",
            "weights": "",
            "fingerprint": model_sha256(model),
            "image_size": [],
            "crop": 1.0,
            "preprocessing": 0,
        }
        self._model = model

    def extract(self, items: Sequence[str]) -> Float32:
        """Vectors (n, F) of texts."""
        for item in items:
            if not isinstance(item, str):
                raise UserError(f"A sentence model takes texts. Got {type(item).__name__} instead.")
        return encode_texts(self._model, items)


class SentenceImageNetwork:
    """A sentence-transformers model that takes images, such as CLIP, on images."""

    chunk = 1024

    def __init__(self, model: str, device: str = "cpu") -> None:
        if not takes_images(model):
            raise UserError(f"The sentence model {model!r} takes texts, not images: give a list of texts.")
        self.made_by: MadeBy = {
            "kind": "images",
            "backbone": f"{SENTENCES}{model}",
            "weights": "",
            "fingerprint": model_sha256(model),
            "image_size": [],  # the model's own
            "crop": 1.0,
            "preprocessing": PIXELS,
        }
        self._model, self._device = model, device

    def extract(self, items: Sequence[Any]) -> Float32:
        """Vectors (n, F) of images: files, Pillow images, or arrays (H, W, 3) uint8."""
        rows = []
        for start in range(0, len(items), _IMAGES_A_PASS):
            images = [_as_picture(item) for item in items[start : start + _IMAGES_A_PASS]]
            rows.append(encode_images(self._model, images, self._device))
        return np.concatenate(rows)


def _as_picture(item: Any) -> Image.Image:  # noqa: ANN401 - of the user
    """An image of any kind that a sentence model is given, as RGB."""
    if isinstance(item, Path):
        return read_upright(item)
    if isinstance(item, Image.Image):
        return upright_rgb(item)
    array = as_array(item)
    if array is None or array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3:
        got = type(item).__name__ if array is None else f"{array.dtype} {array.shape}"
        raise UserError(f"An image must be a path, a Pillow image or uint8 (H, W, 3). Got {got} instead.")
    return Image.fromarray(array)


def _name_code(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _describe_code(function: Callable[..., Any]) -> str:
    """Name and source of a function or of the class of a callable object."""
    try:
        source = inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):  # typed into an interpreter, or compiled
        source = ""
    return f"{_name_code(function)}\n{source}"


class FunctionNetwork:
    """A function of the user's own.

    Its fingerprint is that of its name and source; what it reads elsewhere, such as weights, is not part of it.
    """

    chunk = 4096

    def __init__(
        self,
        function: Callable[[Any], Any],
        # joins a list of items to what the function takes; None for slices of the items
        collate: Collate | None = None,
    ) -> None:
        code = _describe_code(function)
        if collate is not None:
            code = f"{code}\n{_describe_code(collate)}"
        self.made_by: MadeBy = {
            "kind": "objects",
            "backbone": _name_code(function),
            "weights": "",
            "fingerprint": hashlib.sha256(code.encode()).hexdigest(),
            "image_size": [],
            "crop": 1.0,
            "preprocessing": 0,
        }
        self._function, self._collate = function, collate

    def extract(self, items: Any) -> Float32:  # noqa: ANN401
        """Features (n, F) of items, as the function returns them."""
        name = self.made_by["backbone"]
        batch = items
        if self._collate is not None:
            batch = Items(DatasetItems(items, labelled=False), self._collate).read(np.arange(len(items)))
        returned = self._function(batch)
        rows = as_array(returned)
        if rows is None and isinstance(returned, list | tuple):
            widths = {np.shape(row) for row in returned}
            if len(widths) > 1:
                raise UserError(f"The function {name!r} must return rows of one length. Got {sorted(widths)} instead.")
            rows = np.asarray(returned)
        if rows is None or rows.dtype.kind not in "fiu" or rows.ndim != 2 or len(rows) != len(items):
            shape = type(returned).__name__ if rows is None else f"{rows.dtype} {rows.shape}"
            raise UserError(
                f"The function {name!r} must return a row of numbers for each of {len(items)} items, ({len(items)}, F)."
                f" Got {shape} instead."
            )
        return np.ascontiguousarray(rows, np.float32)


def build_model(
    config: ModelConfig,
    device: str,
    backbone: nn.Module | Backbone | None = None,
    example: Any = None,  # noqa: ANN401 - a batch of any kind
) -> EmbeddingModel:
    """Build a model for its backbone; random weights are the same ones each time."""
    with draw_from(torch.Generator().manual_seed(0)):
        return EmbeddingModel(config, backbone=backbone, example=example).to(device).eval()
