"""``cml.features``: the features of images, texts, vectors or other items, computed once into a feature store."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from cml import tasks
from cml.data.dataset_info import INFO, TEXT
from cml.data.dataset_items import DatasetItems, unlabelled_items
from cml.data.image_list import ImageList
from cml.data.input_form import AcceptedInputs, Collate, FieldNames, InputForm
from cml.data.input_sources import recognize_inputs
from cml.data.items import Items
from cml.data.prepared import ROLES, PreparedDataset
from cml.errors import UserError
from cml.feature_store.manifest import FeatureType
from cml.feature_store.networks import (
    HUB,
    SENTENCES,
    BackboneNetwork,
    FeatureNetwork,
    FunctionNetwork,
    SentenceImageNetwork,
    SentenceNetwork,
    build_model,
)
from cml.feature_store.store import FeatureStore
from cml.feature_store.stored_items import FileItems, JoinedVectors, StoredItems, ValueItems
from cml.feature_store.write_store import write_features
from cml.models import CUSTOM, Backbone, has_published_weights
from cml.models.embedding import ModelConfig
from cml.models.forward_pass import EXACT, ForwardPass, compile_module
from cml.processes.exactness import Decode, Precision
from cml.processes.init_processes import init_processes
from cml.streams.labelled_stream import is_stream
from cml.training.config import TrainConfig
from cml.word_vectors.sentence_model import takes_images

_DEFAULT = TrainConfig()


def features(
    inputs: Any,  # noqa: ANN401 - the kinds listed below
    *,
    backbone: str | nn.Module | Backbone | Callable[[Any], Any] = _DEFAULT.backbone,
    out: Path | str,
    weights: str = _DEFAULT.weights,
    image_size: tuple[int, int] | None = None,
    crop: float | None = None,
    dtype: FeatureType = "float32",
    splits: Sequence[str] = ROLES,
    text_column: str | None = None,
    collate: Collate | None = None,
    decode: Decode = "exact",
    precision: Precision = "float32",
    compile: bool = False,
    device: str = "auto",
    quiet: bool = False,
) -> FeatureStore:
    """Compute the features of N items once, into a store that training, evaluation and comparisons read.

    A call that was killed is continued by the same call; a call for a finished store computes nothing. A script that
    calls this may be started by torchrun: its processes then share the work.

    Args:
        inputs: A prepared dataset or its folder, a folder of images, or any images, vectors or tensors that ``cml.fit``
            takes; for a sentence model a list of texts or a prepared dataset that has some, for a function any sequence
            whose slices it takes: of a dataset or folder of images these are lists of paths.
        backbone: A backbone as for ``cml.fit``; ``sentences/MODEL``, where MODEL is ``all-minilm-l6-v2``, the folder of
            a sentence-transformers model or its name on the hub, such as ``sentence-transformers/clip-ViT-B-32``, which
            takes images too; or a function from a slice of the items to their features (n, F).
        out: Folder of the store.
        weights: Weights of the backbone, as for ``cml.fit``.
        image_size: (height, width) in pixels of the backbone's images; by default that of the recipe of the dataset's
            task, or 224 x 224.
        crop: Fraction of an image's sides that the backbone sees; by default that of the recipe, or 1.
        dtype: Type of the stored numbers: "float32", or "float16" for half of the space.
        splits: Splits of a prepared dataset: train, query, gallery.
        text_column: Column of a prepared dataset that holds the texts for a sentence model; by default its items if
            they are texts, else its label. A list of texts, such as several captions, is taken as one text of several
            lines.
        collate: A function that joins a list of items, such as graphs, sequences or mappings, to what a module or
            function of your own takes, with one row for each of them, as for ``cml.fit``. Inputs are then any list or
            ``Dataset``, which must read an item the same way each time; of (x, label) it is x.
        decode: "fast" decodes JPEGs at a half, a quarter or an eighth of their size where that is enough, which changes
            pixels slightly. The store remembers it.
        precision: "bfloat16" (autocast) or "tf32" (on GPUs) in place of "float32". The store remembers it.
        compile: Compile the backbone by torch.compile, which takes a minute or more.
        device: "auto", "cpu", "cuda" or another device of torch.
        quiet: No progress bar.

    Returns:
        The store: ``store.rows`` are its features (N, F), memory-mapped, and ``store.select()`` inputs for ``cml.fit``.

    Raises:
        UserError: Inputs and backbone do not fit each other, or ``out`` holds features of other items or of another
            network.

    Example:
        >>> store = cml.features("data/mine", backbone="efficientnet-lite0", out="stores/lite0", quiet=True)
        >>> store
        FeatureStore('stores/lite0', efficientnet-lite0 (weights imagenet, 224 x 224 pixels), 40 x 1280 float32)
    """
    if is_stream(inputs):
        raise UserError(
            "A feature store holds features of items that can be read again, which those of a stream cannot: take a "
            "part of the stream, list(itertools.islice(stream, 10_000)), or embed it by model.embed_stream."
        )
    with init_processes(device) as ranks:
        recipe = _recipe(inputs)
        image_size = recipe.image_size if image_size is None else image_size
        crop = recipe.crop if crop is None else crop
        items, network = _open(
            inputs,
            backbone,
            weights,
            image_size,
            crop,
            splits,
            text_column,
            collate,
            str(ranks.device),
            ForwardPass(decode, precision, compile),
        )
        title = "" if quiet or not ranks.first else "features"
        return write_features(items, network, Path(out), dtype=dtype, ranks=ranks, bar=title)


def _recipe(inputs: Any) -> TrainConfig:  # noqa: ANN401
    """The recipe of a dataset's task; the defaults for other inputs."""
    dataset = _open_dataset(inputs)
    if dataset is not None and dataset.info.task in tasks.names():
        return tasks.get(dataset.info.task).recipe
    return _DEFAULT


