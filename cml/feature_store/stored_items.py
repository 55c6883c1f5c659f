"""The items whose features are stored, and the key of each: a digest of its content.

The key is the content, so that a store outlives a copy of the images to another place or machine, and tells a replaced
image. Size and time of a file are kept beside it: where both are unchanged, the file need not be read again.
"""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Protocol

import msgspec
import numpy as np

from cml.array_types import Float32
from cml.data.dataset_items import DatasetItems
from cml.data.image_sources import as_array
from cml.data.input_form import Inputs
from cml.data.vectors import Vectors
from cml.errors import DataError, UserError
from cml.feature_store.manifest import StoredItem
from cml.storage.json_file import parse_json
from cml.storage.regular_file import digest_file


class StoredItems(Protocol):
    """N items in a fixed order."""

    root: str  # the folder of their files; "" if there is none
    # how many items follow each other in each part. Batches do not cross the border of two parts, so that the
    # features of a part have the same bits as if it were alone
    parts: Sequence[int]
    column: str  # the column of a dataset whose texts the items are; "" for other items

    def __len__(self) -> int: ...

    def take(self, start: int, stop: int) -> Any:  # noqa: ANN401 - what the network takes
        """Take some items for the network."""
        ...

    def item(self, position: int) -> StoredItem:
        """Describe an item, whose content is read."""
        ...

    def has_changed(self, position: int, stored: StoredItem) -> bool:
        """Tell whether an item is another one than a stored one; a file is read only if its size or time differ."""
        ...

    def fingerprint(self) -> str:
        """Digest of all items, for which files are not read."""
        ...


class FileItems:
    """Files as items."""

    def __init__(
        self,
        paths: Sequence[Path],
        ids: Sequence[str] | None = None,  # their ids; None for their names
        root: Path | None = None,  # the folder that all lie in; None if there is none
        parts: Sequence[int] | None = None,  # as of ``StoredItems``; None for one part
    ) -> None:
        self.paths = paths
        self.root = "" if root is None else str(root)
        self.parts: Sequence[int] = [len(paths)] if parts is None else parts
        self.column = ""
        self._ids = ids

    def __len__(self) -> int:
        return len(self.paths)

    def take(self, start: int, stop: int) -> Sequence[Path]:
        """The files from ``start`` to ``stop``."""
        return self.paths[start:stop]

    def item(self, position: int) -> StoredItem:
        """The line of a file, which is read."""
        name, size, time = self._place(position)
        return StoredItem(self._id(position), file_key(self.paths[position]), name, size, time)

    def has_changed(self, position: int, stored: StoredItem) -> bool:
        """Whether a file is another one than a stored one."""
        if self._id(position) != stored.item_id:
            return True
        _, size, time = self._place(position)
        if (size, time) == (stored.size, stored.mtime_ns):
            return False
        return file_key(self.paths[position]) != stored.sha256

    def fingerprint(self) -> str:
        """Digest of ids, names, sizes and times."""
        digest = hashlib.sha256()
        for position in range(len(self)):
            digest.update(f"{json.dumps([self._id(position), *self._place(position)])}\n".encode())
        return digest.hexdigest()

    def _id(self, position: int) -> str:
        return self.paths[position].name if self._ids is None else self._ids[position]

    def _place(self, position: int) -> tuple[str, int, int]:
        path = self.paths[position]
        try:
            status = path.stat()
        except OSError:
            raise DataError(f"The file {path} is missing.") from None
        name = path.relative_to(self.root).as_posix() if self.root else str(path.absolute())
        return name, status.st_size, status.st_mtime_ns


class ValueItems:
    """Values as items: rows of an array, texts, or objects."""

    def __init__(
        self,
        values: Any,  # noqa: ANN401 - a sequence of any values
        ids: Sequence[str] | None = None,
        parts: Sequence[int] | None = None,
        column: str = "",
    ) -> None:
        self.values = values
        self.root = ""
        self.parts: Sequence[int] = [len(values)] if parts is None else parts
        self.column = column
        self._ids = ids
        self._is_inputs = isinstance(values, Inputs)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, start: int, stop: int) -> Any:  # noqa: ANN401
        """The values from ``start`` to ``stop``."""
        chosen = slice(start, stop)
        if isinstance(self.values, DatasetItems):
            return list(self.values[chosen])
        return self.values.subset(chosen) if self._is_inputs else self.values[chosen]

    def item(self, position: int) -> StoredItem:
        """The line of a value."""
        return StoredItem(self._id(position), self._key(position))

    def has_changed(self, position: int, stored: StoredItem) -> bool:
        """Whether a value is another one than a stored one."""
        return self._id(position) != stored.item_id or self._key(position) != stored.sha256

    def fingerprint(self) -> str:
        """Digest of all values."""
        digest = hashlib.sha256()
        for position in range(len(self)):
            digest.update(self._key(position).encode())
        for item_id in self._ids or ():
            digest.update(f"{json.dumps(item_id)}\n".encode())
        return digest.hexdigest()

    def _id(self, position: int) -> str:
        return str(position) if self._ids is None else self._ids[position]

    def _key(self, position: int) -> str:
        values = self.values
        return value_key(values.read(np.array([position]))[0] if self._is_inputs else values[position])


class JoinedVectors:
    """The vectors of several splits of a dataset, of which only those that are asked for are read."""

    def __init__(self, splits: Sequence[Vectors]) -> None:
        self._splits = splits
        self._starts = np.concatenate([[0], np.cumsum([len(split) for split in splits])])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, items: int | slice) -> Float32:
        """The vectors (n, F) of a slice, or the one (F,) at a position."""
        positions = np.arange(len(self))[items]
        split_of = np.searchsorted(self._starts, np.atleast_1d(positions), side="right") - 1
        rows = [
            self._splits[number].read(np.atleast_1d(positions)[split_of == number] - self._starts[number])
            for number in np.unique(split_of).tolist()
        ]
        joined: Float32 = np.concatenate(rows)
        return joined if isinstance(items, slice) else joined[0]


def file_key(path: Path) -> str:
    """Compute the key of a file."""
    try:
        return digest_file(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}).") from None


def value_key(value: Any) -> str:  # noqa: ANN401 - any value
    """Compute the key of a value."""
    if isinstance(value, str):
        return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()
    if isinstance(value, Path):
        return file_key(value)
    if isinstance(value, bool | int | float | NoneType):
        return hashlib.sha256(repr(value).encode()).hexdigest()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif callable(getattr(value, "to_dict", None)):
        value = value.to_dict()
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list | tuple):
        return hashlib.sha256(" ".join(map(value_key, value)).encode()).hexdigest()
    array = np.asarray(value) if hasattr(value, "getexif") else as_array(value)
    if array is None or array.dtype.kind == "O":
        raise UserError(
            f"The items must be files, texts, arrays or Pillow images, by whose content features are found again. "
            f"Got {type(value).__name__} instead."
        )
    digest = hashlib.sha256() if array.ndim <= 1 else hashlib.sha256(f"{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def decode_item(line: bytes) -> StoredItem:
    """Decode a line of items.jsonl."""
    try:
        return _DECODER.decode(line)
    except ValueError:  # msgspec refuses a file name that is not Unicode
        return msgspec.convert(parse_json(line, surrogates=True), StoredItem)


_DECODER = msgspec.json.Decoder(StoredItem)
