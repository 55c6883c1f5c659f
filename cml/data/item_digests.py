"""Digests of items, by which training items are recognised later. They tell nothing of what an item is."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.array_types import Bools, UInt64
from cml.data.encode_image import FilePicture, Picture
from cml.data.images import Images
from cml.data.input_form import Inputs

MOST_DIGESTED = 20_000  # items of a large set; a random subset recognises a part of any others
_BYTES = 8


def digest_items(
    inputs: Inputs | Sequence[Any] | NDArray[Any],
    most: int | None = None,  # how many are digested at most, a random subset; all when not given
) -> UInt64:
    """Digest the content of items: of numbers and texts, and of the pixels or the file of an image.

    An image counts as another item than its file; the bytes of a file count as the file.

    Returns (M,) digests in the order of the items; 0 for an image whose file cannot be read. M is 0 for items from a
    data set of the user's own, each reading of which may differ.
    """
    if isinstance(inputs, Images):
        inputs = inputs.source
    count = len(inputs)
    if getattr(inputs, "reads_anew", False) or (isinstance(inputs, Inputs) and inputs.form.kind == "items"):
        return np.empty(0, np.uint64)
    rows = np.arange(count)
    if most is not None and count > most:
        rows = np.sort(np.random.default_rng(0).choice(count, most, replace=False))
    if isinstance(inputs, Inputs):
        values = (inputs.read(np.array([row]))[0] for row in rows.tolist())
        encoded = (np.frombuffer(one.encode(), np.uint8) if isinstance(one, str) else one for one in values)
        return np.array([_digest(one) for one in encoded], np.uint64)  # of a text, which names no file
    return np.array([_digest(inputs[row]) for row in rows.tolist()], np.uint64)


def digest_original(
    picture: Picture,  # of a dataset that is being written
    stored: bytes,  # the file that is stored of it
) -> int:
    """Digest the file that a stored picture was made from; 0 where it is stored as it is, or there was no file."""
    original = picture.original if isinstance(picture, FilePicture) else picture
    if not isinstance(original, Path):
        return 0
    try:  # most files that are stored as they are: to compare them takes less than a digest
        is_kept = original.stat().st_size == len(stored) and original.read_bytes() == stored
    except OSError:
        return 0
    return 0 if is_kept else _digest(original)


def find_known(digests: UInt64, known: UInt64) -> Bools:  # digests (N,), known (M,) -> (N,)
    """Find the items among known ones."""
    return np.isin(digests, known[known != 0])


def _digest(item: Any) -> int:  # noqa: ANN401 - an array, an image, a file or its bytes
    digest = hashlib.blake2b(digest_size=_BYTES)
    if isinstance(item, bytes | bytearray | memoryview):  # of a file
        digest.update(item)
    elif isinstance(item, Path | str):
        try:
            digest.update(Path(item).read_bytes())
        except OSError:
            return 0
    elif isinstance(item, Image.Image):
        digest.update(f"{item.mode} {item.size}".encode())
        digest.update(item.tobytes())
    else:
        array = np.ascontiguousarray(item)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(array.data)
    return int.from_bytes(digest.digest())
