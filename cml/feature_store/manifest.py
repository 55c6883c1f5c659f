"""What the manifest of a feature store says (docs/reference/formats.md), and its rows, which lie in several files."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from cml.array_types import Floating, Int64
from cml.processes.exactness import Decode, Precision
from cml.storage.saved_options import Count

MANIFEST, ITEMS = "manifest.json", "items.jsonl"
FeatureType = Literal["float32", "float16"]
SourceKind = Literal["images", "vectors", "tensors", "texts", "objects"]
ROWS_PER_SHARD = 1 << 16


class MadeBy(TypedDict):
    """The network that computed the features."""

    kind: SourceKind  # what it takes; ``objects`` for a function of the user's own
    backbone: str  # its name: that of a backbone, ``sentences/MODEL``, or that of the function
    weights: str  # its weights, as for ``cml.models.get``; "" for others than backbones
    fingerprint: str  # digest of its weights, or of the function's code
    image_size: list[int]  # [height, width] in pixels; [] for other inputs than images
    crop: float  # fraction of an image's sides that is used
    preprocessing: Count  # version of the pixels that an image file becomes; 0 for other inputs
    decode: NotRequired[Decode]  # the decoding of images, where it is not exact
    precision: NotRequired[Precision]  # the precision of the network, where it is not float32


class Departures(TypedDict, total=False):
    """What changes features, where it is not the default; see ``cml.models.forward_pass``."""

    decode: Decode
    precision: Precision


def list_departures(entries: Mapping[str, Any]) -> Departures:
    """List what changes features among the entries of a network's description."""
    return cast("Departures", {name: entries[name] for name in ("decode", "precision") if name in entries})


class Shard(TypedDict):
    """A file of some rows."""

    file: str  # its name
    rows: Count  # the number of its rows
    sha256: str  # its digest


class Manifest(TypedDict):
    """manifest.json of a feature store."""

    kind: Literal["features"]  # ``features``
    root: str  # the folder of the items' files; "" where they are no files of one folder
    items: Count  # N
    features: Count  # F, the numbers of a row
    dtype: FeatureType  # their type
    text_column: NotRequired[str]  # the column of the dataset whose texts the items are, if they are such
    made_by: MadeBy  # the network
    rows_per_shard: Count  # rows of each shard but the last
    items_fingerprint: str  # digest of ids, names, sizes and times of the items when they were read
    items_sha256: str  # digest of items.jsonl
    shards: list[Shard]  # the files in the order of their rows


class StoredItem(msgspec.Struct, frozen=True):
    """A line of items.jsonl."""

    item_id: str  # its id
    sha256: str  # digest of its content: of the file, the text in UTF-8, or the bytes of the array
    file_name: str = ""  # its file, below the root of the manifest, or absolute; "" for an item that is no file
    size: int = 0  # bytes of the file
    mtime_ns: int = 0  # when the file was changed, in nanoseconds since 1970


def digest_network(made_by: Mapping[str, Any]) -> str:
    """Compute a digest of what decides the features of an item."""
    terms = [made_by[name] for name in ("kind", "fingerprint", "image_size", "crop", "preprocessing")]
    if departures := list_departures(made_by):
        terms.append(departures)
    return hashlib.sha256(json.dumps(terms).encode()).hexdigest()


def shard_name(number: int) -> str:
    """Name a shard."""
    return f"features-{number:05d}.npy"


def name_network(made_by: Mapping[str, Any]) -> str:
    """Name a network for messages."""
    details = []
    if made_by["weights"]:
        details.append(f"weights {made_by['weights']}")
    if made_by["image_size"]:
        details.append("{} x {} pixels".format(*made_by["image_size"]))
    if made_by["crop"] != 1:
        details.append(f"crop {made_by['crop']}")
    details += [f"{name} {value}" for name, value in list_departures(made_by).items()]
    return f"{made_by['backbone']} ({', '.join(details)})" if details else str(made_by["backbone"])


class ShardedRows:
    """The rows (N, F) of several arrays, of which only those that are asked for are read."""

    ndim = 2

    def __init__(self, shards: Sequence[Floating]) -> None:
        self.shards = list(shards)
        self.starts = np.concatenate([[0], np.cumsum([len(shard) for shard in self.shards])])
        self.shape = (int(self.starts[-1]), self.shards[0].shape[1])
        self.dtype = self.shards[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, items: Any) -> Any:  # noqa: ANN401 - as of an array
        """Read rows: those of a slice or of an array of positions, or one number by (row, column)."""
        if isinstance(items, tuple):
            row, column = items
            return self[np.array([row])][0, column]
        if isinstance(items, slice):
            items = np.arange(len(self))[items]
        positions = np.asarray(items, np.int64)
        shard_of = self.shard_of(positions)
        rows = np.empty((len(positions), self.shape[1]), self.dtype)
        for number in np.unique(shard_of).tolist():
            chosen = shard_of == number
            rows[chosen] = self.shards[number][positions[chosen] - self.starts[number]]
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401 - NumPy's
        """Read all rows."""
        del copy  # they are always copied
        rows = np.concatenate(self.shards)
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def shard_of(
        self,
        positions: Int64,  # their positions, (B,)
    ) -> Int64:  # the numbers of the shards, (B,)
        """Tell in which shard rows lie."""
        return np.searchsorted(self.starts, positions, side="right") - 1
