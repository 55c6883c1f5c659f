"""Features of a frozen backbone: read from a store, or computed once into the cache, which is made of such stores.

They are the ImageNet row of every evaluation, and ``freeze_backbone`` trains its head on them. The cache lies below
``$CML_CACHE`` (default ``~/.cache/cml``). Its keys depend on the image files, the backbone, all weights and the image
size.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cml.array_types import Float32
from cml.data.images import PIXELS
from cml.data.vectors import Vectors
from cml.errors import DataError
from cml.feature_store.manifest import MANIFEST
from cml.feature_store.networks import BackboneNetwork
from cml.feature_store.store import FeatureStore
from cml.feature_store.stored_items import FileItems
from cml.feature_store.write_store import write_features
from cml.models.embedding import EmbeddingModel
from cml.models.weights_fingerprint import backbone_fingerprint
from cml.storage.atomic import delete
from cml.storage.downloads import cache_folder
from cml.storage.resumable_output import DifferentSettingsError, work_path
from cml.storage.work_folder import FolderError


def frozen_features(
    model: EmbeddingModel,
    paths: Sequence[Path],
    *,
    bar: str = "",  # title of a progress bar; "" for none
) -> Float32:  # features (N, F), those of ``model.extract``
    """Compute the backbone features of image files, or read them from the cache if the weights are published ones."""
    folder = cached_store(model, paths)
    if folder is None or not len(paths):
        return model.extract(paths, bar=bar)
    if (folder / MANIFEST).exists():
        try:
            return _read_all(FeatureStore.open(folder))
        except DataError:  # damaged
            delete(folder)
    elif folder.is_file() or (any(folder.glob("*.npy")) and not work_path(folder).exists()):
        delete(folder)  # its manifest was lost
    items, network = FileItems(paths), BackboneNetwork(model)
    try:
        try:
            store = write_features(items, network, folder, bar=bar, wait=True)
        except DifferentSettingsError:  # begun with the same weights under another name, or by another version
            delete(folder)
            store = write_features(items, network, folder, bar=bar, wait=True)
        return _read_all(store)
    except (OSError, FolderError):  # a cache that cannot be written costs only time
        return model.extract(paths, bar=bar)


def stored_features(
    store: FeatureStore,
    model: EmbeddingModel,
    paths: Sequence[Path],
    subject: str = "the features of this model's backbone",
) -> Vectors:
    """Select the features (N, F) of image files, which stay in the files of a store that the model's backbone made."""
    store.check_made_by(BackboneNetwork(model).made_by, subject)
    return store.select(store.find(paths))


def cached_store(model: EmbeddingModel, paths: Sequence[Path]) -> Path | None:
    """Name the store of the cache for the features of image files."""
    config = model.config
    if config.weights == "none":
        return None
    digest = hashlib.sha256(f"{backbone_fingerprint(model)} {config.image_size} {config.crop} {PIXELS}".encode())
    for path in paths:
        try:
            stat = path.stat()
        except OSError:  # reading the image will say what is wrong
            return None
        digest.update(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return cache_folder() / "features" / digest.hexdigest()[:32]


def _read_all(store: FeatureStore) -> Float32:
    return store.select().read(np.arange(len(store)))
