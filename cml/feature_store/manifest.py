"""What the manifest of a feature store says (docs/reference/formats.md)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from cml.storage.saved_options import Count

MANIFEST, ITEMS = "manifest.json", "items.jsonl"
FeatureType = Literal["float32", "float16"]
SourceKind = Literal["images", "vectors", "tensors", "texts", "objects"]
ROWS_PER_SHARD = 1 << 16


class MadeBy(TypedDict):
    """The network that computed the features.

    Attributes:
        kind: What it takes; ``objects`` for a function of the user's own.
        backbone: Its name: that of a backbone, ``sentences/MODEL``, or that of the function.
        weights: Its weights, as for ``cml.models.get``; "" for others than backbones.
        fingerprint: Digest of its weights, or of the function's code.
        image_size: [height, width] in pixels; [] for other inputs than images.
        crop: Fraction of an image's sides that is used.
        preprocessing: Version of the pixels that an image file becomes; 0 for other inputs.
    """

    kind: SourceKind
    backbone: str
    weights: str
    fingerprint: str
    image_size: list[int]
    crop: float
    preprocessing: Count


class Shard(TypedDict):
    """A file of some rows.

    Attributes:
        file: Its name.
        rows: The number of its rows.
        sha256: Its digest.
    """

    file: str
    rows: Count
    sha256: str


class Manifest(TypedDict):
    """manifest.json of a feature store.

    Attributes:
        kind: ``features``.
        root: The folder of the items' files; "" where they are no files of one folder.
        items: N.
        features: F, the numbers of a row.
        dtype: Their type.
        text_column: The column of the dataset whose texts the items are, if they are such.
        made_by: The network.
        rows_per_shard: Rows of each shard but the last.
        items_fingerprint: Digest of ids, names, sizes and times of the items when they were read.
        items_sha256: Digest of items.jsonl.
        shards: The files in the order of their rows.
    """

    kind: Literal["features"]
    root: str
    items: Count
    features: Count
    dtype: FeatureType
    text_column: NotRequired[str]
    made_by: MadeBy
    rows_per_shard: Count
    items_fingerprint: str
    items_sha256: str
    shards: list[Shard]


class StoredItem(msgspec.Struct, frozen=True):
    """A line of items.jsonl.

    Attributes:
        item_id: Its id.
        sha256: Digest of its content: of the file, the text in UTF-8, or the bytes of the array.
        file_name: Its file, below the root of the manifest, or absolute; "" for an item that is no file.
        size: Bytes of the file.
        mtime_ns: When the file was changed, in nanoseconds since 1970.
    """

    item_id: str
    sha256: str
    file_name: str = ""
    size: int = 0
    mtime_ns: int = 0


def digest_network(made_by: Mapping[str, Any]) -> str:
    """Compute a digest of what decides the features of an item.

    Args:
        made_by: What a manifest says of the network.

    Returns:
        64 hex digits.
    """
    terms = [made_by[name] for name in ("kind", "fingerprint", "image_size", "crop", "preprocessing")]
    return hashlib.sha256(json.dumps(terms).encode()).hexdigest()


def shard_name(number: int) -> str:
    """Name a shard.

    Args:
        number: Its number, from 0.

    Returns:
        The name of its file.
    """
    return f"features-{number:05d}.npy"


def name_network(made_by: Mapping[str, Any]) -> str:
    """Name a network for messages.

    Args:
        made_by: What a manifest says of it.

    Returns:
        Such as ``efficientnet-lite0 (weights imagenet, 224 x 224 pixels)``.
    """
    details = []
    if made_by["weights"]:
        details.append(f"weights {made_by['weights']}")
    if made_by["image_size"]:
        details.append("{} x {} pixels".format(*made_by["image_size"]))
    if made_by["crop"] != 1:
        details.append(f"crop {made_by['crop']}")
    return f"{made_by['backbone']} ({', '.join(details)})" if details else str(made_by["backbone"])