def _open(
    inputs: Any,  # noqa: ANN401
    backbone: str | nn.Module | Backbone | Callable[[Any], Any],
    weights: str,
    image_size: tuple[int, int],
    crop: float,
    splits: Sequence[str],
    text_column: str | None,
    collate: Collate | None,
    device: str,
    how: ForwardPass,
) -> tuple[StoredItems, FeatureNetwork]:
    """The items and the network, which decides what items may be."""
    is_sentences = isinstance(backbone, str) and backbone.startswith((SENTENCES, HUB))
    is_function = callable(backbone) and not isinstance(backbone, nn.Module)
    if how != EXACT and (is_sentences or is_function):
        name = "decode" if how.decode != "exact" else "precision" if how.precision != "float32" else "compile"
        what = "a sentence model" if is_sentences else "a function of your own"
        raise UserError(f"{name!r} is an option of backbones, and {what} computes by itself: leave it out.")
    if collate is not None and isinstance(backbone, str):
        raise UserError(f"What 'collate' joins needs a module or function of your own. Got {backbone!r} instead.")
    dataset = _open_dataset(inputs)
    if isinstance(backbone, str) and backbone.startswith((SENTENCES, HUB)):
        return _open_sentences(inputs, dataset, backbone.removeprefix(SENTENCES), splits, text_column, device)
    if text_column:
        raise UserError(f"'text_column' names the texts for a sentence model. Got the backbone {backbone!r} instead.")
    items = _open_items(dataset, inputs, splits)
    if items is None and collate is not None:
        is_list = isinstance(inputs, list | tuple)
        items = (
            _list_items(inputs)
            if is_list and inputs and isinstance(inputs[0], Path)
            else ValueItems(unlabelled_items(inputs, (), several=True, labelled=not is_list))
        )
    if callable(backbone) and not isinstance(backbone, nn.Module):
        return items or _list_items(inputs), FunctionNetwork(backbone, collate)
    own = None if isinstance(backbone, str) else backbone
    form = InputForm() if dataset is None else dataset.info.inputs
    example = None
    if items is not None and collate is not None:
        form = InputForm("items")
        count = min(2, len(items))
        example = Items(DatasetItems(items.take(0, count), labelled=False), collate).read(np.arange(count))
    if items is None:
        accepted = AcceptedInputs(own_backbone=own is not None)
        recognized = recognize_inputs(inputs, range(len(inputs)), FieldNames(), accepted).inputs
        form = getattr(recognized, "form", form)
        items = _list_items(recognized)
    name = CUSTOM if own is not None else str(backbone)
    if own is not None or not has_published_weights(name):
        weights = weights if weights != _DEFAULT.weights else "none"
    config = ModelConfig(name, weights, 2, False, image_size, crop, inputs=form)
    model = build_model(config, device, own, example)
    model.set_collate(collate)
    model.forward_pass = how
    if how.compile:
        compile_module(model.backbone)
    return items, BackboneNetwork(model)


