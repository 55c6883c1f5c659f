"""Prepared datasets of the user's own as sets of the benchmark, beside those of the suite."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cml.bench.suite import NO_BACKBONE, OWN, SETS, SetSpec
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.feature_store.store import FeatureStore


def add_own_sets(folders: Sequence[Path], stores: Sequence[Path] = ()) -> list[str]:
    """Make prepared datasets known as sets, in this process.

    Args:
        folders: Their folders.
        stores: Folders of feature stores whose rows take the place of the items: each makes a set of each dataset.

    Returns:
        The name of each set: ``own-`` and the name of its folder, with that of the store.

    Raises:
        DataError: a folder holds no prepared dataset, or no feature store.
        UserError: two of them have one name, or there are stores without datasets.
    """
    if stores and not folders:
        raise UserError("--features are those of the items of a dataset of your own: name the dataset with --data.")
    names = []
    for folder in folders:
        dataset = PreparedDataset.open(folder)
        place = dataset.folder.resolve()
        own = SetSpec("", dataset.info.task, tier="own", folder=str(place), input_kind=dataset.info.inputs.kind)
        if not stores:
            names.append(_add_set(place.name, own))
        for store in stores:
            there = FeatureStore.open(store).folder.resolve()
            names.append(
                _add_set(f"{place.name}-{there.name}", replace(own, features=str(there), input_kind="vectors"))
            )
    return names


def _add_set(name: str, spec: SetSpec) -> str:
    """Add a set under a name that file names can have; an error if another set has it."""
    name = OWN + re.sub(r"[^\w.-]", "-", name)
    if name in SETS and (SETS[name].folder, SETS[name].features) != (spec.folder, spec.features):
        raise UserError(
            f"{_describe_place(SETS[name])} and {_describe_place(spec)} would both be the set {name!r}, which is named "
            "after the folder: rename one of them."
        )
    SETS[name] = spec
    return name


def _describe_place(spec: SetSpec) -> str:
    return f"{spec.folder} with {spec.features}" if spec.features else spec.folder


def choose_backbone(sets: Sequence[str], track: str, backbone: str) -> str:
    """Choose the backbone for sets of images or of vectors.

    Args:
        sets: Names of the sets.
        track: "A" or "B".
        backbone: That of the user; "" for none.

    Returns:
        ``none`` for vectors, whose features are the standardised vectors; else as given.

    Raises:
        UserError: some sets hold images and others vectors, or the track or the backbone does not suit vectors.
    """
    vectors = [name for name in sets if SETS[name].input_kind == "vectors"]
    if not vectors:
        return backbone
    images = [name for name in sets if name not in vectors]
    if images:
        raise UserError(
            f"{vectors[0]} holds vectors and {images[0]} images, which take different backbones: run them separately."
        )
    if track != "A" or backbone not in ("", NO_BACKBONE):
        raise UserError(
            f"{vectors[0]} holds vectors: the benchmark trains linear heads on them, which is track A with the "
            f"backbone {NO_BACKBONE!r}. Got track {track} and the backbone {backbone!r} instead."
        )
    return NO_BACKBONE
