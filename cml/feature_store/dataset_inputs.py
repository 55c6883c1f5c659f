"""A prepared dataset whose items are the features of a store, in place of its images, vectors or texts."""

from collections.abc import Mapping
from typing import Any

from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.feature_store.manifest import digest_network, name_network
from cml.feature_store.networks import SENTENCES
from cml.feature_store.store import FeatureStore
from cml.feature_store.stored_items import JoinedVectors

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