def _open_sentences(
    inputs: Any,  # noqa: ANN401
    dataset: PreparedDataset | None,
    model: str,
    splits: Sequence[str],
    text_column: str | None,
    device: str,
) -> tuple[StoredItems, FeatureNetwork]:
    """Texts, or images for a sentence model that takes them."""
    if dataset is not None:
        if text_column or dataset.info.inputs.kind != "images" or not takes_images(model):
            return _open_texts(dataset, splits, text_column), SentenceNetwork(model)
    elif not isinstance(inputs, str | Path) and all(isinstance(item, str) for item in inputs):
        return ValueItems(inputs), SentenceNetwork(model)
    network = SentenceImageNetwork(model, device)
    return _open_items(dataset, inputs, splits) or _list_items(inputs), network


def _list_items(values: Any) -> StoredItems:  # noqa: ANN401
    """Files, where all values are paths, or other values."""
    is_paths = isinstance(values, Sequence) and all(isinstance(value, Path) for value in values)
    return FileItems(values) if is_paths else ValueItems(values)


def _open_dataset(inputs: Any) -> PreparedDataset | None:  # noqa: ANN401
    """A prepared dataset; None for other inputs."""
    if isinstance(inputs, str | Path) and (Path(inputs) / INFO).is_file():
        return PreparedDataset.open(inputs)
    return inputs if isinstance(inputs, PreparedDataset) else None


def _open_items(dataset: PreparedDataset | None, inputs: Any, splits: Sequence[str]) -> StoredItems | None:  # noqa: ANN401
    """The images or vectors of a dataset, or the images of a folder; None for other inputs."""
    if dataset is None:
        if not isinstance(inputs, str | Path) or Path(inputs).suffix == ".npy":
            return None
        images = ImageList.open(inputs)
        return FileItems(images.paths, images.item_ids, images.root)
    roles, ids, parts = _list_splits(dataset, splits)
    if dataset.info.inputs.kind == "images":
        paths = tuple(path.absolute() for role in roles for path in dataset.split(role).paths)
        return FileItems(paths, ids, dataset.folder.absolute(), parts)
    vectors = [dataset.split(role).vectors for role in roles]
    return ValueItems(JoinedVectors([part for part in vectors if part is not None]), ids, parts)


def _open_texts(dataset: PreparedDataset, splits: Sequence[str], column: str | None) -> StoredItems:
    """The texts of a dataset: those of a column, by default its items, or else its labels."""
    own = TEXT if dataset.info.inputs.kind == "texts" else dataset.info.label_column
    column = own if column is None else column
    roles, ids, parts = _list_splits(dataset, splits)
    texts = [text for role in roles for text in dataset.read_texts(role, column)]
    return ValueItems(texts, ids, parts, column)


def _list_splits(dataset: PreparedDataset, splits: Sequence[str]) -> tuple[list[str], list[str], list[int]]:
    """The roles whose items are taken, each item once; the ids of the items; and how many each role has."""
    is_double = dataset.info.queries_are_gallery and "query" in splits
    roles = [role for role in splits if not (is_double and role == "gallery") and len(dataset.split(role))]
    ids = [item_id for role in roles for item_id in dataset.split(role).item_ids]
    return roles, ids, [len(dataset.split(role)) for role in roles]
