"""Features of a frozen backbone, read or computed once; and a dataset whose items are the features of a store.

They are the ImageNet row of every evaluation, and ``freeze_backbone`` trains its head on them. The cache lies below
``$CML_CACHE`` (default ``~/.cache/cml``). Its keys depend on the image files, the backbone, all weights and the image
size.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float32
from cml.data.images import PIXELS, Images
from cml.data.input_form import Inputs
from cml.data.prepared import PreparedDataset
from cml.data.texts import Texts
from cml.data.vectors import Vectors
from cml.errors import DataError, UserError
from cml.feature_store.manifest import MANIFEST, digest_network, name_network
from cml.feature_store.networks import SENTENCES, BackboneNetwork
from cml.feature_store.store import FeatureStore
from cml.feature_store.stored_items import FileItems, JoinedVectors
from cml.feature_store.text_features import frozen_text_features
from cml.feature_store.write_store import write_features
from cml.models.embedding import EmbeddingModel
from cml.models.weights import backbone_fingerprint
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


def frozen_rows(
    model: EmbeddingModel,
    inputs: Inputs,
    *,
    bar: str = "",  # title of a progress bar; "" for none
) -> Float32:  # features (N, F), those of ``model.extract``
    """Compute the features of a frozen backbone, or read them from the cache: those of texts and of image files."""
    if isinstance(inputs, Texts):
        return frozen_text_features(model, inputs.read(np.arange(len(inputs))), bar=bar)
    if isinstance(inputs, Images) and inputs.paths is not None and inputs.decode == "exact":  # as the cache holds them
        return frozen_features(model, inputs.paths, bar=bar)
    return model.extract(inputs, bar=bar)


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
    if config.weights == "none" or model.forward_pass.departures:
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


NETWORK, NETWORK_SHA256 = "features_of", "features_sha256"  # what made_of says of the network


def with_features(dataset: PreparedDataset, store: FeatureStore) -> PreparedDataset:
    """Put the features of a store in place of the items of a dataset, which are found by their content."""
    vectors = {role: store.select(store.find(_read_items(dataset, role, store))) for role in dataset.info.roles}
    return dataset.with_vectors(vectors, describe_network(store))


def describe_network(store: FeatureStore) -> dict[str, str]:
    """Describe the network of a store for the config of a run."""
    made_by = store.manifest["made_by"]
    return {NETWORK: name_network(made_by), NETWORK_SHA256: digest_network(made_by)}


def check_network(store: FeatureStore, made_of: Mapping[str, Any], subject: str) -> None:
    """Check that the network of a store is the one whose features a model takes."""
    there, wanted = describe_network(store), {name: str(made_of.get(name)) for name in (NETWORK, NETWORK_SHA256)}
    if there[NETWORK_SHA256] == wanted[NETWORK_SHA256]:
        return
    name = there[NETWORK] if there[NETWORK] != wanted[NETWORK] else "other weights or code of the same name"
    raise UserError(
        f"The feature store {store.folder} was made by {name}, but {subject} takes features of {wanted[NETWORK]}. Name "
        "another store with --features."
    )


def explain_new_items(store: FeatureStore) -> str:
    """Explain what embedding new items needs where a model takes the features of a store."""
    made_by = store.manifest["made_by"]
    name, size = name_network(made_by), store.manifest["features"]
    is_text = made_by["kind"] == "texts"
    what, option = ("texts", "--texts FILE") if is_text else ("images", "--images FOLDER")
    how = f"'cml features {option} --backbone {name} --out STORE' computes those of new {what}"
    if not name.startswith(SENTENCES):
        call = f"cml.features(items, backbone={name}, out=...)"
        how = f"compute those of new items by {call}, as the run does not hold the network"
    return f"The model takes the {size} features of {name}: {how}; model.embed(store.select()) embeds them."


def _read_items(dataset: PreparedDataset, role: str, store: FeatureStore) -> Any:  # noqa: ANN401 - what stores take
    split = dataset.split(role)
    if store.manifest["made_by"]["kind"] != "texts":
        return list(split.paths) if split.vectors is None else JoinedVectors([split.vectors])
    return read_stored_texts(dataset, role, store)


def read_stored_texts(dataset: PreparedDataset, role: str, store: FeatureStore) -> list[str]:
    """Read the texts of a dataset that a store holds features of."""
    column = store.manifest.get("text_column")
    if column is None:
        raise UserError(
            f"The feature store {store.folder} was made of a list of texts: nothing says which column of "
            f"{dataset.folder} holds them. Run 'cml features --data {dataset.folder} --text-column NAME'."
        )
    return dataset.read_texts(role, column)
