"""The items of an export or a search by the features of a store, for models of images and models of such features."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cml.array_types import Float32
from cml.data.dataset_info import INFO
from cml.data.image_list import ImageList
from cml.data.prepared import PreparedDataset
from cml.doors.model import Model
from cml.errors import UserError
from cml.feature_store.frozen_features import NETWORK, check_network, read_stored_texts, stored_features
from cml.feature_store.store import FeatureStore


def list_from_store(images: ImageList, folder: Path, model: Model, run: Path) -> ImageList:
    """Take the features of items from a store, so that no image is read."""
    store = FeatureStore.open(folder)
    if not _takes_features(store, model, run):
        if images.rows:
            kind = images.rows[0][0].form.kind
            raise UserError(f"The model takes images, but {images.source} holds {kind}: leave --features out.")
        return replace(images, features=stored_features(store, model.network, images.paths, f"the features of {run}"))
    return _with_vectors(images, store)


def _with_vectors(images: ImageList, store: FeatureStore) -> ImageList:
    """Put the features of a store, of images, vectors or the texts of the dataset, in place of the items."""
    if store.manifest["made_by"]["kind"] == "texts":
        if not (images.root / INFO).is_file():
            raise UserError(f"The feature store {store.folder} is of texts, but {images.root} holds images.")
        dataset = PreparedDataset.open(images.root)
        texts: dict[str, str] = {}
        for role in dataset.info.roles:
            texts |= zip(dataset.split(role).item_ids, read_stored_texts(dataset, role, store), strict=True)
        positions = store.find([texts[item_id] for item_id in images.item_ids])
    else:
        positions = store.find(np.stack(images.read(0, len(images))) if images.rows else images.paths)
    selected = store.select(positions)
    return replace(images, rows=tuple((selected, item) for item in range(len(images))))


def embed_from_store(
    paths: tuple[Path, ...],  # N image files
    folder: Path,
    model: Model,
    run: Path,
) -> Float32:  # embeddings (N, D)
    """Embed image files by their features in a store."""
    store = FeatureStore.open(folder)
    if _takes_features(store, model, run):
        return model.embed(store.select(store.find(paths)))
    features = stored_features(store, model.network, paths, f"the features of {run}")
    return model.network.embed_feature_rows(features.read(np.arange(len(features))))


def _takes_features(store: FeatureStore, model: Model, run: Path) -> bool:
    """Whether a model takes the features of a store themselves, or images whose features they are."""
    made_of = model.run_config.made_of
    if NETWORK in made_of:
        check_network(store, made_of, str(run))
        return True
    if model.config.inputs.kind != "images":
        raise UserError(f"{run} takes {model.config.inputs} that are no features of a store: leave --features out.")
    return False
