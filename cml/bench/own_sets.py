"""Prepared datasets of the user's own as sets of the benchmark, beside those of the suite."""

import re
from collections.abc import Sequence
from pathlib import Path

from cml.bench.suite import NO_BACKBONE, OWN, SETS, SetSpec
from cml.data.prepared import PreparedDataset
from cml.errors import UserError


def add_own_sets(folders: Sequence[Path]) -> list[str]:
    """Make prepared datasets known as sets, in this process.

    Args:
        folders: Their folders.

    Returns:
        The name of each set: ``own-`` and the name of its folder.

    Raises:
        DataError: a folder holds no prepared dataset.
        UserError: two of them have one name.
    """
    names = []
    for folder in folders:
        dataset = PreparedDataset.open(folder)
        place = dataset.folder.resolve()
        name = OWN + re.sub(r"[^\w.-]", "-", place.name)
        if name in SETS and SETS[name].folder != str(place):
            raise UserError(
                f"{SETS[name].folder} and {place} would both be the set {name!r}, which is named after the folder: "
                "rename one of them."
            )
        SETS[name] = SetSpec("", dataset.info.task, tier="own", folder=str(place), input_kind=dataset.info.inputs.kind)
        names.append(name)
    return names


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
